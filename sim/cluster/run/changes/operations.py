"""Instances that come and go while a cluster runs: rare work that the loop leaves to Python.

An instance is a slot of the fleet: it has lives, one after another, and in each it is COMING, READY, perhaps DOWN and
up again, DRAINING, and OFF. The next check notices that the last request of a draining instance has left. Its life,
and what it costs, ends when that request left, not at the check.
"""

from __future__ import annotations

import numpy as np

from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.events import EventRank, plan_event, with_room_for_events
from sim.cluster.fleet import set_order
from sim.cluster.infrastructure.autoscaling import Sizing, next_change_us
from sim.cluster.infrastructure.chance import repair_us, uptime_us
from sim.cluster.infrastructure.instance_lives import Infrastructure, Life, SizeChange
from sim.cluster.infrastructure.nodes import Nodes
from sim.cluster.infrastructure.restart import Fresh, begin_anew, fresh_caches
from sim.cluster.run.changes.instance_phases import COMING, DOWN, DRAINING, OFF, READY, Slot
from sim.cluster.run.changes.lost_requests import (
    cut_off_transfer,
    forget,
    hand_back,
    has_work,
    let_dispatch,
    lose,
    release_blocks,
    stop,
    take_in_transfers,
)
from sim.cluster.run.changes.requests_of_instance import (
    gone_us,
    holders_on,
    load_of_pool,
    requests_lost_with,
    requests_on,
    turn_back,
)
from sim.cluster.run.changes.work_left import has_events, has_unheard
from sim.cluster.run.prefill_to_decode import PREFILL
from sim.cluster.run.world import FOREVER, NEVER, World
from sim.config import InvalidConfig
from sim.engine.beginning.longer_arrays import with_more_room
from sim.engine.run import NEEDS_ROOM
from sim.engine.run_variants import run_of
from sim.engine.state import State
from sim.jit.references import Table, point_to
from sim.requests import Int64s

MOST_FRUITLESS = 100_000
"""How many checks in a row may find nothing new while requests wait for an instance that is coming."""

LOOK, ACT = 0, 1
"""The kinds of an autoscaler's events: check the load, or carry out a decision."""

FAILED, DRAIN_ENDED, BECAME_READY, SCALING = (
    int(rank)
    for rank in (
        EventRank.INSTANCE_FAILED,
        EventRank.DRAIN_ENDED,
        EventRank.INSTANCE_READY,
        EventRank.SCALING,
    )
)


