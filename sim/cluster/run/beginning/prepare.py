"""A cluster before its first event: engines that share one table of requests, the gateway, the arrivals."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.cluster.arrays import num_words, records, tree_of
from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.draws import PREFILL_ROUTE
from sim.cluster.events import EventQueue, EventRank, new_event_queue, plan_event
from sim.cluster.fleet import Fleet, RequestTable, new_fleet, set_candidates
from sim.cluster.gateway.admission import Admission, new_admission
from sim.cluster.gateway.eviction import new_sheddable_in_flight
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.gateway.queue import new_queue
from sim.cluster.routing.router_state import new_router
from sim.cluster.routing.routing_policies import (
    LeastLoaded,
    OwnPolicy,
    RoundRobin,
)
from sim.cluster.run.beginning.counted_engines import might_count
from sim.cluster.run.beginning.loop_settings import is_searched, least_steps, loop_of, notes_caches
from sim.cluster.run.beginning.shared_engines import (
    can_jump,
    connected,
    deadlines_of,
    engine_states,
    shared_rows,
)
from sim.cluster.run.beginning.waiting_clients import clients_of
from sim.cluster.run.world import (
    DECISION,
    FORESEEN,
    JOURNEY,
    LOAD,
    NEVER,
    TOO_MANY,
    DecisionLog,
    World,
)
from sim.cluster.transfer.kv_links import Links, new_links
from sim.config import Record
from sim.engine.records.transfer_records import TRANSFER
from sim.engine.state import Records, State
from sim.engine.state import records as aligned_records
from sim.engine.watching.called_run import address_of_run
from sim.jit.references import table_of
from sim.requests import Int64s, Requests

ROLES = ("shared", "prefill", "decode")
"""In the order of their codes (``handoff``)."""

NO_LIMIT = 1 << 31
"""More adapters than an instance can have."""


def new_world(
    work: ClusterWork,
    config: ClusterConfig,
    *,
    record: Record = "none",
    records_decisions: bool = False,
    forced: Int64s | None = None,
    runs_engines: bool = True,
    may_count: bool = False,
) -> tuple[World, list[State]]:
    """Return a cluster at its beginning, and its engines' states, which must live as long as it does.

    ``runs_engines``: False if no request will arrive, so that no engine need be compiled. ``may_count``: True
    where ``counted_addresses`` and ``lay_rings`` follow.
    """
    table, n = work.table(), len(work.requests)
    rows, delays_us, entries = shared_rows(work.requests, config)
    transfers = new_transfers(n if config.moves_kv else 0)
    loop = loop_of(config, work, records_decisions=records_decisions)
    lays_rings = not (may_count and might_count(work, config, loop))
    states = _states_of(work, config, rows, loop, transfers, record=record, lays_rings=lays_rings)
    fleet = _fleet_of(work, config, loop)
    flow = config.flow_control or FlowControl()
    most_decisions = 2 * n if config.moves_kv else n
    world = World(
        loop=loop,
        rows=rows,
        delays_us=delays_us,
        entries=entries,
        requests=table,
        admission=_admission_of(work, config),
        queue=new_queue(flow, table if config.flow_control else empty_table(), num_tenants=len(work.tenants)),
        sheddable=new_sheddable_in_flight(n if config.flow_control else 0),
        events=first_events(loop, n, config.num_instances),
        forced=np.zeros(0, np.int64) if forced is None else forced.astype(np.int64),
        deadline_us=states[0].deadline_us,
        cached=new_cache_snapshot(loop, config.num_instances, work.requests),
        clients=clients_of(work.clients),
        log=new_decision_log(most_decisions if records_decisions else 0, config.num_instances),
        transfers=transfers,
        **_of_engines(states, config, loop),  # first: code compiled for an engine needs to know its table
        **_of_instances(states, config, record=record, runs_engines=runs_engines),
        **_of_routers(fleet, table, config),
        **_of_arrivals(work, num_originals=int(loop["num_requests"][0])),
        links=_links_of(config, n),
    )
    return world, states


def _links_of(config: ClusterConfig, num_requests: int) -> Links:
    """Return the ways between instances on which KV moves."""
    return new_links(
        config.disaggregation,
        num_requests=num_requests,
        num_instances=config.num_instances,
        block_size=config.pools[0].engine.block_size,
        is_blis=config.compatibility == "blis",
    )


def _states_of(
    work: ClusterWork,
    config: ClusterConfig,
    rows: Records,
    loop: Records,
    transfers: Records,
    *,
    record: Record,
    lays_rings: bool,
) -> list[State]:
    """Return the engines' states, with what the gateway asks of them: what it hears, KV handed on, caches seen late."""
    asks = ("is_coupled", "looks_at_all", "looks_at_two", "admission_looks")
    hears = any(loop[name][0] for name in asks) or config.changes
    states = engine_states(
        work.requests,
        rows,
        config,
        record=record,
        hears=hears,
        pauses=bool(loop["is_coupled"][0]),
        lays_rings=lays_rings,
        logs_caches=notes_caches(loop),
    )
    if config.moves_kv:
        states = connected(states, config, transfers)
    return states


