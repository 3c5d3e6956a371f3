"""Everything between the command and the start of the clock: the server, the body it accepts, the plan, the warm-up."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

from observe.plan.chains import chains_of, rounds_that_extend
from observe.plan.class_priority import priority_notes
from observe.plan.conversations import returns_token_ids
from observe.plan.negotiate import negotiate
from observe.plan.prompt_lengths import make_prompts
from observe.plan.prompts import Prompts, TokenPrompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import PREBUILD_BYTES, SendPlan, make_plan
from observe.plan.too_long import too_long_notes
from observe.senders.request_kinds import KINDS
from observe.server.http_client import ServerClient
from observe.server.prometheus_text import Sample
from observe.server.server_facts import ServerFacts, ask_server, scrape_metrics
from observe.server.server_metrics import speaks_vllm
from observe.settings import Settings, WarmUp
from traces import several_engines

if TYPE_CHECKING:
    from observe.media.sent_media import MediaDrawing
    from observe.plan.local_tokenizer import LocalTokenizer
    from observe.texts.sent_texts import SentTexts
    from traces import Trace

Tell = Callable[[str], None]
"""Prints one line for the user at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The start of a run. ``metrics``: the server's counters just before it, None if it has none.

    ``prompt_source``: how prompts came to their lengths, in words, for the header.
    """

    server: ServerFacts
    plan: SendPlan
    prompt_source: str
    salt: int
    metrics: list[Sample] | None
    notes: tuple[str, ...]


async def prepare(
    workload: Trace, settings: Settings, client: ServerClient, *, tell: Tell = lambda _: None
) -> Preparation:
    """Query the server, make a plan that suits it, warm the server up; return the start of the run.

    ``tell`` is called about steps that take a while. Raises ServerError if there is no server or it refuses,
    ConfigError for a model it does not serve, TraceError for a workload that cannot be sent.
    """
    server = await ask_server(client, model=settings.model)
    salt = int.from_bytes(os.urandom(6)) if settings.salt is None else settings.salt
    shape = _body_shape(workload, settings, server)
    tokenizer = _tokenizer(settings)
    workload, prompts, notes = await _prompted(
        workload, settings, client, shape, salt=salt, tokenizer=tokenizer
    )
    if settings.probe and _may_refuse(server, settings):
        shape, prompts, more = await _agreed(client, shape, prompts=prompts, salt=salt, tokenizer=tokenizer)
        notes += more
    if rounds_that_extend(workload, chains_of(workload)):
        prompts, more = await _prompts_for_conversations(client, shape, prompts=prompts, salt=salt)
        notes += more
    texts = await _texts(workload, settings, client, tokenizer, model=server.model, tell=tell)
    if texts is not None:
        workload, notes = texts.workload, (*notes, *texts.notes)
    workload = _as_inputs(workload, settings)
    if settings.warmup and not settings.warmup.is_recorded:
        from observe.run.warm_up_requests import warm_up

        tell(f"warming up {_how_long(settings.warmup, len(workload))}")
        await warm_up(workload, settings, prompts=prompts, shape=shape, salt=salt + 1)
    plan = make_plan(
        workload,
        prompts=prompts,
        shape=shape,
        prebuild_bytes=PREBUILD_BYTES if settings.processes == 1 else 0,  # each process builds its own
        class_priority=settings.class_priority,
        guided_rows=_guided_rows(workload, settings),
        texts=None if texts is None else texts.prompts,
        drawing=_drawing(settings, salt),
    )
    return Preparation(
        server=server,
        plan=plan,
        prompt_source=prompts.source if texts is None else texts.source,
        salt=salt,
        metrics=None if server.metrics is None else await scrape_metrics(client),
        notes=_all_notes(plan, settings, server, of_prompts=notes),
    )


def _as_inputs(workload: Trace, settings: Settings) -> Trace:
    """Return the workload with the inputs of each request, where requests generate nothing."""
    if settings.kind.generates:
        return workload
    from observe.kinds.pooling import as_inputs

    return as_inputs(workload, settings.api, num_inputs=settings.num_inputs)


def _all_notes(
    plan: SendPlan, settings: Settings, server: ServerFacts, *, of_prompts: tuple[str, ...]
) -> tuple[str, ...]:
    """Return what the header says of the run before it begins."""
    return (
        *server.notes,
        *(each.text for each in several_engines(server.info, num_requests=len(plan.trace))),
        *of_prompts,
        *plan.notes,
        *too_long_notes(plan.trace, server.info, limit_of=plan.max_tokens, num_inputs=plan.shape.num_inputs),
        *_option_notes(plan, settings, server),
    )


def _drawing(settings: Settings, salt: int) -> MediaDrawing | None:
    """Return how images, audio and videos are drawn, None where all are sent as text."""
    if settings.kind.is_sound or (settings.image_side is None and settings.audio_seconds is None):
        return None
    from observe.media.sent_media import MediaDrawing

    return MediaDrawing(
        side=settings.image_side,
        audio_seconds=settings.audio_seconds,
        video_frames=settings.video_frames,
        salt=salt,
    )


async def _texts(
    workload: Trace,
    settings: Settings,
    client: ServerClient,
    tokenizer: LocalTokenizer | None,
    *,
    model: str,
    tell: Tell,
) -> SentTexts | None:
    """Return the texts to send, None where prompts are drawn."""
    if settings.texts is None:
        return None
    from observe.texts.sent_texts import choose_texts
    from observe.texts.token_counts import choose_counts

    chat = settings.kind.has_messages
    counts = await choose_counts(client, chat=chat, model=model, tokenizer=tokenizer)
    tell(f"counting the tokens of the texts of {settings.texts.path.name} ({counts.source})")
    return await choose_texts(workload, settings.texts, counts=counts, chat=chat)


def _may_refuse(server: ServerFacts, settings: Settings) -> bool:
    """Return whether a server may refuse fields that a vLLM takes: another one, or what stands before a chat API."""
    is_behind = settings.api != "completions" and not speaks_vllm(server.metrics or [])
    return not server.is_vllm or is_behind


def _body_shape(workload: Trace, settings: Settings, server: ServerFacts) -> BodyShape:
    """Return the bodies' shape before anything is negotiated.

    A row may ask for a model that the server lists, unless the user names one for all, and for an adapter that it
    lists; a server that lists nothing may have it, and is tried.
    """
    asked_for = frozenset(workload.column("adapter").dropna()) - {""}
    served = frozenset(server.served)
    known = asked_for & served if served else asked_for
    is_held = settings.tools is None  # an answer that calls a tool ends with the call
    return BodyShape(
        api=settings.api,
        model=server.model,
        row_models=known if settings.model is not None else served | known,
        streaming=settings.streaming and settings.kind.generates,
        limit_name=settings.kind.limit_name,
        num_inputs=settings.num_inputs,
        num_choices=settings.num_choices,
        ignore_eos=is_held and "ignore_eos" not in settings.kind.lacks,
        min_tokens=is_held and "min_tokens" not in settings.kind.lacks,
        guided=_guided_fields(settings, server),
        extra={} if settings.tools is None else settings.tools.fields,
    )


def _guided_fields(settings: Settings, server: ServerFacts) -> Mapping[str, object]:
    if settings.guided is None:
        return {}
    from observe.plan.guided import guided_fields

    return guided_fields(settings.guided, is_vllm=server.is_vllm, version=server.info.version)


def _guided_rows(workload: Trace, settings: Settings) -> frozenset[int]:
    if settings.guided is None:
        return frozenset()
    from observe.plan.guided import guided_rows

    return guided_rows(workload, settings.guided)


def _tokenizer(settings: Settings) -> LocalTokenizer | None:
    if settings.tokenizer is None:
        return None
    from observe.plan.local_tokenizer import LocalTokenizer

    return LocalTokenizer(settings.tokenizer)


async def _prompted(
    workload: Trace,
    settings: Settings,
    client: ServerClient,
    shape: BodyShape,
    *,
    salt: int,
    tokenizer: LocalTokenizer | None,
) -> tuple[Trace, Prompts, tuple[str, ...]]:
    """Return the workload, what makes its prompts, and notes on both."""
    if settings.kind.is_sound:
        from observe.kinds.sound_prompts import as_sounds

        return as_sounds(workload, settings, salt=salt)
    return workload, *await _prompts(client, shape, salt=salt, tokenizer=tokenizer)


async def _prompts(
    client: ServerClient,
    shape: BodyShape,
    *,
    salt: int,
    tokenizer: LocalTokenizer | None,
    token_ids: bool = True,
) -> tuple[Prompts, tuple[str, ...]]:
    """Return what makes the prompts of requests of this shape, and notes on it."""
    prompts, note = await make_prompts(
        client, api=shape.api, model=shape.model, salt=salt, token_ids=token_ids, tokenizer=tokenizer
    )
    if not KINDS[shape.api].generates:
        from observe.kinds.batched_prompts import BatchedPrompts

        in_pairs = KINDS[shape.api].num_texts > 1
        prompts = BatchedPrompts(prompts, shape.num_inputs, in_pairs)
    return prompts, (note,) if note else ()


def _option_notes(plan: SendPlan, settings: Settings, server: ServerFacts) -> tuple[str, ...]:
    notes = priority_notes(
        plan.trace, settings.class_priority, scheduling_policy=server.info.scheduling_policy
    )
    if settings.endpoint.takes_any_certificate:
        notes = (*notes, "the server's certificate is not checked (--insecure)")
    if lacks := ", ".join(sorted(settings.kind.lacks)):
        notes = (*notes, f"--api {settings.api} has no {lacks}: answers end where the model ends them")
    number = len(plan.guided_rows)
    if not number:
        return notes
    said = f"{number} of {len(plan.trace)} requests are guided: their answers end where the schema ends"
    return (*notes, said)


async def _agreed(
    client: ServerClient,
    shape: BodyShape,
    *,
    prompts: Prompts,
    salt: int,
    tokenizer: LocalTokenizer | None,
) -> tuple[BodyShape, Prompts, tuple[str, ...]]:
    """Return shape and prompts that the server accepts, and notes on what was left out for that."""
    agreed, refusal = await negotiate(client, shape, prompts=prompts)
    if refusal is None:
        return agreed, prompts, _dropped_options(shape, agreed)
    if KINDS[shape.api].takes_token_ids:
        words, notes = await _prompts(client, shape, salt=salt, token_ids=False, tokenizer=tokenizer)
        agreed, text_refusal = await negotiate(client, shape, prompts=words)
        if text_refusal is None:
            said = ("the server does not accept token ids as a prompt", *notes)
            return agreed, words, (*said, *_dropped_options(shape, agreed))
    return shape, prompts, (f"the server refused the test request: {refusal}",)


def _dropped_options(asked: BodyShape, agreed: BodyShape) -> tuple[str, ...]:
    said = []
    if asked.continuous_usage and not agreed.continuous_usage:
        said.append(
            "the server rejects continuous_usage_stats: tokens per event are known only if every event carried one"
        )
    if agreed.limit_name != asked.limit_name:
        said.append(f"the server wants {agreed.limit_name} in place of {asked.limit_name}: it is sent")
    if asked.min_tokens and not agreed.min_tokens and not agreed.ignore_eos:
        said.append("the server rejects ignore_eos and min_tokens: outputs may be shorter than requested")
    return tuple(said)


async def _prompts_for_conversations(
    client: ServerClient, shape: BodyShape, *, prompts: Prompts, salt: int
) -> tuple[Prompts, tuple[str, ...]]:
    """Return prompts that answers can be added to: token ids only where the server names its own."""
    if not isinstance(prompts, TokenPrompts):
        return prompts, ()
    if await returns_token_ids(client, shape, prompts=prompts):
        return prompts, ()
    words, notes = await _prompts(client, shape, salt=salt, token_ids=False, tokenizer=None)
    said = "the server returns no token ids (vllm: 0.10.2 or newer does): later rounds of a session are sent as text"
    return words, (said, *notes)


def _how_long(warmup: WarmUp, num_rows: int) -> str:
    if warmup.seconds:
        return f"for {warmup.seconds:g} s"
    return f"with {min(warmup.num_requests, num_rows)} requests"