class Operations:
    """Starts and stops instances."""

    def __init__(self, world: World, states: list[State], config: ClusterConfig, table: Table) -> None:
        self.world, self.states, self.config, self.table = world, states, config, table
        self.pool_of = [int(pool) for pool in world.pool_of]
        self.slots = [Slot(OFF, None) for _ in states]
        self.lives: list[Life] = []
        self.changes: list[SizeChange] = []
        self.nodes = {pool.name: Nodes(config=pool) for pool in config.node_pools}
        self.sizing = {
            number: Sizing(scaler=pool.autoscaler, at_first=pool.num_at_first)
            for number, pool in enumerate(config.pools)
            if pool.autoscaler is not None
        }
        self.orders: dict[int, list[int]] = {number: [] for number in self.sizing}
        self.last_seen = (0, 0, 0)
        self.num_fruitless = 0
        self.fresh: list[Fresh] = []
        if config.changes:
            firsts = [self.pool_of.index(number) for number in range(len(config.pools))]
            self.fresh = [fresh_caches(states[first]) for first in firsts]

    # -- the beginning and the end ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the first instances, and plan the first checks and failures."""
        for nodes in self.nodes.values():
            for _ in range(nodes.config.min_nodes):
                nodes.order(0, is_there=True)
        for number, pool in enumerate(self.config.pools):
            for slot in self._slots_of(number)[: pool.num_at_first]:
                self._place(slot, self._new_life(slot, 0), 0, is_there=True)
                life = self.slots[slot].life
                if life is None or life.placed_us is None:
                    raise InvalidConfig(
                        f"node_pools.max_nodes: got too few for the {pool.num_at_first} instances at the beginning, "
                        f"expected room for {pool.gpus_per_instance} GPUs of each"
                    )
                life.ready_us = 0
                self.slots[slot].state, self.slots[slot].is_used = READY, True
        if not self.config.changes:
            return
        self._show_candidates()
        self._make_room(4 * len(self.slots) + 16 + len(self._scheduled_failures()))
        for number in self.sizing:
            self._plan_look(number, 0)
        for slot in range(len(self.slots)):
            self._plan_failure(slot, 0)
        for place, failure in enumerate(self._scheduled_failures()):
            self._plan(failure, FAILED, -1 - place)

    def ended(self, left_us: Int64s, end_us: int) -> Infrastructure:
        """Return the lives of all instances; ``left_us``: when each request left."""
        for slot, each in enumerate(self.slots):
            if each.state == DRAINING:
                self._end_drain(slot, left_us)
        for nodes in self.nodes.values():
            nodes.remove_idle(end_us)
        return Infrastructure(
            lives=tuple(self.lives),
            nodes=tuple(node for nodes in self.nodes.values() for node in nodes.nodes),
            changes=tuple(self.changes),
            end_us=end_us,
        )

    # -- events ---------------------------------------------------------------------------------------------

    def act(self, world: World, states: list[State], *, rank: int, subject: int, time_us: int) -> World:
        """Do what an event asks for; return the world, which may have been given more room."""
        self.world, self.states = world, states
        self._make_room(4 * len(self.slots) + 64)
        self.world.loop[0].num_idle_plans -= 1
        self._note_progress()
        self._notice_drained()
        if rank == SCALING:
            self._scale(subject // 2, subject % 2, time_us)
        elif rank == BECAME_READY:
            self._become_ready(*self._slot_of(subject), time_us)
        elif rank == FAILED:
            if self._goes_on(time_us):
                self._fail(subject, time_us)
        else:
            slot, is_valid = self._slot_of(subject)
            if is_valid:
                self._stop_all(slot, time_us)
        self._place_waiting(time_us)
        return self.world

    def _scale(self, pool: int, kind: int, time_us: int) -> None:
        """Check a pool's load, or carry out a decision about it."""
        sizing = self.sizing[pool]
        if kind == ACT:
            self._resize(pool, self.orders[pool].pop(0), time_us)
            return
        if not self._goes_on(time_us):
            return
        ready = [slot for slot in self._slots_of(pool) if self.slots[slot].state == READY]
        load = load_of_pool(self.world, ready, num_coming=self._num_meant(pool) - len(ready))
        size = sizing.size(load, time_us)
        before = self._num_meant(pool)
        is_changed = size != (self.orders[pool][-1] if self.orders[pool] else before)
        if is_changed and sizing.scaler.actuation_us == 0:
            self._resize(pool, size, time_us)
        elif is_changed:
            self.orders[pool].append(size)
            self._plan(time_us + sizing.scaler.actuation_us, SCALING, 2 * pool + ACT)
        self._plan_look(pool, time_us)

    def _resize(self, pool: int, size: int, time_us: int) -> None:
        """Order instances, or remove some: those that are coming first, then those with the fewest requests."""
        before = self._num_meant(pool)
        if size > before:
            off = [slot for slot in self._slots_of(pool) if self.slots[slot].state == OFF]
            for slot in off[: size - before]:
                self._place(slot, self._new_life(slot, time_us), time_us)
        elif size < before:
            for slot in self._to_go(pool, before - size):
                self._drain(slot, time_us)
            self._show_candidates()
        after = self._num_meant(pool)
        if after != before:
            self.changes.append(SizeChange(time_us=time_us, pool=pool, before=before, after=after))

    def _to_go(self, pool: int, num: int) -> list[int]:
        """Return which instances to remove."""
        in_flight = self.world.fleet.instances["num_in_flight"]
        meant = [slot for slot in self._slots_of(pool) if self.slots[slot].state in (COMING, DOWN, READY)]
        return sorted(meant, key=lambda slot: (self.slots[slot].state == READY, in_flight[slot], -slot))[:num]

    # -- one instance ---------------------------------------------------------------------------------------

    def _new_life(self, slot: int, time_us: int) -> Life:
        """Return a new life of an instance that is off."""
        pool = self.pool_of[slot]
        life = Life(
            instance=slot,
            pool=pool,
            num_gpus=self.config.pools[pool].gpus_per_instance,
            ordered_us=time_us,
        )
        self.lives.append(life)
        self._turn(slot, COMING)
        self.slots[slot].life = life
        return life

    def _place(self, slot: int, life: Life, time_us: int, *, is_there: bool = False) -> None:
        """Give an instance its GPUs if there are any, and plan when it is ready."""
        pool = self.config.pools[self.pool_of[slot]]
        placed_us = time_us
        if pool.node_pool is not None:
            node = self.nodes[pool.node_pool].place(life.num_gpus, time_us, is_there=is_there)
            if node is None:
                return
            life.node, placed_us = node, max(time_us, node.ready_us)
        life.placed_us = placed_us
        if not is_there:
            self._plan_for(slot, placed_us + pool.startup.total_us, BECAME_READY)

    def _place_waiting(self, time_us: int) -> None:
        """Give GPUs to the instances that wait for some."""
        for slot, each in enumerate(self.slots):
            if each.state == COMING and each.life is not None and each.life.placed_us is None:
                self._place(slot, each.life, time_us)

    def _become_ready(self, slot: int, is_valid: bool, time_us: int) -> None:
        """Open an instance for requests; if it was open before, its caches are emptied and the routers forget them."""
        each = self.slots[slot]
        if not is_valid or each.life is None:
            return
        if each.state == DOWN:
            each.life.downs[-1] = (each.life.downs[-1][0], time_us)
        else:
            each.life.ready_us = time_us
        if each.is_used:
            begin_anew(self.states[slot], self.fresh[self.pool_of[slot]])
            forget(self.table, slot)
        each.is_used = True
        self._turn(slot, READY)
        self._show_candidates()
        self._plan_failure(slot, time_us)
        let_dispatch(self.table, time_us)

    def _drain(self, slot: int, time_us: int) -> None:
        """Close an instance for requests; it stops when it has none left."""
        each, scaler = self.slots[slot], self.config.pools[self.pool_of[slot]].autoscaler
        assert each.life is not None  # noqa: S101 - it is there
        assert scaler is not None  # noqa: S101 - only an autoscaler removes one
        each.life.drained_us = time_us
        if each.state != READY:
            self._turn(slot, OFF)
            self._give_back(each.life, time_us)
            return
        self._turn(slot, DRAINING)
        self._show_candidates()
        if scaler.drain == "requeue":
            self._hand_back_queued(slot, time_us)
        if scaler.drain_timeout_us:
            self._plan_for(slot, time_us + scaler.drain_timeout_us, DRAIN_ENDED)
        self._notice_drained()

    def _hand_back_queued(self, slot: int, time_us: int) -> None:
        """Send requests that an instance has not begun back to the router, with their clients' deadlines."""
        rows = requests_on(self.world, slot)
        queued = rows[self.world.rows["scheduled_us"][rows] == NEVER]
        self._make_room(4 * len(queued) + 64)
        state, queues = self.states[slot], self.states[slot].engine[0].queues
        if len(state.deadlines):
            first, end = int(queues.num_deadlines_taken), int(queues.num_deadlines)
            kept = state.deadlines[first:end][~np.isin(state.deadlines[first:end], queued)]
            state.deadlines[first : first + len(kept)] = kept
            queues.num_deadlines = first + len(kept)
        for request in queued:
            hand_back(self.table, int(request), time_us)

    def _stop_all(self, slot: int, time_us: int) -> None:
        """End a draining instance's remaining requests; those that finish with the step in progress do so."""
        rows = requests_on(self.world, slot)
        self._make_room(4 * len(rows) + 64)
        for request in rows:
            stop(self.table, int(request), time_us)
        self._notice_drained()

    def _notice_drained(self) -> None:
        """Stop draining instances that have become empty."""
        in_flight = self.world.fleet.instances["num_in_flight"]
        for slot, each in enumerate(self.slots):
            if each.state == DRAINING and in_flight[slot] == 0 and self._has_all_blocks(slot):
                self._end_drain(slot, self.world.journeys["left_us"])

    def _has_all_blocks(self, slot: int) -> bool:
        state = self.states[slot]
        return bool(state.engine[0].queues.num_free_blocks == len(state.blocks) - 1)

    def _end_drain(self, slot: int, left_us: Int64s) -> None:
        """Switch off a draining instance as of the time when its last request left, or its last block was read."""
        life = self.slots[slot].life
        assert life is not None  # noqa: S101 - it drains
        assert life.drained_us is not None  # noqa: S101 - likewise
        self._turn(slot, OFF)
        self._give_back(life, max(life.drained_us, gone_us(self.world, slot, left_us)))

    def _give_back(self, life: Life, time_us: int) -> None:
        """Free an instance's GPUs."""
        life.stopped_us = time_us
        name = self.config.pools[life.pool].node_pool
        if life.node is not None and name is not None:
            self.nodes[name].release(life.node, life.num_gpus, time_us)

    # -- failures -------------------------------------------------------------------------------------------

    def _fail(self, subject: int, time_us: int) -> None:
        """Fail an instance, by chance or by the schedule, if it is up."""
        failures = self.config.failures
        assert failures is not None  # noqa: S101 - it was planned
        if subject < 0:
            failure = failures.schedule[-1 - subject]
            slot, is_valid, down_us = failure.instance, True, failure.down_us
        else:
            slot, is_valid = self._slot_of(subject)
            number = self.slots[slot].num_failures - 1
            down_us = repair_us(self.config.seed, slot, number, mean_us=failures.mttr_us)
        each = self.slots[slot]
        if not is_valid or each.state not in (READY, DRAINING) or each.life is None:
            return
        self._lose_all(slot, time_us)
        each.is_used = True
        if each.state == DRAINING:
            self._turn(slot, OFF)
            self._give_back(each.life, time_us)
            return
        each.life.downs.append((time_us, None))
        self._turn(slot, DOWN)
        self._show_candidates()
        ended_us = int(self.states[slot].engine[0].clock.now_us)
        startup_us = self.config.pools[self.pool_of[slot]].startup.total_us
        self._plan_for(slot, max(time_us + down_us + startup_us, ended_us), BECAME_READY)

    def _lose_all(self, slot: int, time_us: int) -> None:
        """Remove everything from an instance; the step in progress gives no result."""
        if self.config.moves_kv:
            take_in_transfers(self.table, time_us)
        rows = requests_lost_with(self.world, slot)
        turn_back(self.world, rows, time_us)
        self._make_room(8 * len(rows) + 64)
        for request in rows:
            lose(self.table, int(request), time_us)
        if self.config.moves_kv:
            self._cut_off_transfers(slot, time_us)
        self.states[slot].engine[0].log_fill.num_completions = 0
        run = run_of(self.states[slot])
        while run(self.world.engines, slot, FOREVER, False) == NEEDS_ROOM:
            self.states[slot] = with_more_room(self.states[slot])
            point_to(self.world.engines, slot, self.states[slot])
        self.states[slot].engine[0].log_fill.num_completions = 0
        for request in holders_on(self.world, self.states[slot], slot) if self.config.moves_kv else ():
            release_blocks(self.table, slot, request)
        self.world.stepping_us[slot] = NEVER

    def _cut_off_transfers(self, slot: int, time_us: int) -> None:
        """Cut off an instance's transfers whose requests had left before: their blocks were kept."""
        flows = self.world.links.flows
        has_end_here = (flows["sender"] == slot) | (flows["receiver"] == slot)
        rows = np.flatnonzero(has_end_here & (flows["ended_us"] == NEVER))
        self._make_room(4 * len(rows) + 64)
        for request in rows:
            cut_off_transfer(self.table, int(request), time_us)

    def _plan_failure(self, slot: int, time_us: int) -> None:
        """Plan an instance's next failure by chance."""
        failures, each = self.config.failures, self.slots[slot]
        if failures is None or failures.mtbf_us == 0 or each.state != READY:
            return
        after_us = uptime_us(self.config.seed, slot, each.num_failures, mean_us=failures.mtbf_us)
        each.num_failures += 1
        self._plan(time_us + after_us, FAILED, self._subject(slot))

    def _scheduled_failures(self) -> list[int]:
        """Return the times of the failures that are known in advance."""
        return [] if self.config.failures is None else [each.at_us for each in self.config.failures.schedule]

    # -- the present state ----------------------------------------------------------------------------------

    def _slots_of(self, pool: int) -> list[int]:
        return [slot for slot, of in enumerate(self.pool_of) if of == pool]

    def _num_meant(self, pool: int) -> int:
        """Return how many instances a pool has, including those that are coming and those that will be up again."""
        return sum(self.slots[slot].state in (COMING, READY, DOWN) for slot in self._slots_of(pool))

    def _goes_on(self, time_us: int) -> bool:
        """Return whether enough work is left to go on with checks of the load and with failures.

        A step in progress is work, also the last one, and so is an answer on its way to its client. An event planned
        for a request that has left is not.
        """
        world = self.world
        if world.loop[0].next_arrival < len(world.arrivals) or has_work(self.table):
            return True
        if has_events(world) or has_unheard(world, self.states, time_us):
            return True
        if world.queue.counts[0].num_queued == 0:
            return False
        is_coming = any(each.state in (COMING, DOWN) for each in self.slots)
        patience = sum(sizing.patience for sizing in self.sizing.values())
        return self.num_fruitless < (MOST_FRUITLESS if is_coming else patience)

    def _note_progress(self) -> None:
        """Count the events in a row that found no change since the one before."""
        world = self.world
        seen = (
            int(world.loop[0].next_arrival),
            int(world.queue.counts[0].num_queued),
            int(world.fleet.instances["num_in_flight"].sum()),
        )
        self.num_fruitless = self.num_fruitless + 1 if seen == self.last_seen else 0
        self.last_seen = seen

    def _show_candidates(self) -> None:
        """Make the routers choose among the instances that are ready."""
        instances = self.world.fleet.instances
        instances["is_candidate"] = [int(each.state == READY) for each in self.slots]
        for fleet, wants_prefill in ((self.world.fleet, False), (self.world.prefill_fleet, True)):
            set_order(
                fleet,
                [
                    slot
                    for slot, each in enumerate(self.slots)
                    if each.state == READY and (self.world.roles[slot] == PREFILL) == wants_prefill
                ],
            )

    def _turn(self, slot: int, state: int) -> None:
        """Change an instance's phase; events planned for it are void."""
        self.slots[slot].state = state
        self.slots[slot].num_changes += 1

    # -- planning -------------------------------------------------------------------------------------------

    def _subject(self, slot: int) -> int:
        """Return an event's subject for an instance in its present phase."""
        return self.slots[slot].num_changes * len(self.slots) + slot

    def _slot_of(self, subject: int) -> tuple[int, bool]:
        """Return an event's instance, and whether its phase is the one for which the event was planned."""
        slot = subject % len(self.slots)
        return slot, self._subject(slot) == subject

    def _plan_for(self, slot: int, time_us: int, rank: int) -> None:
        self._plan(time_us, rank, self._subject(slot))

    def _plan(self, time_us: int, rank: int, subject: int) -> None:
        """Plan an event that does not by itself keep the run going."""
        self.world.loop[0].num_idle_plans += 1
        plan_event(self.world.events, time_us, rank, subject, subject)

    def _plan_look(self, pool: int, time_us: int) -> None:
        """Plan the next check of a pool, or the next entry of its schedule."""
        scaler = self.sizing[pool].scaler
        at_us = (
            next_change_us(scaler, time_us) if scaler.policy == "schedule" else time_us + scaler.interval_us
        )
        if at_us is not None:
            self._plan(at_us, SCALING, 2 * pool + LOOK)

    def _make_room(self, num_events: int) -> None:
        """Make room for ``num_events`` further events."""
        events = self.world.events
        need = int(events.counts[0].num_planned) + num_events
        if need > len(events.heap):
            self.world = self.world._replace(events=with_room_for_events(events, 2 * need))
            point_to(self.table, 0, self.world)