def _of_engines(states: list[State], config: ClusterConfig, loop: Records) -> dict[str, Any]:
    """Return the table of engines, and what no step of each is shorter than."""
    return {
        "engines": table_of(states, even=_evenly_laid(config)),
        "least_step_us": least_steps(loop, config, states),
    }


def _evenly_laid(config: ClusterConfig) -> list[range]:
    """Return the rows of engines that lie side by side in memory: of each pool the copies (``copies_of``)."""
    if config.moves_kv:  # each has further arrays
        return []
    ends = np.cumsum([pool.num_slots for pool in config.pools]).tolist()
    return [
        range(end - max(pool.num_slots - 2, 0), end) for pool, end in zip(config.pools, ends, strict=True)
    ]


def _of_instances(
    states: list[State], config: ClusterConfig, *, record: Record, runs_engines: bool
) -> dict[str, Any]:
    """Return the arrays with a row per instance."""
    counts = [pool.num_slots for pool in config.pools]
    firsts = np.cumsum([0, *counts[:-1]]) if config.lockstep else np.full(len(counts), NEVER, np.int64)
    run_addresses = [address_of_run(state) if runs_engines else 0 for state in states]
    return {
        "coalesces": np.repeat(np.array([can_jump(pool, record) for pool in config.pools], np.int64), counts),
        "run_addresses": np.array(run_addresses, np.int64),
        "counted_addresses": np.zeros(config.num_instances, np.int64),
        "pool_of": np.repeat(np.arange(len(counts)), counts),
        "first_rank": np.repeat(firsts, counts),
        "end_rank": np.repeat(np.cumsum(counts), counts),
        "stepping_us": np.full(config.num_instances, NEVER, np.int64),
        "due_us": tree_of(np.zeros(config.num_instances, np.int64)),
        "foreseen": _foreseen(config.num_instances),
        "loads": records(config.num_instances, LOAD),
        "roles": np.array([ROLES.index(role) for role in config.role_of], np.int64),
    }


def _foreseen(num_instances: int) -> Records:
    """Return that nothing is foreseen of any instance."""
    foreseen = records(num_instances, FORESEEN)
    foreseen["num_new_tokens"] = TOO_MANY
    return foreseen


def _of_routers(fleet: Fleet, table: RequestTable, config: ClusterConfig) -> dict[str, Any]:
    """Return the instances with their routers, those that compute prompts for others apart."""
    prefill_fleet = split_fleet(fleet, config)
    policy = RoundRobin() if isinstance(config.routing, OwnPolicy) else config.routing
    return {
        "fleet": fleet,
        "router": new_router(policy, fleet, table, seed=config.seed, compatibility=config.compatibility),
        "prefill_fleet": prefill_fleet,
        "prefill_router": new_router(
            config.prefill_routing or policy,
            prefill_fleet,
            table if config.moves_kv else empty_table(),
            seed=config.seed,
            stream=PREFILL_ROUTE,
            compatibility=config.compatibility,
        ),
    }


def _of_arrivals(work: ClusterWork, *, num_originals: int) -> dict[str, Any]:
    """Return when requests come and how long their clients wait: ``num_originals``, the rest are further attempts."""
    order = np.argsort(work.requests.arrival_us, kind="stable")
    order = order[order < num_originals]
    if work.clients is not None:
        order = order[work.clients.arrives[order]]
    return {
        "arrivals": order,  # of those that arrive by themselves
        "arrivals_us": work.requests.arrival_us[order].astype(np.int64),
        "journeys": new_journeys(work.requests),
        "timeouts_us": timeouts_of(work, num_originals=num_originals),
    }


def _admission_of(work: ClusterWork, config: ClusterConfig) -> Admission:
    """Return the gateway's admission, nobody admitted."""
    num_seats = sum(pool.num_slots * pool.engine.max_num_seqs for pool in config.pools)
    return new_admission(
        config.admission, num_seats=num_seats, tenants=work.tenants, compatibility=config.compatibility
    )


