"""A cost from two runs that differ only in it: grammars, or the CPU's time that async scheduling hides.

A twin simulates both. Its errors on the plain run occur in the other, too, so only the change from one run to the other
is used: of each request, by how many µs TTFT and TPOT grew, observed and simulated. Two numbers are found. Of grammars,
``engine.guided_compile_us``, which a guided request waits before it can run, and ``engine.guided_mask_us``, which each
guided request adds to every step it is in, so to its neighbours' tokens, too. Of a server without async scheduling,
``engine.host_step_us``, which each step takes longer, and ``host_prefill_us``, which one with prompts takes longer
still.

An interval has four parts: requests redrawn in blocks; pairs of runs of the fitted twin with slightly different steps
and arrivals, a variation that all requests of a run share and redrawing shows only in part; the search's own scatter;
and the twin's relative error in the mean E2E of the plain run, applied to the cost. The effect of a cost depends on how
many requests are in a step, and that on how long they stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from lazy_dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.objective.objective import log_ratio
from calibrate.fit.objective.repeated_run import Work, scattered
from calibrate.fit.step_noise import sigma_of
from calibrate.run_to_run.normal_quantiles import deviation_of_median, half_width
from traces import TraceError
from traces.statistics.bootstrap import Estimate, Floats, block_length, generator_of, interval, over_resamples

if TYPE_CHECKING:
    from replay import TwinConfig
    from traces import Trace

METRICS = ("ttft_us", "tpot_us")
NUM_COSTS = 2
GUIDED_STARTS_US = ((0.0, 1e4, 1e5, 1e6), (0.0, 30.0, 300.0, 3000.0))
HOST_STARTS_US = ((0.0, 500.0, 2000.0, 8000.0), (0.0, 2000.0, 8000.0, 30_000.0))
"""Starting values of each cost; the search starts at the best pair of all."""
MIN_PAIRS = 20
"""Requests that both runs must have finished: fewer show little of a cost."""
REACHES = (2.0, 0.5, 0.2, 0.1)
"""How far around the best so far the next simulations are, times the cost."""
NUM_LAST = 4
"""Surfaces whose minima are averaged in the end; their spread is the search's noise, a part of the interval."""
GUIDED_REACH_US = (2000.0, 10.0)
HOST_REACH_US = (50.0, 500.0)
NUM_POINTS = 32
ROUNDS = 8
REPLICATES = 400
NUM_PAIRS_OF_RUNS = 32
"""Pairs that the fitted twin is run for; their costs' standard deviation is known to one part in eight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedCost:
    """What was found, µs; ``unexplained_us``: median change of TTFT and TPOT that is left over.

    ``twin_off_frac``: how far the twin's mean E2E of the plain run is off.
    """

    compile_us: Estimate
    mask_us: Estimate
    num_pairs: int
    num_guided: int
    unexplained_us: dict[str, float]
    twin_off_frac: float

    def document(self) -> dict[str, object]:
        """Return what ``vtwin calibrate guided`` writes as guided.json."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCost:
    """What was found, µs; ``unexplained_us``: median change of TTFT and TPOT that is left over.

    ``twin_off_frac``: how far the twin's mean E2E of the plain run is off.
    """

    step_us: Estimate
    prefill_us: Estimate
    num_pairs: int
    unexplained_us: dict[str, float]
    twin_off_frac: float

    def document(self) -> dict[str, object]:
        """Return what ``vtwin calibrate host`` writes as host.json."""
        return asdict(self)


