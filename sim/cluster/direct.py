"""One engine behind a gateway that decides nothing: it gets all its requests at once and runs to its end.

From event to event the same bits come out (``tests/sim/cluster/test_direct.py``), and it takes a tenth longer.
"""

from __future__ import annotations

import numpy as np

from sim.cluster.config import ClusterConfig, PipelineLatency
from sim.cluster.exits import NEVER, Exit
from sim.cluster.gateway.admission import AlwaysAdmit
from sim.cluster.infrastructure.lives import Infrastructure, Life
from sim.cluster.results.finished import ClusterSimulation, Instance, Undone
from sim.cluster.routing.policies import RoundRobin
from sim.cluster.work import ClusterWork
from sim.config import Record
from sim.engine.state import columns
from sim.records.results import totals_of
from sim.requests import Status
from sim.simulation import Simulation, simulate


def decides_nothing(config: ClusterConfig) -> bool:
    """Return whether every request goes to the one engine there is, at the time when it arrives."""
    pool = config.pools[0]
    is_one = len(config.pools) == 1 and pool.num_slots == 1 and pool.autoscaler is None
    return (
        is_one
        and isinstance(config.routing, RoundRobin)
        and isinstance(config.admission, AlwaysAdmit)
        and config.latency == PipelineLatency()
        and (config.flow_control, config.disaggregation) == (None, None)
        and (config.failures, config.retries) == (None, None)
        and not config.lockstep
        and not config.node_pools
    )


def is_direct(work: ClusterWork, config: ClusterConfig) -> bool:
    """Return whether a cluster needs no event: of its clients the engine itself knows closed loops and caps."""
    clients = work.clients
    paces_itself = clients is None or clients.closed_loop is not None or clients.max_concurrency is not None
    return paces_itself and decides_nothing(config)


def simulate_directly(
    work: ClusterWork, config: ClusterConfig, *, record: Record, coalesce: bool, until_us: int | None
) -> ClusterSimulation:
    """Return what becomes of requests in a cluster that ``is_direct``; as ``simulate_cluster``."""
    pool, clients = config.pools[0], work.clients
    done = simulate(
        work.requests,
        pool.engine,
        pool.latency,
        coalesce=coalesce,
        record=record,
        closed_loop=None if clients is None else clients.closed_loop,
        max_concurrency=None if clients is None else clients.max_concurrency,
        until_us=until_us,
    )
    return of_one_engine(done, config)


def of_one_engine(done: Simulation, config: ClusterConfig) -> ClusterSimulation:
    """Return the run of one engine as that of its cluster: all are sent there when they arrive."""
    outcomes, pool = done.outcomes, config.pools[0]
    status, arrival_us = outcomes.status, outcomes.arrival_us
    ways = np.full(len(status), Exit.UNDER_WAY, np.int16)
    for meaning, way in (
        (Status.OK, Exit.COMPLETED),
        (Status.REJECTED, Exit.REFUSED),
        (Status.TIMEOUT, Exit.TIMED_OUT),
    ):
        ways[status == meaning] = way
    was_sent = arrival_us != NEVER
    ways[(ways == Exit.UNDER_WAY) & ~was_sent] = Exit.NOT_SENT
    totals = columns(done.written.state.engine)[0]["totals"]
    life = Life(instance=0, pool=0, num_gpus=pool.gpus_per_instance, ordered_us=0, placed_us=0, ready_us=0)
    return ClusterSimulation(
        outcomes=outcomes,
        instance=np.where(was_sent, 0, NEVER).astype(np.int32),
        exit=ways,
        admitted_us=arrival_us.copy(),
        dispatched_us=np.full(len(status), NEVER, np.int64),
        routed_us=arrival_us.copy(),
        left_us=np.where(status == Status.REJECTED, outcomes.queued_us, outcomes.last_token_us),
        split=None,
        instances=(
            Instance(
                name=config.instance_names[0],
                pool=0,
                written=done.written,
                num_cache_queries=int(totals["num_cache_queries"]),
                num_cache_hits=int(totals["num_cache_hits"]),
                **totals_of(done.written.state),
            ),
        ),
        decisions=None,
        duration_us=done.duration_us,
        engine_cpu_s=done.engine_cpu_s,
        infrastructure=Infrastructure(lives=(life,), nodes=(), changes=(), end_us=done.duration_us),
        undone=Undone(num_running=done.num_running, num_waiting=done.num_waiting),
    )
