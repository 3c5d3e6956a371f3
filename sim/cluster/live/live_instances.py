"""Instances that come and go in a cluster that never ends."""

from __future__ import annotations

from sim.cluster.events import EventRank, plan_event
from sim.cluster.run.changes.operations import Operations
from sim.cluster.run.world import World
from sim.engine.state import State

SNAPSHOT = int(EventRank.SNAPSHOT)


class LiveOperations(Operations):
    """Starts and stops instances, where another request may always come.

    Autoscalers go on checking without requests. Snapshots do not: they are taken while anything happens, and once after
    it, so that they show an idle cluster as it is.
    """

    def _goes_on(self, time_us: int) -> bool:  # noqa: ARG002 - at any time
        """Return True."""
        return True

    def act(self, world: World, states: list[State], *, rank: int, subject: int, time_us: int) -> World:
        """Do what an event asks for; what it changes is in the next snapshot."""
        super().act(world, states, rank=rank, subject=subject, time_us=time_us)
        self.plan_snapshot(time_us + (rank > SNAPSHOT))
        return self.world

    def plan_snapshot(self, from_us: int) -> None:
        """Plan the first snapshot that is due at ``from_us`` or later, unless one is planned."""
        loop = self.world.loop[0]
        if loop.is_snapshot_planned:
            return
        intervals_us = (
            loop.queue_interval_us if loop.sees_queues else 0,
            loop.kv_interval_us if loop.sees_kv else 0,
            loop.cache_interval_us if loop.sees_caches else 0,
        )
        due_us = [-(-from_us // interval_us) * interval_us for interval_us in intervals_us if interval_us > 0]
        if due_us:
            loop.is_snapshot_planned = 1
            plan_event(self.world.events, int(min(due_us)), SNAPSHOT, 0, 0)