def fit_guided(plain: Trace, guided: Trace, config: TwinConfig, *, seed: int = 0) -> GuidedCost:
    """Return the cost of grammars in ``guided``, a run of the same requests as ``plain``.

    Raises TraceError for traces that differ in more than guided requests.
    """
    with_grammar = guided.column("guided").fillna(False).to_numpy(bool)
    _check_guided(plain, guided, num_guided=int(with_grammar.sum()))

    def with_costs(costs: Floats) -> TwinConfig:
        compile_us, mask_us = round(float(costs[0])), float(costs[1])
        engine = replace(config.engine, guided_compile_us=compile_us, guided_mask_us=mask_us)
        return replace(config, engine=engine)

    changes = Changes.of(plain, guided, config, with_costs=with_costs)
    num_guided = int(with_grammar[changes.rows].sum())
    if num_guided == 0:
        raise TraceError("guided: got no guided request that both runs finished, expected some of them")
    costs, estimates = _fitted(changes, starts=GUIDED_STARTS_US, least=GUIDED_REACH_US, seed=seed)
    return GuidedCost(
        compile_us=estimates[0],
        mask_us=estimates[1],
        num_pairs=changes.num_pairs,
        num_guided=num_guided,
        unexplained_us=changes.unexplained(costs),
        twin_off_frac=changes.twin_off_frac,
    )


def fit_host(hidden: Trace, shown: Trace, config: TwinConfig, *, seed: int = 0) -> HostCost:
    """Return the CPU's time in ``shown``, a run without async scheduling of the requests of ``hidden``, one with it.

    Raises TraceError for traces of other requests, or where a header says otherwise.
    """
    for trace, expected in ((hidden, True), (shown, False)):
        said = trace.header.server.async_scheduling
        if said is not None and said != expected:
            raise TraceError(
                f"server.async_scheduling: got {said} in the header of the run that should be "
                f"{'with' if expected else 'without'} it, expected {expected}"
            )
    _check_alike(hidden, shown)

    def with_costs(costs: Floats) -> TwinConfig:
        step_us, prefill_us = (max(float(cost), 0.0) for cost in costs)
        engine = replace(
            config.engine, async_scheduling=False, host_step_us=step_us, host_prefill_us=prefill_us
        )
        return replace(config, engine=engine)

    plain = replace(config, engine=replace(config.engine, async_scheduling=True))
    changes = Changes.of(hidden, shown, plain, with_costs=with_costs)
    costs, estimates = _fitted(changes, starts=HOST_STARTS_US, least=HOST_REACH_US, seed=seed)
    return HostCost(
        step_us=estimates[0],
        prefill_us=estimates[1],
        num_pairs=changes.num_pairs,
        unexplained_us=changes.unexplained(costs),
        twin_off_frac=changes.twin_off_frac,
    )


def _fitted(
    changes: Changes, *, starts: tuple[tuple[float, ...], ...], least: tuple[float, float], seed: int
) -> tuple[Floats, list[Estimate]]:
    """Return both costs, and the same with intervals."""
    pairs = [np.array([one, other]) for one in starts[0] for other in starts[1]]
    costs = min(pairs, key=lambda at: float(np.sum(np.abs(changes.left(at)))))
    all_pairs = np.ones(changes.num_pairs)
    for reach in REACHES[:-1]:
        surface = ChangePlane.around(costs, changes, reach=reach, least=least, seed=seed)
        costs = np.maximum(surface.best(all_pairs), 0.0)
    last = [
        ChangePlane.around(costs, changes, reach=REACHES[-1], least=least, seed=seed + number)
        for number in range(NUM_LAST)
    ]
    minima = np.array([np.maximum(surface.best(all_pairs), 0.0) for surface in last])
    mean = ChangePlane(
        centre=costs,
        level=np.mean([surface.level for surface in last], axis=0),
        slopes=np.mean([surface.slopes for surface in last], axis=0),
        num_pairs=changes.num_pairs,
    )
    costs = np.maximum(mean.best(all_pairs), 0.0)
    of_search = minima.std(axis=0, ddof=1) / np.sqrt(NUM_LAST)
    of_runs = np.array([mean.best(all_pairs, moved_by=moved) for moved in _other_pairs(changes, costs, seed)])
    of_twin = abs(changes.twin_off_frac) * costs / half_width()
    scatter = np.sqrt(of_search**2 + of_runs.var(axis=0, ddof=1) + of_twin**2)
    return costs, _estimates(mean, costs, scatter=scatter, seed=seed)


