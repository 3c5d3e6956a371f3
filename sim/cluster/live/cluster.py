"""A cluster in real time: requests come while it runs, and every answer is handed out when its time has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from sim.cluster.arrays import NOWHERE, grown
from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.events import EventRank, plan_event, with_room_for_events
from sim.cluster.exits import Exit
from sim.cluster.gateway.admission import leave
from sim.cluster.gateway.queue import withdraw_request
from sim.cluster.live.due_tokens import Answers
from sim.cluster.live.empty_tables import empty_work, with_room_for_keys
from sim.cluster.live.instance_states import INSTANCE_STATES
from sim.cluster.live.live_instances import LiveOperations
from sim.cluster.live.rows import Rows
from sim.cluster.live.writing import ANYBODY, RequestOrigin, Writer
from sim.cluster.run.beginning.prepare import new_world
from sim.cluster.run.changes.lost_requests import forget, hand_back, let_dispatch, lose, stop
from sim.cluster.run.driving import Driver
from sim.cluster.run.world import NEVER
from sim.cluster.slo_classes import STANDARD
from sim.config import InvalidConfig
from sim.engine.initial_state import row_of_content
from sim.engine.state import columns
from sim.jit.references import point_to, table_of
from sim.records.run_results import View, outcomes_of, view_of
from sim.requests import Outcomes, Requests

FIRST_ROWS = 1024
LEAST_ROWS = 8
FIRST_CACHE_ROWS = 4096
"""Contents that a snapshot of the prefix caches looks at; it grows with the numbers that are handed in."""

ARRIVAL, ADMISSION, ROUTING = int(EventRank.ARRIVAL), int(EventRank.ADMISSION), int(EventRank.ROUTING)

BEFORE_ALL = -1
"""The rank of an event without a handler: it stops the loop at the time up to which it may run."""

OF_PREFILL = ("queued_us", "taken_in_us", "scheduled_us", "num_cached_tokens")
"""The fields of an outcome that come from the prefill instance, if there is one."""


class LiveCluster:
    """The cluster of ``simulate_cluster``, one loop and one router, for requests that are not known in advance.

    Requests get numbers from 0. All times are µs of a clock that the caller reads and that must not go back. Steps that
    start by now have been decided, so a request arrives in the microsecond after it; no decision sees the future.
    ``num_keys``: hash ids are below it. ``num_sessions``, ``tenants``, ``priorities``: of requests; see ``submit``.
    ``num_rows``: for how many requests there is room at first. Raises InvalidConfig on clients that retry and on ranks
    in lockstep, which can only be simulated with whole traces.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        num_keys: int,
        num_sessions: int = 0,
        tenants: Sequence[str] = (),
        priorities: Sequence[int] = (STANDARD,),
        num_rows: int = FIRST_ROWS,
    ) -> None:
        check_can_be_live(config)
        work = empty_work(
            config,
            num_rows=max(num_rows, len(set(priorities)), LEAST_ROWS),
            num_keys=num_keys,
            num_sessions=num_sessions,
            tenants=tenants,
            priorities=sorted(set(priorities)),
        )
        world, states = new_world(work, config, record="tokens")
        world.loop["has_clients"] = 0
        self._pools = [config.pools[int(pool)] for pool in world.pool_of]
        for number, pool in enumerate(self._pools):
            states[number] = with_room_for_keys(states[number], pool, num_keys=num_keys)
            point_to(world.engines, number, states[number])
        if len(world.cached):
            world = world._replace(cached=grown(world.cached[:0], min(num_keys, FIRST_CACHE_ROWS)))
        self._operations = LiveOperations(world, states, config, table_of([world]))
        self._driver = Driver(self._operations, states, config)
        self._config, self._num_keys = config, num_keys
        self._rows = Rows(self._driver)
        self._writer = Writer(self._driver, config)
        self._answers = Answers(self._driver, self._rows, config)
        self._row_of: dict[int, int] = {}
        self._num_submitted = 0
        self._until_us = NEVER
        self._operations.begin()

    # -- requests ---------------------------------------------------------------------------------------------

    def submit(
        self,
        now_us: int,
        *,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
        is_guided: bool = False,
        sender: RequestOrigin = ANYBODY,
    ) -> tuple[int, int]:
        """Submit a request that arrives in the microsecond after ``now_us``; return its number and that time.

        ``sender``: its numbers are below those that the cluster was made for, its priority is one of ``priorities``.
        """
        self.advance(now_us)
        arrival_us = max(now_us + 1, self._until_us)
        ids = np.asarray(hash_ids, np.int64)
        row = self._rows.give(ids)
        start = int(self._driver.world.requests.hash_starts[row])
        request = Requests(
            arrival_us=np.array([arrival_us]),
            prompt_tokens=np.array([prompt_tokens]),
            output_tokens=np.array([output_tokens]),
            priority=np.array([priority]),
            hash_offsets=np.array([start, start + len(ids)]),
            hash_ids=ids,
            is_guided=np.array([is_guided]),
        )
        self._writer.write(row, request, sender)
        if len(ids):
            self._know_contents(int(ids.max()))
        number = self._num_submitted
        self._num_submitted += 1
        self._operations.plan_snapshot(arrival_us)
        self._plan(arrival_us, ARRIVAL, row)
        self._row_of[number] = row
        self._answers.expect(row, number)
        return number, arrival_us

    def abort(self, now_us: int, request: int) -> None:
        """Drop a request, wherever it is, and forget it."""
        self.advance(now_us)
        row = self._row_of.get(request)
        if row is None:
            return
        self._answers.drop(row)
        world, table, at_us = self._driver.world, self._operations.table, self._until_us
        journey = columns(world.journeys)[row]
        if journey["exit"] == Exit.UNDER_WAY:
            self._make_room_for_events()
            world = self._driver.world
            planned = self._unplan(row)
            if planned is not None or (len(world.queue.entries) and withdraw_request(world.queue, row)):
                if journey["admitted_us"] != NEVER:
                    leave(world.admission, world.requests, row)
                if planned == ROUTING:
                    world.loop["num_in_transit"] -= world.loop["has_queue"]
                columns(world.journeys)["exit"][row] = Exit.LOST
                let_dispatch(table, at_us)
            else:
                stop(table, row, at_us)
        self.forget(request)

    def forget(self, request: int) -> None:
        """Forget a request that the caller no longer asks about."""
        row = self._row_of.pop(request, None)
        if row is not None:
            self._answers.drop(row)
            self._rows.is_known[row] = False

    def load_removals(self) -> None:
        """Load the code that drops requests before their end; this cluster must not be used afterwards."""
        latency, changes = self._config.latency, self._config.changes and not self._config.moves_kv
        table = self._operations.table
        for remove in (stop, lose, hand_back) if changes else (stop,):
            number, arrival_us = self.submit(max(self._until_us, 0), prompt_tokens=1, output_tokens=2)
            self.advance(arrival_us + latency.admission_us + latency.routing_us)
            self._make_room_for_events()
            if self.instance_of(number) is not None and number not in dict(self._answers.exits()):
                remove(table, self._row_of[number], self._until_us)
        world = self._driver.world
        if len(world.queue.entries):
            withdraw_request(world.queue, self._row_of[number])
        leave(world.admission, world.requests, self._row_of[number])
        if changes:
            forget(table, 0)

    def forget_session(self, session: int) -> None:
        """Free a session's number for another session: the routers forget where it was sent."""
        for router in (self._driver.world.router, self._driver.world.prefill_router):
            if session < len(router.session_instance):
                router.session_instance[session] = NOWHERE

    # -- time -------------------------------------------------------------------------------------------------

    def advance(self, now_us: int) -> None:
        """Process everything that happens by ``now_us``, steps that start then included."""
        until_us = now_us + 1
        if until_us <= self._until_us:
            return
        self._until_us = until_us
        next_us = self._next_event_us()
        if next_us is None or next_us >= until_us:
            return
        self._make_room_for_events()
        loop = self._driver.world.loop
        plan_event(self._driver.world.events, until_us, BEFORE_ALL, 0, 0)
        loop["num_idle_plans"] += 1
        self._driver.run(until_us)
        loop["num_idle_plans"] -= 1
        loop["has_hand"] = 0
        self._answers.hear()

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""
        self.advance(now_us)
        return self._answers.tokens(now_us)

    def exits(self) -> list[tuple[int, Exit]]:
        """Return the requests that left without all their tokens, each once; not those dropped by ``abort``."""
        return self._answers.exits()

    def computed_prompts(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, instance) of the prompts that prefill instances have computed by now, each once."""
        return self._answers.computed_prompts(now_us)

    def next_time_us(self) -> int | None:
        """Return the time up to which to advance next, None if nothing happens before another request."""
        times = (self._answers.next_time_us(), self._next_event_us())
        return min((time_us for time_us in times if time_us is not None), default=None)

    # -- reading its state ------------------------------------------------------------------------------------

    def instance_of(self, request: int) -> int | None:
        """Return the instance that answers a request; None before it has one, and for a forgotten request."""
        row = self._row_of.get(request)
        instance = NOWHERE if row is None else int(columns(self._driver.world.journeys)["instance"][row])
        return None if instance == NOWHERE else instance

    def outcome(self, request: int) -> Outcomes:
        """Return a request's outcome so far, one row; it starts at the prefill instance, if there is one."""
        row = self._row_of[request]
        journey = columns(self._driver.world.journeys)[row]
        found = self._outcome_on(max(int(journey["instance"]), 0), row)
        if journey["prefill_instance"] == NEVER:
            return found
        began = self._outcome_on(int(journey["prefill_instance"]), row)
        names = [field.name for field in fields(Outcomes)]
        return Outcomes(**{name: getattr(began if name in OF_PREFILL else found, name) for name in names})

    def _outcome_on(self, instance: int, row: int) -> Outcomes:
        return outcomes_of(self._driver.states[instance], self._pools[instance].latency, slice(row, row + 1))

    def views(self, now_us: int) -> list[View]:
        """Return each instance's engine now, also of instances that are off."""
        self.advance(now_us)
        return [view_of(state) for state in self._driver.states]

    @property
    def states(self) -> list[str]:
        """Each instance's state, one of ``INSTANCE_STATES``."""
        return [INSTANCE_STATES[slot.state] for slot in self._operations.slots]

    @property
    def num_rows(self) -> int:
        """For how many requests there is room now."""
        return len(self._rows)

    def is_cached(self, hash_id: int) -> bool:
        """Return whether an instance has this content in its prefix cache, or in host memory."""
        return any(
            columns(state.hashes)["oldest"][row_of_content(state, hash_id)] != 0
            or (len(state.cpu_slot_of_key) > 0 and state.cpu_slot_of_key[hash_id] != 0)
            for state in self._driver.states
        )

    # -- writing and planning ---------------------------------------------------------------------------------

    def _know_contents(self, highest: int) -> None:
        """Widen snapshots of the prefix caches to contents up to a number."""
        cached = self._driver.world.cached
        if 0 < len(cached) <= highest:
            more = grown(cached, min(self._num_keys, 2 * highest + 1))
            self._driver.replace(self._driver.world._replace(cached=more))

    def _next_event_us(self) -> int | None:
        """Return when something next happens."""
        events = self._driver.world.events
        if columns(events.counts)["num_planned"][0] == 0:
            return None
        return int(columns(events.heap)["time_us"][0])

    def _plan(self, time_us: int, rank: int, row: int) -> None:
        """Plan an event of a request."""
        self._make_room_for_events()
        plan_event(self._driver.world.events, time_us, rank, row, row)

    def _make_room_for_events(self) -> None:
        """Make room for the few events that are planned from here."""
        events = self._driver.world.events
        if int(columns(events.counts)["num_planned"][0]) + ROOM > len(events.heap):
            more = with_room_for_events(events, 2 * len(events.heap) + ROOM)
            self._driver.replace(self._driver.world._replace(events=more))

    def _unplan(self, row: int) -> int | None:
        """Remove a request's next event in the gateway; return its rank, None without one."""
        events = self._driver.world.events
        num = int(columns(events.counts)["num_planned"][0])
        planned = columns(events.heap)[:num]
        brings = np.isin(planned["rank"], (ARRIVAL, ADMISSION, ROUTING)) & (planned["subject"] == row)
        places = np.flatnonzero(brings)
        if len(places) == 0:
            return None
        rank = int(planned["rank"][places[0]])
        kept = planned[~brings]
        order = np.lexsort((kept["sequence"], kept["rank"], kept["time_us"]))
        planned[: len(kept)] = kept[order]  # in order, which is a heap
        columns(events.counts)["num_planned"] = len(kept)
        return rank


ROOM = 64
"""Events that are planned between two runs of the loop, at most."""


def check_can_be_live(config: ClusterConfig) -> None:
    """Raise InvalidConfig on what only a whole trace can be simulated with."""
    if config.retries is not None:
        raise InvalidConfig(
            "retries: got them for clients that are real, expected none: a client that wants to tries again itself"
        )
    if any(pool.engine.has_shared_store for pool in config.pools):
        raise InvalidConfig(
            "kv_offloading: got shared for clients that are real, expected native: a store is only simulated with "
            "contents that are known beforehand"
        )
    if config.lockstep:
        raise InvalidConfig(
            "lockstep: got true for clients that are real, expected false: ranks in step are only simulated with "
            "requests whose times are known beforehand"
        )
