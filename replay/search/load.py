"""The same requests at any rate: a search over rates simulates them repeatedly.

Only the arrivals' scale changes. Lengths, prefixes and the pattern of arrivals stay, so that two rates are compared
with common random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.trace.pacing import Pacing, pacing_of
from replay.verdict.again import Repeatable, again, serves_again
from replay.verdict.growth import Growth, customers_of, growth_of
from sim import InterTokenLatencies, Outcomes, Requests, Status
from traces import ConfigError

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from sim import Record
    from sim.cluster import ClusterConfig
    from traces import Trace

Served = tuple[Outcomes, Callable[[], InterTokenLatencies], int]
"""Outcomes, what gives the gaps between tokens (where spans were recorded), and the number of preemptions."""

NEVER = -1
"""The value of a missing deadline (``sim.Requests``)."""


IDLE = 1e-3
"""At this share of a rate of the right size, requests hardly ever meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """Result of a run at a rate: how the number under way grows, and how many requests/s are answered."""

    growth: Growth
    answered_per_s: float


def answered_per_s(outcomes: Outcomes, window: tuple[int, int]) -> float:
    """Return how many requests are answered per second from one time to another, in µs."""
    start, end = window
    left = outcomes.last_token_us[outcomes.status == Status.OK]
    return float(((left > start) & (left <= end)).sum()) / max(end - start, 1) * 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Requests that arrive at ``own_rate_per_s``, and what serves them. ``first``: which of n arrive by themselves.

    Rates count requests, those that wait for an answer of their session included. ``session``: the number of each
    request's, where rounds wait for answers, else None. ``scaling_us``: how long a fleet that scales itself may take to
    reach its size, 0 of one that does not.
    """

    requests: Requests
    own_rate_per_s: float
    first: NDArray[np.bool_]
    session: NDArray[np.int64] | None
    serve: Callable[[Requests, Record], Served]
    serve_again: Callable[[Requests, NDArray[np.int64], int], Outcomes]
    scaling_us: int

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.requests)

    def at(self, rate_per_s: float) -> Requests:
        """Return the requests arriving at another rate, from time 0."""
        arrival = self.requests.arrival_us
        start = int(arrival[self.first].min())
        scaled = np.rint((arrival - start) * (self.own_rate_per_s / rate_per_s)).astype(np.int64)
        return _arriving(self.requests, np.where(self.first, scaled, arrival))

    def pushed(self, rate_per_s: float, *, laps: int = 1) -> Pushed | None:
        """Return how the number of requests under way grows at a rate, sent once or again and again."""
        sent = self.at(rate_per_s)
        if laps == 1:
            outcomes = self.serve(sent, "none")[0]
            growth = growth_of(customers_of(outcomes, self.session))
            came = sent.arrival_us[self.first]
            start, end = int(came.min()), int(came.max())
            window = (start + (end - start) // 2, end)
        else:
            run = Repeatable(requests=sent, session=self.session, first=self.first, serve=self.serve_again)
            outcomes, session, period_us = again(run, laps)
            growth = growth_of(customers_of(outcomes, session), period_us=period_us)
            start = int(sent.arrival_us[self.first].min())
            window = (start + laps // 2 * period_us, start + laps * period_us)
        if growth is None:
            return None
        return Pushed(growth=growth, answered_per_s=answered_per_s(outcomes, window))

    def num_possible(self) -> int:
        """Return how many of the customers an idle server answers; the others are too long for it, or too hasty."""
        scale = self.scale_per_s()
        if scale <= 0:
            return 0
        outcomes = self.serve(self.at(scale * IDLE), "none")[0]
        return len(customers_of(outcomes, self.session))

    def scale_per_s(self) -> float:
        """Return a rate to begin a search at, requests/s: the throughput of all requests at once, to the very last.

        It is less than a server's capacity, since the server is full for only a part of that time; 0 if none is
        answered.
        """
        arrival = np.where(self.first, 0, self.requests.arrival_us)
        outcomes, _, _ = self.serve(replace(self.requests, arrival_us=arrival, deadline_us=None), "none")
        done = outcomes.last_token_us[outcomes.status == Status.OK]
        return float(len(done) / max(int(done.max()), 1) * 1e6) if len(done) else 0.0


def _arriving(requests: Requests, arrival_us: NDArray[np.int64]) -> Requests:
    """Return the requests at other times; one with a deadline gives up after as long as before."""
    deadline = requests.deadline_us
    if deadline is not None:
        patience = deadline - requests.arrival_us
        deadline = np.where(deadline == NEVER, NEVER, arrival_us + patience)
    return replace(requests, arrival_us=arrival_us, deadline_us=deadline)


def load_of(trace: Trace, twin: TwinConfig, *, draw: int = 0) -> Load:
    """Return a workload as a load of any rate. Raises ConfigError if answers set its pace, or all arrive at once.

    ``draw``: its number among several. A gateway draws anew for each.
    """
    pacing = pacing_of(trace, simulates_rounds=True)
    if pacing.is_by_answers and pacing.users != 0:
        raise ConfigError(
            "workload: got a closed loop, whose pace the answers set, expected requests that come at their own times "
            "(--rate, --like STEM)"
        )
    cluster = replace(twin.cluster, seed=twin.cluster.seed + draw)
    load = _load(trace, cluster, pacing)
    first = trace.cells("arrival_time_us").is_known
    span_us = float(np.ptp(load.requests.arrival_us[first])) if first.any() else 0.0
    if span_us <= 0:
        raise ConfigError("workload: got requests that all come at once, expected times to scale")
    begins = int(first.sum())
    rate = (begins - 1) / span_us * 1e6 * len(load) / begins
    session = trace.cells("session_id").ranks() if pacing.users is not None else None
    return replace(load, own_rate_per_s=rate, first=first, session=session)


def loads_of(traces: Sequence[Trace], twin: TwinConfig, *, first: int = 0) -> list[Load]:
    """Return several draws of one workload as loads of one rate, that of all of them together. Raises ConfigError.

    ``first``: how many were drawn before.

    If each were scaled to the rate by itself, all would have equally many requests in equal times. A real load varies,
    and has longer queues (``replay.search.workload_draws.searchable``).
    """
    loads = [load_of(trace, twin, draw=first + number) for number, trace in enumerate(traces)]
    begins = np.array([int(load.first.sum()) for load in loads])
    sizes = np.array([len(load) for load in loads])
    own = np.array([load.own_rate_per_s for load in loads])
    span_s = (begins - 1) * sizes / (begins * own)
    rate = float((begins - 1).sum() / span_s.sum() * sizes.sum() / begins.sum())
    return [replace(load, own_rate_per_s=rate) for load in loads]


def _load(trace: Trace, cluster: ClusterConfig, pacing: Pacing) -> Load:
    """Return a workload's requests with what serves them; rate, ``first`` and ``session`` are to be filled in."""
    from replay.cluster.record import as_simulation
    from replay.cluster.work import cluster_work
    from sim import InvalidConfig
    from sim.cluster import simulate_cluster

    work = cluster_work(trace, pacing, cluster)

    def serve(requests: Requests, record: Record) -> Served:
        try:
            done = simulate_cluster(replace(work, requests=requests), cluster, record=record)
        except InvalidConfig as error:
            raise ConfigError(f"cluster: {error}") from error
        preemptions = sum(each.num_preemptions for each in done.instances)
        return done.outcomes, lambda: as_simulation(done).inter_token_latencies(), preemptions

    return Load(
        requests=work.requests,
        own_rate_per_s=0.0,
        first=np.ones(len(work.requests), np.bool_),
        session=None,
        serve=serve,
        serve_again=serves_again(work, cluster),
        scaling_us=_scaling_us(cluster),
    )


def _scaling_us(cluster: ClusterConfig) -> int:
    """Return how long pools that scale themselves take to their largest size, one instance at a look; µs."""
    return max(
        (
            pool.num_slots * pool.autoscaler.interval_us + pool.autoscaler.actuation_us
            for pool in cluster.pools
            if pool.autoscaler is not None
        ),
        default=0,
    )