def _other_pairs(changes: Changes, costs: Floats, seed: int) -> Iterator[Floats]:
    """Yield, for pairs of runs of the twin at ``costs``, how their changes differ from the observed, in typical sizes.

    Steps scatter as much as the two runs' TPOT say; each arrival is up to half a step off.
    """
    generator = generator_of(seed, 8103)
    sigma = changes.step_sigma(costs)
    step_us = float(np.nanmedian(changes.plain_us[METRICS.index("tpot_us")]))
    runs = ((changes.plain, changes.plain_config), (changes.other, changes.with_costs(costs)))
    for _ in range(NUM_PAIRS_OF_RUNS):
        before, after = (
            work.moved(step_us, generator).simulated(
                scattered(config, sigma, seed=int(generator.integers(2**31)))
            )[:, changes.rows]
            for work, config in runs
        )
        yield np.nan_to_num((after - before - changes.observed) / changes.scales[:, None]).ravel()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlane:
    """The residual of each change as a plane over the two costs, [METRICS x requests] at ``centre``, and its slopes.

    A request's place within a step at its arrival is chance, and so is a part of each simulated change; a plane through
    many simulations has less of this noise than a difference of two.
    """

    centre: Floats
    level: Floats
    slopes: Floats
    num_pairs: int

    @staticmethod
    def around(
        centre: Floats, changes: Changes, *, reach: float, least: tuple[float, float], seed: int
    ) -> ChangePlane:
        """Return the plane through simulations at costs up to ``reach`` x the centre away, at least ``least``."""
        width = np.maximum(reach * centre, np.array(least))
        generator = generator_of(seed, 8101)
        points = np.maximum(centre + width * generator.uniform(-1, 1, size=(NUM_POINTS, NUM_COSTS)), 0.0)
        left = np.stack([changes.left(point).ravel() for point in points])
        design = np.column_stack([np.ones(NUM_POINTS), points - centre])
        plane = np.linalg.lstsq(design, left, rcond=None)[0]
        return ChangePlane(centre=centre, level=plane[0], slopes=plane[1:].T, num_pairs=changes.num_pairs)

    def best(self, counts: Floats, *, moved_by: Floats | float = 0.0) -> Floats:
        """Return the costs with the least residual, each request taken ``counts`` times, outliers weighing less.

        ``moved_by``: how far other observed changes lie from those that the plane is of.
        """
        weight, costs, level = np.tile(counts, len(METRICS)), self.centre, self.level + moved_by
        for _ in range(ROUNDS):
            left = level + self.slopes @ (costs - self.centre)
            robust = weight / np.sqrt(1 + left**2)
            normal = self.slopes.T @ (robust[:, None] * self.slopes) + 1e-15 * np.eye(NUM_COSTS)
            costs = self.centre - np.linalg.solve(normal, self.slopes.T @ (robust * level))
        return np.asarray(costs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """How much observed latencies grew from the plain run to the other: µs, [METRICS, requests].

    ``before_us``: the plain run's latencies; ``plain_us``: the same, simulated; ``gaps``: output tokens but the first;
    ``rows``: the requests that both runs finished. ``with_costs``: the twin of the other run under given costs.
    """

    plain: Work
    plain_config: TwinConfig
    other: Work
    with_costs: Callable[[Floats], TwinConfig]
    observed: Floats
    before_us: Floats
    plain_us: Floats
    gaps: Floats
    rows: NDArray[np.int64]
    scales: Floats

    @staticmethod
    def of(
        plain: Trace, other: Trace, config: TwinConfig, *, with_costs: Callable[[Floats], TwinConfig]
    ) -> Changes:
        """Return the changes between two runs. Raises TraceError where too few requests were finished by both."""
        before, after = _latencies(plain), _latencies(other)
        work = Work.of(plain, config)
        plain_us = work.simulated(config)
        known = np.isfinite(before[0]) & np.isfinite(after[0]) & np.isfinite(plain_us[0])
        rows = np.flatnonzero(known)
        if len(rows) < MIN_PAIRS:
            raise TraceError(
                f"got {len(rows)} requests that both runs finished, expected at least {MIN_PAIRS}"
            )
        observed = after[:, rows] - before[:, rows]
        return Changes(
            plain=work,
            plain_config=config,
            other=Work.of(other, config),
            with_costs=with_costs,
            observed=observed,
            before_us=before[:, rows],
            plain_us=plain_us[:, rows],
            gaps=plain.column("output_tokens").to_numpy(np.float64)[rows] - 1,
            rows=rows,
            scales=np.array([_spread(part) for part in observed]),
        )

    @property
    def num_pairs(self) -> int:
        """How many requests both runs finished."""
        return len(self.rows)

    def left(self, costs_us: Floats) -> Floats:
        """Return the observed changes less the simulated ones, in typical sizes: [METRICS, requests]."""
        simulated = self.other.simulated(self.with_costs(costs_us))[:, self.rows]
        off = self.observed - (simulated - self.plain_us)
        return np.asarray(np.nan_to_num(off / self.scales[:, None]))

    @property
    def twin_off_frac(self) -> float:
        """How far the twin's mean E2E of the plain run is off, in parts of the observed one."""
        simulated, observed = (
            float(np.mean(ttft + np.nan_to_num(tpot) * self.gaps))
            for ttft, tpot in (self.plain_us, self.before_us)
        )
        return simulated / observed - 1

    def step_sigma(self, costs_us: Floats) -> float:
        """Return how much log step times of a run scatter, from how the TPOT off the twin's changes; 0: unknown.

        The twin's errors common to both runs cancel; twice the variance of one run is left.
        """
        runs = (
            (self.plain, self.plain_config, self.before_us),
            (self.other, self.with_costs(costs_us), self.before_us + self.observed),
        )
        before, after = (
            log_ratio(work.simulated(scattered(config, 0.0, seed=0))[:, self.rows], observed)
            for work, config, observed in runs
        )
        place = METRICS.index("tpot_us")
        return sigma_of(after[place] - before[place], self.gaps) / float(np.sqrt(2))

    def unexplained(self, costs_us: Floats) -> dict[str, float]:
        """Return the median change, µs, that is left over by metric."""
        return {
            name: float(np.median(part * scale))
            for name, part, scale in zip(METRICS, self.left(costs_us), self.scales, strict=True)
        }


def _check_alike(plain: Trace, other: Trace) -> None:
    same = len(plain) == len(other) and bool(
        (plain.requests["request_id"].to_numpy() == other.requests["request_id"].to_numpy()).all()
    )
    if not same:
        raise TraceError("got two traces of different requests, expected the same ones in the same order")


def _check_guided(plain: Trace, guided: Trace, *, num_guided: int) -> None:
    _check_alike(plain, guided)
    if num_guided == 0:
        raise TraceError(
            "guided: got a trace without guided requests, expected some (observe --guided SCHEMA.json)"
        )
    if plain.column("guided").fillna(False).any():
        raise TraceError("guided: got a plain run with guided requests, expected none")


def _latencies(trace: Trace) -> Floats:
    from traces import request_metrics

    metrics = request_metrics(trace)
    return np.stack([metrics[name].to_numpy(dtype=np.float64) for name in METRICS])


def _spread(values: Floats) -> float:
    """Return the typical size of changes around their middle, at least a microsecond."""
    known = values[np.isfinite(values)]
    middle = np.median(known) if len(known) else 0.0
    return max(deviation_of_median(float(np.median(np.abs(known - middle)))) if len(known) else 0.0, 1.0)


def _estimates(surface: ChangePlane, costs: Floats, *, scatter: Floats, seed: int) -> list[Estimate]:
    """Return both costs with intervals: the best for requests redrawn in blocks, plus ``scatter``."""
    block = max(block_length(part) for part in surface.level.reshape(len(METRICS), -1))
    drawn = over_resamples(
        lambda counts: np.array([np.maximum(surface.best(row.astype(np.float64)), 0.0) for row in counts]),
        surface.num_pairs,
        block,
        seed=seed,
        stream=8100,
    )
    generator = generator_of(seed, 8102)
    drawn = np.maximum(drawn + scatter * generator.normal(size=drawn.shape), 0.0)
    return [interval(value, drawn[:, i]) for i, value in enumerate(costs.tolist())]
