"""Everything between the command and the clock: what the server is and accepts, the plan, the warm-up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from observe.plan.chains import chains_of, rounds_that_extend
from observe.plan.conversations import returns_token_ids
from observe.plan.local_tokenizer import LocalTokenizer
from observe.plan.negotiate import make_prompts, negotiate
from observe.plan.prompts import Prompts, TokenPrompts
from observe.plan.send_plan import PREBUILD_BYTES, BodyShape, SendPlan, make_plan
from observe.run.dispatch import LoadRun
from observe.run.progress import Progress
from observe.senders.choose_sender import open_sender
from observe.senders.endpoint import PATHS
from observe.senders.exchange import monotonic_ns
from observe.server.prometheus_text import Sample
from observe.server.server_facts import ServerClient, ServerFacts, ask_server, scrape_metrics
from observe.settings import Settings, WarmUp
from traces import ClosedLoop, select_rows

if TYPE_CHECKING:
    from traces import Trace

_WARMUP_CONCURRENCY = 8
_WARMUP_LAP = 256
"""Requests that a warm-up by time plans at once; it begins anew, with other prompts, as often as it takes."""

Say = Callable[[str], None]
"""Tells the user one thing, now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What a run starts from. ``metrics``: the server's counters just before it, None where it has none."""

    server: ServerFacts
    plan: SendPlan
    salt: int
    metrics: list[Sample] | None
    notes: tuple[str, ...]


async def prepare(
    workload: Trace, settings: Settings, client: ServerClient, *, tell: Say = lambda _: None
) -> Preparation:
    """Ask the server, make the plan that suits it, warm the server up; return what the run starts from.

    ``tell`` hears of what takes a while.
    Raises ServerError where there is no server or it refuses, ConfigError for a model it does not serve,
    TraceError for a workload that cannot be sent.
    """
    server = await ask_server(client, model=settings.model)
    salt = int.from_bytes(os.urandom(6)) if settings.salt is None else settings.salt
    served = frozenset(server.served) if settings.model is None else frozenset()
    shape = BodyShape(api=settings.api, model=server.model, row_models=served, streaming=settings.streaming)
    tokenizer = None if settings.tokenizer is None else LocalTokenizer(settings.tokenizer)
    prompts, note = await make_prompts(
        client, api=settings.api, model=server.model, salt=salt, tokenizer=tokenizer
    )
    notes: tuple[str, ...] = (note,) if note else ()
    if settings.probe and not server.is_vllm:
        shape, prompts, more = await _negotiate_body(
            client, shape, prompts=prompts, salt=salt, tokenizer=tokenizer
        )
        notes += more
    if rounds_that_extend(workload, chains_of(workload)):
        prompts, more = await _prompts_for_conversations(client, shape, prompts=prompts, salt=salt)
        notes += more
    if settings.warmup and not settings.warmup.is_recorded:
        tell(f"warming up {_how_long(settings.warmup, len(workload))}")
        await warm_up(workload, settings, prompts=prompts, shape=shape, salt=salt + 1)
    plan = make_plan(
        workload,
        prompts=prompts,
        shape=shape,
        prebuild_bytes=PREBUILD_BYTES if settings.processes == 1 else 0,  # each process builds its own
        class_priority=settings.class_priority,
    )
    return Preparation(
        server=server,
        plan=plan,
        salt=salt,
        metrics=None if server.metrics is None else await scrape_metrics(client),
        notes=(*server.notes, *notes, *plan.notes),
    )


