"""The instances' states at a time: for charts of a run, never for decisions.

Looking changes nothing: a paused engine continues as it would have. Where engines keep step (``is_coupled``) all steps
that start before the time have been taken. The others are advanced to it, after the snapshots that are due before; what
they finish meanwhile stays in their logs until it is read.
"""

from __future__ import annotations

from sim.cluster.arrays import Records
from sim.cluster.run.instances import next_step_us, run_until
from sim.cluster.run.snapshots import take_due_snapshots
from sim.cluster.run.tables import world_at
from sim.engine.state import engine_at
from sim.engine.watching.watched_run import look_at
from sim.jit.compile import engine_entry
from sim.jit.references import Table

IDLE, BUSY, NEEDS_ROOM, SNAPSHOT_NEEDS_ROOM = range(4)
"""Whether anything is left to do for any instance; or an engine needs room for a look at it, or for a snapshot."""


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
        look_at(engine_at(world.engines, instance), time_us, seen[instance])
        if next_step_us(world, instance) >= time_us:
            answer = BUSY
    return answer
