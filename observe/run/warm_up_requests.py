"""Warming the server up before the run: requests that are sent and not recorded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from observe.plan.prompts import Prompts
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from observe.run.dispatch import LoadRun
from observe.run.run_counts import Progress
from observe.senders.choose_sender import open_sender
from observe.senders.exchange import monotonic_ns
from observe.settings import Settings, WarmUp
from traces import ClosedLoop, has_tree, select_rows, whole_hashes

if TYPE_CHECKING:
    from traces import Trace

_WARMUP_CONCURRENCY = 8
_WARMUP_LAP = 256
"""Requests that a warm-up by time plans at once; it repeats, with other prompts, until the time is over."""


async def warm_up(
    workload: Trace, settings: Settings, *, prompts: Prompts, shape: BodyShape, salt: int
) -> None:
    """Send the workload's first requests, a few at a time, this many or for this long, without recording them.

    ``salt`` is not the run's: none of the run's prompts finds itself in the server's cache.
    """
    sender = open_sender(settings.endpoint, settings.kind.path)
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
                limits=replace(settings.limits, max_concurrency=None, prefill_concurrency=None),
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
    if has_tree(rows.table):
        rows = rows.with_columns(prefix_hashes=whole_hashes(rows.table))
    rows = rows.without_columns(
        *("session_id", "round_index", "new_input_tokens"),
        *("parent_request_id", "awaited_request_ids", "num_parent_hashes"),
        *("cancel_after_us", "cancel_after_tokens"),
    )
    rows = rows.with_columns(arrival_time_us=[None] * number, think_time_us=[0] * number)
    rows = rows.with_header(closed_loop=ClosedLoop(concurrency=min(number, _WARMUP_CONCURRENCY)))
    return make_plan(rows, prompts=prompts, shape=shape)
