"""The instances' states at a time: for charts of a run, never for decisions.

Looking changes nothing: a paused engine continues as it would have. Where engines keep step (``is_coupled``) all steps
that start before the time have been taken. The others are advanced to it, after the snapshots that are due before; what
they finish meanwhile stays in their logs until it is read.
"""

from __future__ import annotations

import numpy as np

from sim.cluster.arrays import Records
from sim.cluster.run.instances import next_step_us, run_until, runs_past
from sim.cluster.run.snapshots import take_due_snapshots
from sim.cluster.run.tables import world_at
from sim.cluster.run.world import World
from sim.engine import dtypes as dt
from sim.engine.state import engine_at
from sim.jit.compile import engine_entry, phase
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
"""An instance at a time."""

IDLE, BUSY, NEEDS_ROOM, SNAPSHOT_NEEDS_ROOM = range(4)
"""Whether anything is left to do for any instance; or an engine needs room for a look at it, or for a snapshot."""


@phase
def look_at(world: World, instance: int, time_us: int, seen: Records) -> None:
    """Note an instance's state just before ``time_us``, up to which its steps were taken."""
    state = engine_at(world.engines, instance)
    queues, last, clock = state.engine[0].queues, state.engine[0].last_schedule, state.engine[0].clock
    seen.num_running, seen.num_free_blocks = queues.num_running, queues.num_free_blocks
    if runs_past(state, time_us):
        seen.num_running, seen.num_free_blocks = last.num_running, last.num_free_blocks
    seen.num_waiting = queues.num_waiting + state.engine[0].kv_transfers.num_holding
    request = queues.first_pending
    while request != dt.NEVER and state.requests[request].queued_us < time_us:
        seen.num_waiting += state.requests[request].status == dt.PENDING  # its client may have gone already
        request = state.requests[request].next_waiting
    ahead_us = max(clock.now_us, clock.device_free_us) - time_us
    seen.busy_us = state.engine[0].totals.busy_us - max(ahead_us, 0)


@engine_entry
def look_at_all(table: Table, time_us: int, seen: Records, first: int) -> int:
    """Fill ``seen``, a LOOK per instance; return IDLE, BUSY, or what needs room, and whose is ``waits_for``.

    ``first``: 0, or the engine that NEEDS_ROOM was about; those before it are at ``time_us`` already. A snapshot comes
    before all of them.
    """
    world = world_at(table, 0)
    if not world.loop[0].is_coupled and not take_due_snapshots(world, time_us - 1):
        return SNAPSHOT_NEEDS_ROOM
    for instance in range(first, len(seen)):
        if not world.loop[0].is_coupled and not run_until(world, instance, time_us):
            return NEEDS_ROOM
    answer = IDLE
    for instance in range(len(seen)):
        look_at(world, instance, time_us, seen[instance])
        if next_step_us(world, instance) >= time_us:
            answer = BUSY
    return answer
