"""A pool of the formulas, simulated step by step: what its engines make of the same workload once it is filled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from replay.fleet.check.steady import BatchedMean, Floats, RunLength, SteadyWindow, batch_means
from replay.fleet.check.steady_run import SteadyRun, steady_run
from replay.fleet.inputs.profiles import ProfileSource
from sim import Outcomes, Status
from sim.cluster import ClusterConfig, LeastLoaded, Pool
from sim.fleet import Lengths

Bools = NDArray[np.bool_]

MOST_ENGINES, LEAST_ENGINES = 256, 32
"""A larger fleet is simulated as one of several independent cells: a router looks at every engine of its own.

A cell has no more requests than ``CELL_REQUESTS``, where that leaves it the second number."""
CELL_REQUESTS = 300_000
FEWER = 0.02
"""A cell of a larger fleet may have this much less than its share of any pool's engines."""
ROOM = 4.0
"""With this many standard deviations of free seats a fleet is hardly ever full; with fewer, runs must see it full."""
LEAST_SPELLS = 30
"""A fleet that fills up must have been full this often: with fewer spells, their length is left to chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of simulating a pool's engines. Times in seconds.

    ``utilization``: share of the seats taken; ``active``: requests that run on an engine, on average.
    ``cells``: the fleet counts as this many independent ones, one of which was simulated; ``engines``: of the fleet.
    ``num_requests``: simulated; ``num_measured``: those that arrived in ``window``. ``rate_per_s``: answered in it.
    ``cpu_s``: its cost. ``room``: free seats, in standard deviations of those taken; ``full_spells``: how often the
    measured requests found no seat, times within a stay of each other counted once.
    """

    engines: int
    cells: int
    num_requests: int
    num_measured: int
    window: SteadyWindow
    failed_frac: float
    ttft_p50: BatchedMean
    ttft_p99: BatchedMean
    tpot_mean: BatchedMean
    tpot_p99: BatchedMean
    e2e_p50: BatchedMean
    e2e_p99: BatchedMean
    utilization: float
    active: float
    rate_per_s: float
    cpu_s: float
    room: float = math.inf
    full_spells: int = 0

    @property
    def is_seen_full(self) -> bool:
        """Whether the fleet is hardly ever full, or was full often enough for the run to show what that does."""
        return is_seen_full(self.room, self.full_spells)

    @property
    def is_long_enough(self) -> bool:
        """Whether the run's TTFT p99 is that of an endless run, within its interval."""
        return self.window.is_enough_for(self.ttft_p99) and self.is_seen_full

    @property
    def needed_s(self) -> float:
        """How long the run would have to be for TTFT p99 to be known to a twentieth; NaN if too little was measured."""
        return self.window.needed_s(self.ttft_p99)