def _fleet_of(work: ClusterWork, config: ClusterConfig, loop: Records) -> Fleet:
    """Return the instances, nothing running on any, with what finds one among many."""
    engine = config.pools[0].engine
    fleet = new_fleet(
        config.num_instances,
        block_size=engine.block_size if engine.prefix_match_unit is None else engine.hash_block_size,
        num_adapters=0 if work.adapter is None else int(work.adapter.max(initial=-1)) + 1,
        keeps_shelves=is_searched(config, loop),
        keeps_loads=not loop["records_decisions"][0]
        and any(isinstance(each, LeastLoaded) for each in (config.routing, config.prefill_routing)),
    )
    most = [pool.engine.max_loras or NO_LIMIT for pool in config.pools for _ in range(pool.num_slots)]
    fleet.instances["max_adapters"] = most
    return fleet


def split_fleet(fleet: Fleet, config: ClusterConfig) -> Fleet:
    """Make the instances that decode the fleet's candidates; return a fleet whose candidates are the others."""
    prefill = [number for number, role in enumerate(config.role_of) if role == "prefill"]
    set_candidates(fleet, [number for number in range(config.num_instances) if number not in set(prefill)])
    others = fleet._replace(
        **{
            name: getattr(fleet, name).copy()
            for name in ("candidates", "counts", "place_of", "loads", "shelves")
        }
    )
    set_candidates(others, prefill)
    fleet.instances["is_candidate"] = 1  # each router asks only for what it has chosen itself
    return others


def new_transfers(num_requests: int) -> Records:
    """Return the record of each request's KV, which is nowhere yet."""
    return aligned_records(num_requests, TRANSFER)


def timeouts_of(work: ClusterWork, *, num_originals: int) -> Int64s:
    """Return how long after its arrival each request's client gives up, NEVER where the deadline is a fixed time.

    No rows where all are fixed: under a cap a deadline stays as given, and a request that arrives by itself arrives as
    given.
    """
    deadline_us, n = deadlines_of(work.requests), len(work.requests)
    if len(deadline_us) == 0 or (work.clients is None and n == num_originals):
        return np.zeros(0, np.int64)
    lasts_us = np.where(deadline_us == NEVER, NEVER, deadline_us - work.requests.arrival_us)
    if work.clients is not None and (work.clients.due_us > 0).any():
        lasts_us[:num_originals] = NEVER
    return lasts_us.astype(np.int64)


def first_events(loop: Records, num_requests: int, num_instances: int) -> EventQueue:
    """Return the queue of events; where engines keep step, with the first snapshot."""
    is_coupled = bool(loop["is_coupled"][0])
    events = new_event_queue(4 * num_instances + 1024 + (num_requests if is_coupled else 0))
    sees = (
        (loop["sees_queues"][0] and loop["queue_interval_us"][0] > 0)
        or (loop["sees_kv"][0] and loop["kv_interval_us"][0] > 0)
        or (loop["sees_caches"][0] and loop["cache_interval_us"][0] > 0)
    )
    if is_coupled and sees:
        plan_event(events, 0, int(EventRank.SNAPSHOT), 0, 0)
        loop["is_snapshot_planned"] = 1
    return events


def new_journeys(requests: Requests) -> Records:
    """Return the journeys of requests that have not arrived."""
    first = records(1, JOURNEY)
    for name in (
        "arrival_us",
        "admitted_us",
        "dispatched_us",
        "routed_us",
        "left_us",
        "instance",
        "prefill_instance",
        "prefilled_us",
    ):
        first[name] = NEVER
    return first.repeat(len(requests))  # row by row: to fill column by column takes three times as long


def new_cache_snapshot(loop: Records, num_instances: int, requests: Requests) -> Int64s:
    """Return that no instance has anything cached; no rows where each is asked what it has."""
    num_keys = int(requests.hash_ids.max(initial=-1)) + 1 if notes_caches(loop) else 0
    return np.zeros((num_keys, num_words(num_instances)), np.int64)


def empty_table() -> RequestTable:
    """Return a table of no requests, for a gateway without a queue."""
    none = np.zeros(0, np.int64)
    return RequestTable(*([none] * len(RequestTable._fields)))


def new_decision_log(capacity: int, num_instances: int) -> DecisionLog:
    """Return an empty log of decisions."""
    shape = (capacity, num_instances if capacity else 0)
    return DecisionLog(
        decisions=records(capacity, DECISION),
        scores=np.zeros(shape),
        num_in_flight=np.zeros(shape, np.int32),
        num_waiting=np.zeros(shape, np.int32),
        num_running=np.zeros(shape, np.int32),
        kv_usage=np.zeros(shape, np.float32),
    )
