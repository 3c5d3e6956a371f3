"""Simulating a cluster in one call.

Where the gateway decides nothing, one engine gets all its requests at once and runs to its end. The loop over events
gives the same bits (``tests/sim/cluster/test_direct.py``), and takes a tenth longer.
"""

from __future__ import annotations

import numpy as np

from sim.cluster.cluster_config import ClusterConfig, PipelineLatency
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import NEVER, Exit
from sim.cluster.gateway.admission import AlwaysAdmit
from sim.cluster.infrastructure.instance_lives import Infrastructure, Life
from sim.cluster.results.finished import ClusterSimulation, Instance, Undone
from sim.cluster.results.watching import FleetOverTime
from sim.cluster.routing.routing_policies import RoundRobin
from sim.config import InvalidConfig, Record
from sim.engine.state import columns
from sim.records.looks import Looks
from sim.records.run_results import totals_of
from sim.requests import Int64s, Status
from sim.simulation import Simulation, simulate


def simulate_cluster(
    work: ClusterWork,
    config: ClusterConfig,
    *,
    record: Record = "none",
    records_decisions: bool = False,
    forced: Int64s | None = None,
    coalesce: bool = True,
    points: int | None = None,
    until_us: int | None = None,
) -> ClusterSimulation:
    """Run requests through a cluster to the end; deterministic, inputs unchanged.

    ``record``: as ``simulate``'s, of each engine. ``records_decisions``: record what each routing decision saw.
    ``forced``: int64 per request, the instance it must go to whatever the policy chooses, -1 where the policy decides.
    ``points``: record the instances at evenly spaced times, from ``points`` to twice as many, for ``over_time``;
    nothing else changes. It needs any ``record`` but "none". ``until_us``: a horizon, as ``simulate``'s: nothing
    happens at it or later except the ends of steps that began before. Raises InvalidConfig on what cannot be simulated.
    """
    if forced is not None:
        _check_forced(forced, work, config)
    if until_us is not None and until_us < 1:
        raise InvalidConfig(f"until_us: got {until_us}, expected an integer >= 1")
    if config.lockstep and work.clients is not None:
        raise InvalidConfig(
            "lockstep: cannot be combined with clients that wait for answers, expected requests with times of their own"
        )
    if forced is None and not records_decisions and is_direct(work, config):
        return simulate_directly(
            work, config, record=record, coalesce=coalesce, points=points, until_us=until_us
        )
    from sim.cluster.by_events import simulate_by_events  # the loop is a third of the package

    return simulate_by_events(
        work,
        config,
        record=record,
        records_decisions=records_decisions,
        forced=forced,
        coalesce=coalesce,
        points=points,
        until_us=until_us,
    )


def _check_forced(forced: Int64s, work: ClusterWork, config: ClusterConfig) -> None:
    """Raise InvalidConfig where ``forced`` names an instance that does not decode."""
    is_right = len(forced) == len(work.requests) and forced.max(initial=-1) < config.num_instances
    if not is_right or any(config.role_of[number] == "prefill" for number in np.unique(forced[forced >= 0])):
        raise InvalidConfig("forced: expected the number of an instance that decodes, or -1, per request")


def decides_nothing(config: ClusterConfig) -> bool:
    """Return whether every request goes to the only engine, at its arrival."""
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
    """Return whether a cluster needs no events: the engine itself handles closed loops and caps."""
    clients = work.clients
    paces_itself = clients is None or clients.closed_loop is not None or clients.max_concurrency is not None
    return paces_itself and decides_nothing(config)


def simulate_directly(
    work: ClusterWork,
    config: ClusterConfig,
    *,
    record: Record,
    coalesce: bool,
    until_us: int | None,
    points: int | None = None,
) -> ClusterSimulation:
    """Simulate requests in a cluster that ``is_direct``; as ``simulate_cluster``."""
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
        points=points,
    )
    return of_one_engine(done, config)


def of_one_engine(done: Simulation, config: ClusterConfig) -> ClusterSimulation:
    """Return one engine's run as its cluster's: every request is sent there when it arrives."""
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
        over_time=None if done.looks is None else _of_one(done.looks, pool.engine.num_gpu_blocks),
        undone=Undone(num_running=done.num_running, num_waiting=done.num_waiting),
    )


def _of_one(looks: Looks, num_gpu_blocks: int) -> FleetOverTime:
    """Return one engine over time as its cluster's."""
    columns = {name: looks.rows[name][:, None] for name in looks.rows.dtype.names or ()}
    return FleetOverTime(
        time_us=looks.time_us, num_blocks=np.array([max(num_gpu_blocks - 1, 0)], np.int64), **columns
    )
