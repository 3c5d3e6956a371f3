"""What is done to an engine from outside its loop: requests join, are held back, or go away."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.abort import abort
from sim.engine.deadlines import add_deadline
from sim.engine.dtypes import NEVER
from sim.engine.state import State, engine_at
from sim.engine.waiting import add_pending, drop_pending
from sim.jit.compile import engine_entry, part, phase
from sim.jit.references import Table


@engine_entry
def join_requests(
    engines: Table, engine: int, order: NDArray[np.int64], by_deadline: NDArray[np.int64]
) -> None:
    """Add requests to the pending list at their ``queued_us``; ``order`` is sorted by it, ties by number.

    ``by_deadline``: those of them that have one, sorted by it.
    """
    s = engine_at(engines, engine)
    for request in order:
        add_pending(s, request)
    for request in by_deadline:
        add_deadline(s, request)


@engine_entry
def hold_requests(
    engines: Table,
    engine: int,
    rank: NDArray[np.int64],
    concurrency: int,
    think_time_us: int,
    is_capped: bool,
) -> None:
    """Make the loop closed before it starts: all but the first ``concurrency`` of ``held`` wait for a completion.

    ``rank``: where in ``held`` each request stands.
    """
    s = engine_at(engines, engine)
    settings, queues = s.engine[0].settings, s.engine[0].queues
    settings.is_closed_loop = 1
    settings.is_capped = is_capped
    settings.think_time_us = think_time_us
    queues.next_held = concurrency
    request = queues.first_pending
    while request != NEVER:
        after = s.requests[request].next_waiting
        if rank[request] >= concurrency:
            drop_pending(s, request)
            s.requests[request].queued_us -= s.requests[request].arrival_us
        request = after
    num_left = 0
    for i in range(queues.num_deadlines):
        if rank[s.deadlines[i]] < concurrency:
            s.deadlines[num_left] = s.deadlines[i]
            num_left += 1
    queues.num_deadlines = num_left


@part
def inject(s: State, request: int, at_us: int, delay_us: int) -> None:
    """Hand a request of the table over at ``at_us``; it joins the queue ``delay_us`` later. Of constant cost."""
    r = s.requests[request]
    r.urgency += s.engine[0].settings.age_weight_per_us * (at_us - r.arrival_us)
    r.arrival_us = at_us
    r.queued_us = at_us + delay_us
    if r.scheduled_us == NEVER:
        s.taken_in_us[request] = NEVER
    add_pending(s, request)
    if s.engine[0].settings.has_deadlines:
        add_deadline(s, request)


@phase
def drop_request(s: State, request: int) -> None:
    """Drop a request wherever it is; results of it that are still in flight are passed over."""
    if s.engine[0].settings.has_deadlines:
        s.deadline_us[request] = NEVER  # it went before
    abort(s, request)
