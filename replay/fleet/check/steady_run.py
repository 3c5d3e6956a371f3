"""The one way in which a fleet is simulated: a stream of requests through a cluster, and the part that is measured."""

from __future__ import annotations

from collections.abc import Callable
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replay.fleet.check.cluster_load import Ints, load_of

if TYPE_CHECKING:
    from replay.fleet.check.drawn_requests import Stream
    from replay.fleet.check.steady import RunLength, SteadyWindow
    from sim.cluster import ClusterConfig, ClusterSimulation, OwnPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyRun:
    """What a cluster made of a stream, and which part of the run is measured."""

    done: ClusterSimulation
    window: SteadyWindow


def steady_run(
    stream: Stream,
    cluster: ClusterConfig,
    *,
    stay_s: float,
    seed: int,
    asked: RunLength,
    routing_of: Callable[[Ints], OwnPolicy] | None = None,
) -> SteadyRun:
    """Simulate a cluster long enough for it to be filled, measured and drained.

    ``stay_s``: how long a request stays, 95th percentile. ``routing_of``: the router for requests whose lengths are
    these rows of the stream's; None: the cluster's own. Raises ConfigError on a measured part that cannot be.
    """
    number = asked.number(stream.rate_per_s, stay_s, once=stream.once)
    load = load_of(stream, number, cluster, seed=seed)
    if routing_of is not None:
        cluster = replace(cluster, routing=routing_of(load.rows))
    return SteadyRun(done=load.simulated(cluster), window=asked.window(load.last_s, stay_s))