async def _negotiate_body(
    client: ServerClient,
    shape: BodyShape,
    *,
    prompts: Prompts,
    salt: int,
    tokenizer: LocalTokenizer | None,
) -> tuple[BodyShape, Prompts, tuple[str, ...]]:
    """Return shape and prompts that the server accepts, and what had to be given up for it."""
    agreed, refusal = await negotiate(client, shape, prompts=prompts)
    if refusal is None:
        return agreed, prompts, _dropped_options(shape, agreed)
    if shape.api == "completions":
        words, note = await make_prompts(
            client, api=shape.api, model=shape.model, salt=salt, token_ids=False, tokenizer=tokenizer
        )
        agreed, text_refusal = await negotiate(client, shape, prompts=words)
        if text_refusal is None:
            said = ("the server takes no token ids as a prompt", *((note,) if note else ()))
            return agreed, words, (*said, *_dropped_options(shape, agreed))
    return shape, prompts, (f"a trial request was refused: {refusal}",)


def _dropped_options(asked: BodyShape, agreed: BodyShape) -> tuple[str, ...]:
    said = []
    if asked.continuous_usage and not agreed.continuous_usage:
        said.append("no continuous_usage_stats: an event's tokens are known only where each carried one")
    if asked.min_tokens and not agreed.min_tokens and not agreed.ignore_eos:
        said.append("neither ignore_eos nor min_tokens: outputs may be shorter than asked")
    return tuple(said)


async def _prompts_for_conversations(
    client: ServerClient, shape: BodyShape, *, prompts: Prompts, salt: int
) -> tuple[Prompts, tuple[str, ...]]:
    """Return prompts that answers can be added to: token ids only where the server names its own."""
    if shape.api == "chat" or not isinstance(prompts, TokenPrompts):
        return prompts, ()
    if await returns_token_ids(client, shape, prompts=prompts):
        return prompts, ()
    words, note = await make_prompts(client, api=shape.api, model=shape.model, salt=salt, token_ids=False)
    said = (
        "the server names no tokens (vllm: 0.10.2 or newer): sessions are sent as text, read anew each round"
    )
    return words, (said, *((note,) if note else ()))


def _how_long(warmup: WarmUp, num_rows: int) -> str:
    if warmup.seconds:
        return f"for {warmup.seconds:g} s"
    return f"with {min(warmup.num_requests, num_rows)} requests"


async def warm_up(
    workload: Trace, settings: Settings, *, prompts: Prompts, shape: BodyShape, salt: int
) -> None:
    """Send the workload's first requests, a few at a time, so many or for so long, and keep nothing of them.

    ``salt`` is not the run's: none of the run's prompts finds itself in the server's cache.
    """
    sender = open_sender(settings.endpoint, PATHS[settings.api])
    until_ns = monotonic_ns() + round(settings.warmup.seconds * 1e9)
    try:
        for lap in count():
            others = prompts.salted(salt + lap)
            plan = _warm_up_plan(workload, settings.warmup, prompts=others, shape=shape)
            run = LoadRun(
                plan,
                sender,
                progress=Progress(num_planned=len(plan)),
                on_end=lambda _: None,
                limits=replace(settings.limits, max_concurrency=None),
                id_prefix="vtwin-warmup",
            )
            if settings.warmup.seconds:
                left_s = (until_ns - monotonic_ns()) / 1e9
                asyncio.get_running_loop().call_later(left_s, run.drain)
            await run.execute(monotonic_ns())
            if monotonic_ns() >= until_ns:
                return
    finally:
        await sender.close()


def _warm_up_plan(workload: Trace, warmup: WarmUp, *, prompts: Prompts, shape: BodyShape) -> SendPlan:
    number = min(warmup.num_requests or _WARMUP_LAP, len(workload))
    rows = select_rows(workload, np.arange(len(workload)) < number)
    alone = rows.requests.drop(columns=["session_id", "round_index", "new_input_tokens"], errors="ignore")
    rows = replace(rows, requests=alone)
    rows = rows.with_columns(arrival_time_us=[None] * number, think_time_us=[0] * number)
    rows = rows.with_header(closed_loop=ClosedLoop(concurrency=min(number, _WARMUP_CONCURRENCY)))
    return make_plan(rows, prompts=prompts, shape=shape)
