"""The formulas' fleet, simulated step by step: what its engines make of the same workload once it is filled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from replay.plan.fleet.profiles import Source
from sim import Requests, Status
from sim.cluster.config import ClusterConfig, Pool
from sim.cluster.routing.policies import LeastLoaded
from sim.cluster.run.prepare import ClusterWork
from sim.cluster.simulation import ClusterSimulation, simulate_cluster
from sim.fleet import Lengths

Floats = NDArray[np.float64]

NUM_REQUESTS = 50_000
MOST_REQUESTS = 1_000_000
FILLING = 1.5
"""Service times, of the 95th percentile, until a fleet that begins empty is as full as it becomes."""
MOST_ENGINES = 256
"""A larger fleet is simulated as one of several independent cells: a router looks at every engine of its own."""
NUM_BATCHES = 10
T_95_OF_9 = 1.833
"""Student's t for a two-sided 90 % interval over ten batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A figure in seconds with its 90 % batch-means interval; NaN where too little was measured."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the simulated engines did. Times in seconds.

    ``utilization``: share of the seats taken; ``active``: requests that run on an engine, on average.
    ``cells``: the fleet counts as so many independent ones, one of which was simulated; ``engines``: of the fleet.
    ``num_requests``: simulated; ``num_measured``: those that arrived after ``filling_s``. ``is_long_enough``: the run
    lasted through the filling and as long again. ``rate_per_s``: answered in the measured time. ``cpu_s``: its cost.
    """

    engines: int
    cells: int
    num_requests: int
    num_measured: int
    duration_s: float
    filling_s: float
    is_long_enough: bool
    failed_frac: float
    ttft_p50: Measured
    ttft_p99: Measured
    tpot_mean: Measured
    tpot_p99: Measured
    utilization: float
    active: float
    rate_per_s: float
    cpu_s: float


def verify(
    source: Source,
    lengths: Lengths,
    rate_per_s: float,
    *,
    engines: int,
    service_s: float,
    seed: int,
    num_requests: int = NUM_REQUESTS,
) -> Verification:
    """Simulate so many engines behind a least-loaded router under Poisson arrivals, and measure the filled fleet.

    ``service_s``: how long a request stays in a full engine, by the formulas; more requests than asked for are drawn
    where the run would end before the fleet is filled, up to ``MOST_REQUESTS``.
    """
    spread = float(np.percentile(lengths.output_tokens, 95) / lengths.output_tokens.mean())
    filling = FILLING * service_s * spread
    cells = -(-engines // MOST_ENGINES)
    in_cell = engines // cells
    rate = rate_per_s * in_cell / engines
    number = min(max(num_requests, math.ceil(2.2 * filling * rate)), MOST_REQUESTS)
    requests = drawn(lengths, rate, number, seed=seed)
    pool = Pool(engine=source.engine, latency=source.latency, instances=in_cell, name="pool")
    done = simulate_cluster(
        ClusterWork(requests=requests), ClusterConfig(pools=(pool,), routing=LeastLoaded(), seed=seed)
    )
    last = float(requests.arrival_us[-1]) / 1e6
    begins = min(filling, 0.5 * last)
    found = _measured(done, begins, last, seats=in_cell * source.engine.max_num_seqs, filling=filling)
    return replace(
        found,
        engines=engines,
        cells=cells,
        active=found.active / in_cell,
        rate_per_s=found.rate_per_s * rate_per_s / rate,
    )


def drawn(lengths: Lengths, rate_per_s: float, number: int, *, seed: int) -> Requests:
    """Return requests with Poisson arrivals and lengths drawn with replacement; a function of the seed alone."""
    arrival_s, chosen = drawn_rows(len(lengths), rate_per_s, number, seed=seed)
    return Requests(
        arrival_us=np.rint(arrival_s * 1e6).astype(np.int64),
        prompt_tokens=lengths.input_tokens[chosen].astype(np.int64),
        output_tokens=lengths.output_tokens[chosen].astype(np.int64),
        priority=np.zeros(number, np.int64),
        hash_offsets=np.zeros(number + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def drawn_rows(
    num_rows: int, rate_per_s: float, number: int, *, seed: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Return Poisson arrivals in seconds and which row each request is; a function of the seed alone."""
    rng = np.random.Generator(np.random.Philox(seed))
    return np.cumsum(rng.exponential(1 / rate_per_s, number)), rng.integers(0, num_rows, number)


def _measured(
    done: ClusterSimulation, begins: float, last: float, *, seats: int, filling: float
) -> Verification:
    out = done.outcomes
    arrival = out.arrival_us / 1e6
    measured = arrival >= begins
    ok = (out.status == Status.OK) & measured
    ttft = np.where(ok, (out.first_token_us - out.arrival_us) / 1e6, np.nan)
    gaps = np.maximum(out.num_output_tokens - 1, 1)
    tpot = np.where(
        ok & (out.num_output_tokens > 1), (out.last_token_us - out.first_token_us) / 1e6 / gaps, np.nan
    )
    ends = out.last_token_us / 1e6
    inside = (ends >= begins) & (ends <= last) & (out.status == Status.OK)
    span = max(last - begins, 1e-9)
    there = np.clip(np.minimum(ends, last) - np.maximum(out.scheduled_us / 1e6, begins), 0, None)
    return Verification(
        engines=0,
        cells=1,
        num_requests=len(arrival),
        num_measured=int(measured.sum()),
        duration_s=last,
        filling_s=filling,
        is_long_enough=last >= 2 * filling,
        failed_frac=float(1 - ok.sum() / max(measured.sum(), 1)),
        ttft_p50=batch_means(ttft[measured], lambda values: float(np.percentile(values, 50))),
        ttft_p99=batch_means(ttft[measured], lambda values: float(np.percentile(values, 99))),
        tpot_mean=batch_means(tpot[measured], lambda values: float(values.mean())),
        tpot_p99=batch_means(tpot[measured], lambda values: float(np.percentile(values, 99))),
        utilization=float(there[out.status == Status.OK].sum()) / (span * seats),
        active=float(there[out.status == Status.OK].sum()) / span,
        rate_per_s=float(inside.sum()) / span,
        cpu_s=done.engine_cpu_s,
    )


def batch_means(values: Floats, statistic: Callable[[Floats], float]) -> Measured:
    """Return a statistic of values in the order of their time, with a 90 % interval from ten batches of them.

    The batches' own values scatter around the whole's by chance and by what neighbours share; their t interval holds
    both, as long as a batch is longer than such ties last (Law and Kelton, method of batch means).
    """
    known = values[~np.isnan(values)]
    if len(known) < 10 * NUM_BATCHES:
        return Measured(value=statistic(known) if len(known) else math.nan, low=math.nan, high=math.nan)
    parts = np.array([statistic(part) for part in np.array_split(known, NUM_BATCHES)])
    reach = T_95_OF_9 * float(parts.std(ddof=1)) / math.sqrt(NUM_BATCHES)
    value = statistic(known)
    return Measured(value=value, low=value - reach, high=value + reach)