def verify(
    source: ProfileSource,
    lengths: Lengths,
    rate_per_s: float,
    *,
    engines: int,
    service_s: float,
    seed: int,
    asked: RunLength,
    share: float = 1.0,
) -> Verification:
    """Simulate this many engines behind a least-loaded router, and measure the filled fleet.

    ``service_s``: how long a request stays in a full engine, by the formulas; more requests than asked for are drawn
    where the run would end before the fleet is filled, measured and drained, up to ``MOST_REQUESTS``. ``share``: of the
    fleet's requests, which this pool gets by their lengths. Raises ConfigError on a measured part that cannot be.
    """
    stay = asked.stay_s(lengths, service_s)
    cells = -(-engines // most_of_cell(engines, asked.least_s(stay) * rate_per_s))
    in_cell = engines // cells
    rate = rate_per_s * in_cell / engines
    pool = Pool(engine=source.engine, latency=source.latency, instances=in_cell, name="pool")
    cluster = ClusterConfig(pools=(pool,), routing=LeastLoaded(), seed=seed)
    stream = asked.stream(lengths, rate, share=share, part=in_cell / engines)
    run = steady_run(stream, cluster, stay_s=stay, seed=seed, asked=asked)
    found = measured_of(
        run,
        engines=in_cell,
        seats=source.engine.max_num_seqs,
        slots=in_cell * slots_of(source, lengths),
    )
    return replace(
        found,
        engines=engines,
        cells=cells,
        rate_per_s=found.rate_per_s * rate_per_s / rate,
    )


def most_of_cell(engines: int, number: float) -> int:
    """Return how many engines a cell has at most.

    ``number``: of the requests that all ``engines`` serve in a run that is long enough.
    """
    if engines <= MOST_ENGINES:
        return MOST_ENGINES
    return max(LEAST_ENGINES, min(MOST_ENGINES, int(CELL_REQUESTS / number * engines)))


def cells_of(engines: Sequence[int], number: float = 1.0) -> int:
    """Return the number of equal cells a fleet is simulated as: as few as needed, without losing engines of a pool.

    A cell has a whole number of each pool's engines; what is lost to rounding is at most ``FEWER`` of any pool.
    ``number``: of the requests that the whole fleet serves in a run that is long enough.
    """
    most = -(-sum(engines) // most_of_cell(sum(engines), number))
    for cells in range(most, 1, -1):
        if all((each // cells) * cells >= (1 - FEWER) * each for each in engines):
            return cells
    return 1


def slots_of(source: ProfileSource, lengths: Lengths) -> int:
    """Return how many requests run at once on an engine: its seats, or as many as its KV cache holds on average."""
    seats, profile = source.engine.max_num_seqs, source.profile
    return seats if profile.reserves_context else min(seats, profile.slots_for(lengths, profile.block_size))


def measured_of(
    run: SteadyRun,
    *,
    engines: int,
    seats: float,
    slots: float = math.inf,
    rows: Bools | None = None,
) -> Verification:
    """Return what engines did in a run's window. ``seats``: of one engine. ``rows``: of these requests alone.

    ``slots``: how many requests run at once on all engines, at most; not known: it is not looked at how full they are.
    """
    out, window = run.done.outcomes, run.window
    mine = np.ones(len(out.arrival_us), dtype=bool) if rows is None else rows
    arrival = out.arrival_us / 1e6
    is_ok = (out.status == Status.OK) & mine
    by_arrival = np.argsort(arrival, kind="stable")  # a session's rounds come between those of others
    counted = by_arrival[(window.holds(arrival) & mine)[by_arrival]]
    ok = is_ok[counted]
    ttft, tpot, e2e = _latencies(out, counted, ok)
    begins, ends = window.begins_s, window.ends_s
    left = out.last_token_us / 1e6
    inside = (left >= begins) & (left <= ends) & is_ok
    span = max(ends - begins, 1e-9)
    there = np.clip(np.minimum(left, ends) - np.maximum(out.scheduled_us / 1e6, begins), 0, None)[is_ok]
    active = float(there.sum()) / span / max(engines, 1)
    batches = window.num_batches
    taken = taken_at(arrival[counted], out.scheduled_us[is_ok] / 1e6, left[is_ok])
    return Verification(
        engines=engines,
        cells=1,
        num_requests=int(mine.sum()),
        num_measured=len(counted),
        window=window,
        failed_frac=float(1 - ok.sum() / max(len(counted), 1)),
        ttft_p50=batch_means(ttft, _median, num_batches=batches),
        ttft_p99=batch_means(ttft, _p99, num_batches=batches),
        tpot_mean=batch_means(tpot, lambda values: float(values.mean()), num_batches=batches),
        tpot_p99=batch_means(tpot, _p99, num_batches=batches),
        e2e_p50=batch_means(e2e, _median, num_batches=batches),
        e2e_p99=batch_means(e2e, _p99, num_batches=batches),
        utilization=active / seats,
        active=active,
        rate_per_s=float(inside.sum()) / span,
        cpu_s=run.done.engine_cpu_s,
        room=room_of(taken, slots),
        full_spells=spells_of(arrival[counted][taken >= slots], apart_s=window.stay_s),
    )


def _latencies(out: Outcomes, rows: NDArray[np.int64], ok: Bools) -> tuple[Floats, Floats, Floats]:
    """Return TTFT, TPOT and E2E of these rows in seconds, float64 [n]; NaN of those that were not answered."""
    arrival, first, last = out.arrival_us[rows], out.first_token_us[rows], out.last_token_us[rows]
    output = out.num_output_tokens[rows]
    return (
        np.where(ok, (first - arrival) / 1e6, np.nan),
        np.where(ok & (output > 1), (last - first) / 1e6 / np.maximum(output - 1, 1), np.nan),
        np.where(ok, (last - arrival) / 1e6, np.nan),
    )


def _median(values: Floats) -> float:
    return float(np.percentile(values, 50))


def _p99(values: Floats) -> float:
    return float(np.percentile(values, 99))


def taken_at(when: Floats, begins: Floats, ends: Floats) -> NDArray[np.int64]:
    """Return how many requests run at each time, by when they begin and end."""
    begun = np.searchsorted(np.sort(begins), when, side="left")
    return np.asarray(begun - np.searchsorted(np.sort(ends), when, side="right"), np.int64)


def is_seen_full(room: float, full_spells: int) -> bool:
    """Say whether a pool with this much room is hardly ever full, or a run saw it full often enough."""
    return room >= ROOM or full_spells >= LEAST_SPELLS


def room_of(taken: NDArray[np.int64], slots: float) -> float:
    """Return the free seats on average, in standard deviations of those taken."""
    if math.isinf(slots) or len(taken) == 0:
        return math.inf
    return (slots - float(taken.mean())) / max(float(taken.std()), 1e-9)


def spells_of(when: Floats, *, apart_s: float) -> int:
    """Return how many groups of times there are, ``apart_s`` or more between them. ``when``: ascending."""
    return int((np.diff(when) > apart_s).sum()) + 1 if len(when) else 0
