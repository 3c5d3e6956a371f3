"""Running a cluster: the compiled loop, and the work that it leaves to Python in between."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import tree_of
from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.events import with_room_for_events
from sim.cluster.routing.own import FleetView, choose_by_own
from sim.cluster.routing.router_state import with_room_for
from sim.cluster.routing.routing_policies import OwnPolicy
from sim.cluster.run.changes.operations import Operations
from sim.cluster.run.loop import run_cluster
from sim.cluster.run.request_path import (
    DONE,
    ENGINE_NEEDS_ROOM,
    EVENTS_NEED_ROOM,
    NEEDS_DECISION,
    NEEDS_OPERATION,
    ROUTER_NEEDS_ROOM,
)
from sim.cluster.run.world import World
from sim.engine.beginning.longer_arrays import with_more_room
from sim.engine.state import State, columns
from sim.jit.references import point_to


class Driver:
    """Runs a cluster's loop. The world is that of ``operations``, whose arrays may be replaced by larger ones."""

    def __init__(self, operations: Operations, states: list[State], config: ClusterConfig) -> None:
        self.operations, self.states, self.config = operations, states, config
        world = self._pointed_to = operations.world
        self._view = FleetView(world.fleet)
        self._look_us: NDArray[np.int64] = columns(world.loop)["look_us"]
        self._margin = 64 + 4 * max(pool.engine.max_num_seqs for pool in config.pools)
        if len(world.clients.wave_open):
            self._margin += int(world.clients.wave_open.max())

    @property
    def world(self) -> World:
        """The cluster as it is."""
        return self.operations.world

    def run(self, until_us: int) -> None:
        """Process every event before ``until_us``; no engine takes a step that starts then or later."""
        self._look_us[0] = until_us
        while (answer := run_cluster(self.operations.table, until_us, self._margin)) != DONE:
            if (
                answer == NEEDS_DECISION
            ):  # no array moves, and to set their addresses again takes longer than the rest
                self.world.loop[0].chosen = self._decide()
            else:
                self._do(answer)

    def replace(self, world: World) -> None:
        """Replace the world; the same one has the same arrays at the same addresses."""
        if world is self._pointed_to:
            return
        self.operations.world = self._pointed_to = world
        point_to(self.operations.table, 0, world)

    def _decide(self) -> int:
        """Return the instance that the user's function chooses for the request in hand."""
        world, policy = self.world, self.config.routing
        return choose_by_own(
            cast("OwnPolicy", policy),  # only this policy asks
            self._view,
            world.requests,
            fleet=world.fleet,
            request=int(world.loop[0].waits_for),
            time_us=int(world.loop[0].hand_us),
        )

    def _do(self, answer: int) -> None:
        """Do what the loop needs before it goes on."""
        world, states = self.world, self.states
        loop = world.loop[0]
        if answer == ENGINE_NEEDS_ROOM:
            states[loop.waits_for] = with_more_room(states[loop.waits_for])
            point_to(world.engines, loop.waits_for, states[loop.waits_for])
        elif answer == ROUTER_NEEDS_ROOM:
            num_ids = int(world.requests.num_hashes[loop.waits_for])
            world = world._replace(router=with_room_for(world.router, num_ids))
            if self.config.moves_kv:
                world = world._replace(prefill_router=with_room_for(world.prefill_router, num_ids))
        elif answer == EVENTS_NEED_ROOM:
            capacity = 2 * len(world.events.heap) + self._margin
            world = world._replace(events=with_room_for_events(world.events, capacity))
        elif answer == NEEDS_OPERATION:
            loop.has_hand = 0
            rank, subject, time_us = int(loop.hand_rank), int(loop.hand_subject), int(loop.hand_us)
            world = self.operations.act(world, states, rank=rank, subject=subject, time_us=time_us)
            world.due_us[:] = tree_of(np.zeros(len(states), np.int64))
        else:
            raise AssertionError(f"the cluster's loop answered {answer}")
        self.replace(world)
