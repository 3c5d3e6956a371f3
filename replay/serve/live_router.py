"""A cluster's admission and router deciding request by request, for requests that are not known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet, RequestTable, new_fleet
from sim.cluster.gateway.admission import TenantBudget, admit, leave, new_admission
from sim.cluster.routing.decide import NEEDS_ROOM, decide, finish, refresh, settle, start_decoding
from sim.cluster.routing.own import FleetView, choose_by_own
from sim.cluster.routing.policies import KvCost, OwnPolicy, RoundRobin
from sim.cluster.routing.state import Router, new_router, with_room_for
from sim.cluster.slo import STANDARD, slo_priority

if TYPE_CHECKING:
    from replay.serve.realtime import Client, RealtimeEngine
    from sim.cluster.config import ClusterConfig

FIRST_ROWS = 1024
NUM_TENANTS = 1024
"""Tenants that take turns in a gateway's queue; those that come later take theirs with the requests of no tenant."""

NUM_SESSIONS = 1 << 16
"""Sessions that are told apart; beyond, the one not seen for longest gives its place to a new one."""


class LiveRouter:
    """The compiled router of ``sim.cluster.routing``, fed as requests come.

    ``num_keys``: hash ids are below it; what a router keeps per block has so many rows. A request costs 64 bytes for
    good; its blocks' ids are let go some time after it has finished.
    """

    def __init__(self, cluster: ClusterConfig, *, num_keys: int) -> None:
        self._cluster = cluster
        self._own = cluster.routing if isinstance(cluster.routing, OwnPolicy) else None
        self._fleet: Fleet = new_fleet(cluster.num_instances, block_size=cluster.pools[0].engine.block_size)
        self._view = FleetView(self._fleet)
        self._table = _new_table(FIRST_ROWS)
        shape = self._table._replace(
            hash_ids=np.array([num_keys - 1]), session=np.array([NUM_SESSIONS - 1])
        )  # says how many blocks and sessions there can be
        policy = RoundRobin() if self._own else cluster.routing
        self._router: Router = new_router(
            policy, self._fleet, shape, seed=cluster.seed, compatibility=cluster.compatibility
        )
        budgets = cluster.admission.budgets if isinstance(cluster.admission, TenantBudget) else {}
        self._tenants = {name: number for number, name in enumerate(budgets)}
        flow = cluster.flow_control
        self._knows_tenants = flow is not None and flow.fairness == "round-robin"
        self.num_tenants = len(budgets) + (NUM_TENANTS if self._knows_tenants else 0)
        self._targets_us = {} if flow is None else flow.slo_targets_us
        self._admission = new_admission(
            cluster.admission,
            num_seats=sum(pool.instances * pool.engine.max_num_seqs for pool in cluster.pools),
            tenants=[*self._tenants, *([""] * (self.num_tenants - len(budgets)))],
            compatibility=cluster.compatibility,
        )
        self._is_stale = cluster.snapshot_interval_us.cache > 0
        self._asks_caches = isinstance(cluster.routing, (OwnPolicy, KvCost)) or bool(
            self._router.settings[0].asks_caches
        )
        self._cached = [np.zeros(0, bool)] * cluster.num_instances
        self._sessions: dict[str, int] = {}
        self._under_way: set[int] = set()
        self._has_first: set[int] = set()

    def admits(
        self, number: int, now_us: int, *, prompt_tokens: int, hash_ids: Sequence[int], client: Client
    ) -> bool:
        """Return whether request ``number`` (0, 1, 2 …) is taken."""
        self._add(number, prompt_tokens=prompt_tokens, hash_ids=hash_ids, client=client)
        is_admitted = bool(admit(self._admission, self._fleet, self._table, number, now_us))
        if is_admitted:
            self._under_way.add(number)
        return is_admitted

    def choose(
        self,
        number: int,
        now_us: int,
        *,
        prompt_tokens: int,
        hash_ids: Sequence[int],
        engines: Sequence[RealtimeEngine],
    ) -> int:
        """Return the instance that gets an admitted request, and note that it does."""
        if self._asks_caches:
            leading = hash_ids[: prompt_tokens // self._cluster.pools[0].engine.block_size]
            for instance, engine in enumerate(engines):
                self._fleet.instances[instance].num_cached_blocks = self._num_cached(
                    instance, engine, leading
                )
        if self._own is not None:
            chosen = choose_by_own(
                self._own, self._view, self._table, fleet=self._fleet, request=number, time_us=now_us
            )
        else:
            chosen = decide(self._router, self._fleet, self._table, number, now_us)
            while chosen == NEEDS_ROOM:
                self._router = with_room_for(self._router, len(hash_ids))
                chosen = decide(self._router, self._fleet, self._table, number, now_us)
        settle(self._router, self._fleet, self._table, number, chosen)
        return int(chosen)

    def first_token(self, number: int, instance: int) -> None:
        """Note that a request has its first token; later calls change nothing."""
        if number not in self._has_first:
            self._has_first.add(number)
            start_decoding(self._router, self._table, number, instance)

    def finish(self, number: int, instance: int) -> None:
        """Note that a request has left its instance."""
        self.first_token(number, instance)
        finish(self._router, self._fleet, self._table, number, instance)
        self.leave(number)
        self._has_first.discard(number)

    def leave(self, number: int) -> None:
        """Note that an admitted request is gone, whether or not it got to an instance."""
        leave(self._admission, self._table, number)
        self._under_way.discard(number)

    @property
    def table(self) -> RequestTable:
        """The requests so far."""
        return self._table

    @property
    def fleet(self) -> Fleet:
        """The instances as the gateway sees them."""
        return self._fleet

    def see(self, engines: Sequence[RealtimeEngine], time_us: int) -> None:
        """Take a snapshot of every engine at ``time_us``, up to which their steps were taken."""
        for instance, engine in enumerate(engines):
            seen = self._fleet.instances[instance]
            seen.num_waiting, seen.num_running, seen.kv_usage = engine.reported(time_us)
        if self._asks_caches and self._is_stale:
            self._cached = [engine.cached_contents() for engine in engines]
        refresh(self._router, self._fleet)

    def _num_cached(self, instance: int, engine: RealtimeEngine, leading: Sequence[int]) -> int:
        """Return how many leading blocks of a prompt an instance has cached, as far as its last report tells."""
        if not self._is_stale:
            return engine.num_cached_blocks(leading)
        known = self._cached[instance]
        for place, number in enumerate(leading):
            if number >= len(known) or not known[number]:
                return place
        return len(leading)

    # -- the table of requests --------------------------------------------------------------------------------

    def _add(self, number: int, *, prompt_tokens: int, hash_ids: Sequence[int], client: Client) -> None:
        """Append a request's row."""
        if number + 2 > len(self._table.hash_offsets):
            self._table = _with_rows(self._table, 2 * len(self._table.prompt_tokens))
        first = int(self._table.hash_offsets[number])
        if first + len(hash_ids) > len(self._table.hash_ids):
            self._table = self._compacted(number, len(hash_ids))
            first = int(self._table.hash_offsets[number])
        table, end = self._table, first + len(hash_ids)
        table.hash_ids[first:end] = hash_ids
        table.hash_offsets[number + 1] = end
        table.prompt_tokens[number] = prompt_tokens
        table.session[number] = self._number_of(client.session) if client.session else NOWHERE
        if self._knows_tenants and client.tenant and len(self._tenants) < self.num_tenants:
            self._tenants.setdefault(client.tenant, len(self._tenants))
        table.tenant[number] = self._tenants.get(client.tenant, NOWHERE)
        table.slo_target_us[number] = self._targets_us.get(client.slo_class, NOWHERE)
        table.slo_priority[number] = slo_priority(client.slo_class or None, self._cluster.slo_priorities)

    def _compacted(self, number: int, num_more: int) -> RequestTable:
        """Return the table without the blocks of finished requests, with room for as many again."""
        table = self._table
        lengths = np.zeros(number, np.int64)
        kept = np.array(sorted(self._under_way), np.int64)
        lengths[kept] = table.hash_offsets[kept + 1] - table.hash_offsets[kept]
        parts = [table.hash_ids[table.hash_offsets[row] : table.hash_offsets[row + 1]] for row in kept]
        ids = np.concatenate([np.zeros(0, np.int64), *parts])
        offsets = table.hash_offsets.copy()
        offsets[1 : number + 1] = np.cumsum(lengths)
        room = np.zeros(max(len(ids) + 2 * num_more, len(table.hash_ids)), np.int64)
        return table._replace(hash_ids=np.concatenate([ids, room]), hash_offsets=offsets)

    def _number_of(self, session: str) -> int:
        """Return a session's number; where all are taken, that of the session not seen for longest."""
        number = self._sessions.pop(session, None)
        if number is None and len(self._sessions) < NUM_SESSIONS:
            number = len(self._sessions)
        elif number is None:
            number = self._sessions.pop(next(iter(self._sessions)))
            if len(self._router.session_instance):
                self._router.session_instance[number] = NOWHERE
        self._sessions[session] = number
        return number


def _new_table(num_rows: int) -> RequestTable:
    """Return an empty table with room for so many requests."""
    none = np.full(num_rows, NOWHERE, np.int64)
    return RequestTable(
        prompt_tokens=np.zeros(num_rows, np.int64),
        hash_offsets=np.zeros(num_rows + 1, np.int64),
        hash_ids=np.zeros(16 * num_rows, np.int64),
        session=none.copy(),
        tenant=none.copy(),
        adapter=none.copy(),
        slo_priority=np.full(num_rows, STANDARD, np.int64),
        slo_target_us=none.copy(),
    )


def _with_rows(table: RequestTable, num_rows: int) -> RequestTable:
    """Return the same table with room for more requests."""
    longer = _new_table(num_rows)._replace(hash_ids=table.hash_ids)
    for name in (
        "prompt_tokens",
        "hash_offsets",
        "session",
        "tenant",
        "adapter",
        "slo_priority",
        "slo_target_us",
    ):
        old = getattr(table, name)
        getattr(longer, name)[: len(old)] = old
    return longer
