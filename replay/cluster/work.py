"""A trace as the work of a cluster: its requests, what routers may know of them, and when each is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.cluster.memory import check_memory
from replay.trace.client_network import at_server, client_network
from replay.trace.pacing import Pacing, paced_requests
from sim import Int64s, Requests
from sim.cluster import ClientPlan, ClusterWork, capped, closed_loop, sessions, slo_priority, trees, waves
from traces import has_tree, session_tree

if TYPE_CHECKING:
    from sim.cluster import ClusterConfig
    from traces import Trace


def cluster_work(
    trace: Trace, pacing: Pacing, cluster: ClusterConfig, *, requests: Requests | None = None
) -> ClusterWork:
    """Return a trace's requests as they reach the gateway, in its order; ``requests``: as paced, if made before.

    Sessions, tenants and adapters become dense numbers, -1 where a row has none. Raises TraceError where a row lacks a
    time or a length, ConfigError where the run would take more memory than there is.
    """
    check_memory(cluster, num_requests=len(trace))
    engine = cluster.pools[0].engine
    if requests is None:
        requests = paced_requests(
            trace,
            pacing,
            block_size=engine.hash_block_size,
            hash_lookahead=engine.num_hash_lookahead_tokens,
        )
    requests = at_server(requests, client_network(trace, pacing))
    tenant, tenants = _numbered(trace, "tenant_id")
    session, _ = _numbered(trace, "session_id")
    return ClusterWork(
        requests=requests,
        session=session,
        tenant=tenant,
        tenants=tenants,
        adapter=requests.adapter,
        slo_priority=_slo_priorities(trace, cluster),
        slo_target_us=_slo_targets(trace, cluster),
        clients=_clients(trace, requests, pacing, session=session),
    )


def _numbered(trace: Trace, column: str) -> tuple[Int64s | None, tuple[str, ...]]:
    """Return a column's texts as dense numbers in the order of their first rows, and the texts; None without any."""
    codes, names = trace.cells(column).codes()
    return (codes if names else None), tuple(names)


def _slo_priorities(trace: Trace, cluster: ClusterConfig) -> Int64s:
    """Return how much each request matters, by its service class."""
    codes, names = trace.cells("slo_class").codes()
    known = [slo_priority(name, cluster.slo_priorities) for name in names]
    of_none = slo_priority(None, cluster.slo_priorities)
    priorities: Int64s = np.array([*known, of_none], np.int64)[codes]  # code -1 is the last, of no class
    return priorities


def _slo_targets(trace: Trace, cluster: ClusterConfig) -> Int64s:
    """Return each request's target for its first token, µs: its own, else its class's at the gateway, else -1."""
    otherwise = np.full(len(trace), -1, np.int64)
    if cluster.flow_control is not None:
        codes, names = trace.cells("slo_class").codes()
        of_class = dict(cluster.flow_control.slo_targets_us)
        otherwise = np.array([*(of_class.get(name, -1) for name in names), -1], np.int64)[codes]
    own = trace.cells("slo_target_us")
    return np.where(own.is_known, own.values, otherwise)


def _clients(
    trace: Trace, requests: Requests, pacing: Pacing, *, session: Int64s | None
) -> ClientPlan | None:
    """Return which requests wait for answers; None if every request arrives at its own time."""
    if pacing.waves is not None:
        size, pause_us = pacing.waves
        return waves(np.arange(len(requests), dtype=np.int64) // size, pause_us=pause_us)
    if pacing.users is not None and session is not None:
        think_us, concurrency = trace.cells("think_time_us").filled(0), pacing.users or None
        if has_tree(trace.table):
            waiting, awaited = session_tree(trace.table).edges()
            return trees(
                session, waiting=waiting, awaited=awaited, think_us=think_us, concurrency=concurrency
            )
        rounds = trace.cells("round_index").filled(0)
        return sessions(session, rounds, think_us=think_us, concurrency=concurrency)
    if pacing.closed_loop is not None:
        concurrency, think_time_us = pacing.closed_loop
        return closed_loop(len(requests), concurrency=concurrency, think_time_us=think_time_us)
    if pacing.max_concurrency is not None:
        return capped(requests.arrival_us, max_concurrency=pacing.max_concurrency)
    return None
