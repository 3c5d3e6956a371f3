"""A run in one call, with looks on the way: what an engine is like at evenly spaced times, however long the run is.

Looking changes nothing: an engine goes on from a pause as it would have without. When the array of looks is full, every
second one goes, and the distance doubles. So at the end between half as many as it holds and all of them are there.
"""

from __future__ import annotations

import numpy as np

from sim.engine.dtypes import NEVER, PENDING
from sim.engine.run import REACHED
from sim.engine.state import Records, State, engine_at
from sim.engine.waiting import next_queued_us
from sim.engine.watching.called_run import run_engine
from sim.jit.compile import engine_entry, part, phase
from sim.jit.references import Table

LOOK = np.dtype(
    [
        ("num_waiting", np.int64),
        ("num_running", np.int64),
        ("num_free_blocks", np.int64),
        ("busy_us", np.int64),  # time of the steps so far, up to the look
    ],
    align=True,
)
"""An engine at a time."""

GRID = np.dtype([("distance_us", np.int64), ("num", np.int64), ("is_paused", np.int64)], align=True)
"""How far apart looks are, how many were taken; whether the engine was advanced to the next, or beyond it."""


@phase
def look_at(s: State, time_us: int, seen: Records) -> None:
    """Note an engine's state just before ``time_us``, up to which its steps were taken.

    Of a step that ends later only its start is visible.
    """
    queues, last, clock = s.engine[0].queues, s.engine[0].last_schedule, s.engine[0].clock
    seen.num_running, seen.num_free_blocks = queues.num_running, queues.num_free_blocks
    if clock.now_us > time_us:
        seen.num_running, seen.num_free_blocks = last.num_running, last.num_free_blocks
    seen.num_waiting = queues.num_waiting + s.engine[0].kv_transfers.num_holding
    request = queues.first_pending
    while request != NEVER and s.requests[request].queued_us < time_us:
        seen.num_waiting += s.requests[request].status == PENDING  # its client may have gone already
        request = s.requests[request].next_waiting
    ahead_us = max(clock.now_us, clock.device_free_us) - time_us
    seen.busy_us = s.engine[0].totals.busy_us - max(ahead_us, 0)


@part
def has_to_advance(s: State, time_us: int) -> bool:
    """Return whether steps begin before a time, or requests come."""
    queued_us = next_queued_us(s)
    return s.engine[0].clock.now_us < time_us or (queued_us != NEVER and queued_us < time_us)


@part
def keep_every_second(grid: Records, looks: Records) -> None:
    """Make room for as many looks as remain, twice as far apart."""
    grid[0].num = len(looks) // 2
    grid[0].distance_us *= 2
    for i in range(grid[0].num):
        kept, seen = looks[i], looks[2 * i + 1]
        kept.num_waiting, kept.num_running = seen.num_waiting, seen.num_running
        kept.num_free_blocks, kept.busy_us = seen.num_free_blocks, seen.busy_us


@engine_entry
def run_watched(
    engines: Table, engine: int, until_us: int, flag: bool, address: int, grid: Records, looks: Records
) -> int:
    """Do what the function at ``address`` does (``run_engine``), and look at the engine on the way.

    ``grid``: GRID[1]. ``looks``: LOOK[an even number]; those before ``until_us`` are written.
    """
    s = engine_at(engines, engine)
    g = grid[0]
    while (g.num + 1) * g.distance_us < until_us:
        time_us = (g.num + 1) * g.distance_us
        if not g.is_paused or has_to_advance(s, time_us):
            g.is_paused = 0
            answer = run_engine(address, engines, engine, time_us, flag)
            if answer != REACHED:
                return answer
            g.is_paused = 1
        look_at(s, time_us, looks[g.num])
        g.num += 1
        if g.num == len(looks):
            keep_every_second(grid, looks)
    g.is_paused = 0
    return run_engine(address, engines, engine, until_us, flag)
