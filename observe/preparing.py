"""Everything between the command and the clock: what the server is and accepts, the plan, the warm-up."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from observe.endpoint import PATHS
from observe.exchange import monotonic_ns
from observe.local_tokenizer import LocalTokenizer
from observe.metrics_text import Sample
from observe.negotiate import make_prompts, negotiate
from observe.plan import PREBUILD_BYTES, BodyShape, SendPlan, make_plan
from observe.progress import Progress
from observe.prompts import Prompts
from observe.run import LoadRun
from observe.sending import open_sender
from observe.server import Questions, ServerFacts, ask_server, scrape_metrics
from observe.settings import Settings
from traces import ClosedLoop, select_rows

if TYPE_CHECKING:
    from traces import Trace

_WARMUP_CONCURRENCY = 8

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
    workload: Trace, settings: Settings, questions: Questions, *, tell: Say = lambda _: None
) -> Preparation:
    """Ask the server, make the plan that suits it, warm the server up; return what the run starts from.

    ``tell`` hears of what takes a while.
    Raises ServerError where there is no server or it refuses, ConfigError for a model it does not serve,
    TraceError for a workload that cannot be sent.
    """
    server = await ask_server(questions, model=settings.model)
    salt = int.from_bytes(os.urandom(6)) if settings.salt is None else settings.salt
    served = frozenset(server.served) if settings.model is None else frozenset()
    shape = BodyShape(api=settings.api, model=server.model, row_models=served, streaming=settings.streaming)
    tokenizer = None if settings.tokenizer is None else LocalTokenizer(settings.tokenizer)
    prompts, note = await make_prompts(
        questions, api=settings.api, model=server.model, salt=salt, tokenizer=tokenizer
    )
    notes: tuple[str, ...] = (note,) if note else ()
    if settings.probe and not server.is_vllm:
        shape, prompts, more = await _settle(
            questions, shape, prompts=prompts, salt=salt, tokenizer=tokenizer
        )
        notes += more
    if settings.warmup_requests:
        tell(f"warming up with {min(settings.warmup_requests, len(workload))} requests")
        await _warm_up(workload, settings, prompts=prompts.salted(salt + 1), shape=shape)
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
        metrics=None if server.metrics is None else await scrape_metrics(questions),
        notes=(*server.notes, *notes, *plan.notes),
    )


async def _settle(
    questions: Questions,
    shape: BodyShape,
    *,
    prompts: Prompts,
    salt: int,
    tokenizer: LocalTokenizer | None,
) -> tuple[BodyShape, Prompts, tuple[str, ...]]:
    """Return shape and prompts that the server accepts, and what had to be given up for it."""
    agreed, refusal = await negotiate(questions, shape, prompts=prompts)
    if refusal is None:
        return agreed, prompts, _given_up(shape, agreed)
    if shape.api == "completions":
        words, note = await make_prompts(
            questions, api=shape.api, model=shape.model, salt=salt, token_ids=False, tokenizer=tokenizer
        )
        agreed, text_refusal = await negotiate(questions, shape, prompts=words)
        if text_refusal is None:
            said = ("the server takes no token ids as a prompt", *((note,) if note else ()))
            return agreed, words, (*said, *_given_up(shape, agreed))
    return shape, prompts, (f"a trial request was refused: {refusal}",)


def _given_up(asked: BodyShape, agreed: BodyShape) -> tuple[str, ...]:
    said = []
    if asked.continuous_usage and not agreed.continuous_usage:
        said.append("no continuous_usage_stats: an event's tokens are known only where each carried one")
    if asked.min_tokens and not agreed.min_tokens and not agreed.ignore_eos:
        said.append("neither ignore_eos nor min_tokens: outputs may be shorter than asked")
    return tuple(said)


async def _warm_up(workload: Trace, settings: Settings, *, prompts: Prompts, shape: BodyShape) -> None:
    """Send the workload's first requests, a few at a time, and keep nothing of them.

    ``prompts`` are not the run's: none of the run's finds itself in the server's cache.
    """
    count = min(settings.warmup_requests, len(workload))
    rows = select_rows(workload, np.arange(len(workload)) < count)
    rows = rows.with_columns(arrival_time_us=[None] * count, think_time_us=[0] * count)
    rows = rows.with_header(closed_loop=ClosedLoop(concurrency=min(count, _WARMUP_CONCURRENCY)))
    plan = make_plan(rows, prompts=prompts, shape=shape)
    sender = open_sender(settings.endpoint, PATHS[settings.api])
    try:
        run = LoadRun(
            plan,
            sender,
            progress=Progress(num_planned=count),
            on_end=lambda _: None,
            limits=replace(settings.limits, max_concurrency=None),
            id_prefix="vtwin-warmup",
        )
        await run.execute(monotonic_ns())
    finally:
        await sender.close()
