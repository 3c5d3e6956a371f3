"""Simulating a cluster in one call."""

from __future__ import annotations

import numpy as np

from sim.cluster.config import ClusterConfig
from sim.cluster.direct import is_direct, simulate_directly
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.work import ClusterWork
from sim.config import InvalidConfig, Record
from sim.requests import Int64s


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

    ``record``: as ``simulate``'s, of each engine. ``records_decisions``: keep what each routing decision saw.
    ``forced``: int64 per request, the instance it must go to whatever the policy chooses, -1 where the policy decides.
    ``points``: look at the instances at evenly spaced times, so many or up to twice as many, for ``over_time``; nothing
    else changes. It needs any ``record`` but "none". ``until_us``: a horizon, as ``simulate``'s: nothing
    happens at it or later but the ends of steps that began before. Raises InvalidConfig on what cannot be simulated.
    """
    if forced is not None:
        _check_forced(forced, work, config)
    if until_us is not None and until_us < 1:
        raise InvalidConfig(f"until_us: got {until_us}, expected an integer >= 1")
    if config.lockstep and work.clients is not None:
        raise InvalidConfig(
            "lockstep: got true with clients that wait for answers, expected requests with times of their own"
        )
    is_watched = records_decisions or points is not None
    if forced is None and not is_watched and is_direct(work, config):
        return simulate_directly(work, config, record=record, coalesce=coalesce, until_us=until_us)
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
    """Raise InvalidConfig where a request would have to go where it cannot be decoded."""
    is_right = len(forced) == len(work.requests) and forced.max(initial=-1) < config.num_instances
    if not is_right or any(config.role_of[number] == "prefill" for number in np.unique(forced[forced >= 0])):
        raise InvalidConfig("forced: expected the number of an instance that decodes, or -1, per request")
