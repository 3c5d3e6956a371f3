"""A pool of the formulas, simulated step by step: what its engines make of the same workload once it is filled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from replay.plan.fleet.check.draws import drawn
from replay.plan.fleet.check.steady import Asked, Measured, Window, batch_means
from replay.plan.fleet.inputs.profiles import Source
from sim import Status
from sim.cluster.config import ClusterConfig, Pool
from sim.cluster.routing.policies import LeastLoaded
from sim.cluster.run.prepare import ClusterWork
from sim.cluster.simulation import ClusterSimulation, simulate_cluster
from sim.fleet import Lengths

Bools = NDArray[np.bool_]

MOST_ENGINES = 256
"""A larger fleet is simulated as one of several independent cells: a router looks at every engine of its own."""


FEWER = 0.02
"""A cell of a larger fleet may have so much less than its share of any pool's engines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the simulated engines did. Times in seconds.

    ``utilization``: share of the seats taken; ``active``: requests that run on an engine, on average.
    ``cells``: the fleet counts as so many independent ones, one of which was simulated; ``engines``: of the fleet.
    ``num_requests``: simulated; ``num_measured``: those that arrived in ``window``. ``rate_per_s``: answered in it.
    ``cpu_s``: its cost.
    """

    engines: int
    cells: int
    num_requests: int
    num_measured: int
    window: Window
    failed_frac: float
    ttft_p50: Measured
    ttft_p99: Measured
    tpot_mean: Measured
    tpot_p99: Measured
    utilization: float
    active: float
    rate_per_s: float
    cpu_s: float

    @property
    def needed_s(self) -> float:
        """How long the run had to be for TTFT p99 to be known to a twentieth; NaN where too little was measured."""
        return self.window.needed_s(self.ttft_p99)


def verify(
    source: Source,
    lengths: Lengths,
    rate_per_s: float,
    *,
    engines: int,
    service_s: float,
    seed: int,
    asked: Asked,
) -> Verification:
    """Simulate so many engines behind a least-loaded router under Poisson arrivals, and measure the filled fleet.

    ``service_s``: how long a request stays in a full engine, by the formulas; more requests than asked for are drawn
    where the run would end before the fleet is filled, measured and drained, up to ``MOST_REQUESTS``. Raises
    ConfigError where the measured part that was asked for cannot be.
    """
    stay = stay_s(lengths, service_s)
    cells = -(-engines // MOST_ENGINES)
    in_cell = engines // cells
    rate = rate_per_s * in_cell / engines
    requests = drawn(lengths, rate, asked.number(rate, stay), seed=seed)
    pool = Pool(engine=source.engine, latency=source.latency, instances=in_cell, name="pool")
    done = simulate_cluster(
        ClusterWork(requests=requests), ClusterConfig(pools=(pool,), routing=LeastLoaded(), seed=seed)
    )
    window = asked.window(float(requests.arrival_us[-1]) / 1e6, stay)
    found = measured_of(done, window, engines=in_cell, seats=source.engine.max_num_seqs)
    return replace(
        found,
        engines=engines,
        cells=cells,
        rate_per_s=found.rate_per_s * rate_per_s / rate,
    )


def cells_of(engines: Sequence[int]) -> int:
    """Return as how many equal cells a fleet is simulated: as few as needed, and none where a pool would lose engines.

    A cell has a whole number of each pool's engines; what is lost to rounding is at most ``FEWER`` of any pool.
    """
    most = -(-sum(engines) // MOST_ENGINES)
    for cells in range(most, 1, -1):
        if all((each // cells) * cells >= (1 - FEWER) * each for each in engines):
            return cells
    return 1


def stay_s(lengths: Lengths, service_s: float) -> float:
    """Return how long a request stays, 95th percentile, where the mean one stays so long: with its output tokens."""
    return service_s * float(np.percentile(lengths.output_tokens, 95) / lengths.output_tokens.mean())


def measured_of(
    done: ClusterSimulation, window: Window, *, engines: int, seats: float, rows: Bools | None = None
) -> Verification:
    """Return what engines did in a window. ``seats``: of one engine. ``rows``: of these requests alone."""
    out = done.outcomes
    mine = np.ones(len(out.arrival_us), dtype=bool) if rows is None else rows
    arrival = out.arrival_us / 1e6
    counted = window.holds(arrival) & mine
    is_ok = (out.status == Status.OK) & mine
    ok = is_ok & counted
    ttft = np.where(ok, (out.first_token_us - out.arrival_us) / 1e6, np.nan)
    gaps = np.maximum(out.num_output_tokens - 1, 1)
    tpot = np.where(
        ok & (out.num_output_tokens > 1), (out.last_token_us - out.first_token_us) / 1e6 / gaps, np.nan
    )
    begins, ends = window.begins_s, window.ends_s
    left = out.last_token_us / 1e6
    inside = (left >= begins) & (left <= ends) & is_ok
    span = max(ends - begins, 1e-9)
    there = np.clip(np.minimum(left, ends) - np.maximum(out.scheduled_us / 1e6, begins), 0, None)[is_ok]
    active = float(there.sum()) / span / max(engines, 1)
    return Verification(
        engines=engines,
        cells=1,
        num_requests=int(mine.sum()),
        num_measured=int(counted.sum()),
        window=window,
        failed_frac=float(1 - ok.sum() / max(counted.sum(), 1)),
        ttft_p50=batch_means(ttft[counted], lambda values: float(np.percentile(values, 50))),
        ttft_p99=batch_means(ttft[counted], lambda values: float(np.percentile(values, 99))),
        tpot_mean=batch_means(tpot[counted], lambda values: float(values.mean())),
        tpot_p99=batch_means(tpot[counted], lambda values: float(np.percentile(values, 99))),
        utilization=active / seats,
        active=active,
        rate_per_s=float(inside.sum()) / span,
        cpu_s=done.engine_cpu_s,
    )
