"""How much two sides of the same requests differ: statistics, errors, and the interval around each."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.gaps import Basis, one_basis
from calibrate.compare.pair import LATENCIES, Pairs
from calibrate.compare.samples import WeightedSample, spread_of, statistics_of
from traces.statistics.bootstrap import (
    LEVEL,
    MIN_REQUESTS,
    REPLICATES,
    Estimate,
    Floats,
    block_length,
    finite,
    interval,
    resamples,
    weighted_sums,
)
from traces.strict.arguments import ANY_SEED, Count, Number, check_fields

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
QUANTILES = np.array([0.5, 0.9, 0.95, 0.99])

METRICS = {
    "ttft_us": "ttft_us",
    "ttft_from_due_us": "ttft_from_due_us",
    "itl_us": "itl_mean_us",
    "tpot_us": "tpot_us",
    "e2e_us": "e2e_us",
    "queue_us": "queue_us",
}
"""Name in the report: the latency of one request that MAPE, bias and Pearson's R compare."""
_OF_FIRST_TOKEN = ("ttft_us", "ttft_from_due_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """How intervals are drawn; the same settings give the same intervals."""

    replicates: int = REPLICATES
    level: float = LEVEL
    seed: int = 42

    def __post_init__(self) -> None:
        """Check the numbers. Raises ConfigError."""
        check_fields(self, replicates=Count(0, 1_000_000), level=Number(0.01, 0.999), seed=ANY_SEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricErrors:
    """One metric of n requests on both sides (µs); errors are simulated minus observed.

    ``num_ratios``: those behind ``mape`` and ``bias``; an observed time of 0 has no relative error.
    ``mape``: mean of |error| / observed over requests. ``bias``: mean of error / observed.
    ``pearson_r``: of the requests' two values, ``spearman_r`` of their ranks. ``ks``: greatest distance between the
    two distributions, ``wasserstein_us``: the area between them. ``log_ratio_sd``: standard deviation of the
    logarithm of the ratio of the means, None without replicates. ``basis``: what the distributions are of.
    ``block``: neighbours that the bootstrap draws together.

    If the twin was run again (``Pairs.again``), every interval except those of R and of distances includes the
    run-to-run differences, and ``mape_expected`` is the MAPE of each request's expected value, the median over those
    runs; else it is None. All other values are of the first run.
    """

    n: int
    num_ratios: int
    observed: dict[str, float | None]
    simulated: dict[str, float | None]
    error: dict[str, Estimate]
    rel_error: dict[str, Estimate]
    mape: Estimate
    mape_expected: Estimate | None
    bias: Estimate
    pearson_r: Estimate
    spearman_r: Estimate
    ks: Estimate
    wasserstein_us: Estimate
    log_ratio_sd: float | None
    basis: Basis | None
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of the requests that have it on both sides, in order of time.

    ``stream``: of its resamples. ``rows``: which requests. ``per_request``: observed and simulated. ``again``: the
    latter in further runs [runs, n], None without any. ``sooner``: observed, had the first token come as early as it
    may have; None where that is known.
    """

    name: str
    stream: int
    rows: NDArray[np.intp]
    per_request: tuple[Floats, Floats]
    again: Floats | None
    sooner: Floats | None


def metrics_of(pairs: Pairs, only: Collection[str]) -> Iterator[Metric]:
    """Yield those of ``only`` that both sides have, in the order of ``METRICS``."""
    for stream, (name, column) in enumerate(METRICS.items()):
        observed, simulated = pairs.observed[column].to_numpy(), pairs.simulated[column].to_numpy()
        rows = np.flatnonzero(np.isfinite(observed) & np.isfinite(simulated))
        if name not in only or len(rows) == 0:
            continue
        early = (
            pairs.requests["ttft_too_long_us"].to_numpy()[rows] if name in _OF_FIRST_TOKEN else np.zeros(1)
        )
        yield Metric(
            name=name,
            stream=stream,
            rows=rows,
            per_request=(observed[rows], simulated[rows]),
            again=None if pairs.again is None else pairs.again[:, rows, LATENCIES.index(column)],
            sooner=np.maximum(observed[rows] - early, 0.0) if early.any() else None,
        )


def compare(
    pairs: Pairs, *, bootstrap: Bootstrap | None = None, only: Collection[str] = tuple(METRICS)
) -> dict[str, MetricErrors]:
    """Return the errors of every metric that both sides have, in the order of ``METRICS``."""
    settings = bootstrap or Bootstrap()
    gaps = one_basis(pairs.observed_gaps, pairs.simulated_gaps)
    found: dict[str, MetricErrors] = {}
    for metric in metrics_of(pairs, only):
        if metric.name == "itl_us" and 0 in (len(gaps[0].gap_us), len(gaps[1].gap_us)):
            continue
        rows = metric.rows
        if metric.name == "itl_us":
            sides = [side.take(rows, num_requests=len(pairs)) for side in gaps]
            samples = [WeightedSample.of_gaps(side, num_requests=len(rows)) for side in sides]
        else:
            samples = [WeightedSample.of_requests(side) for side in metric.per_request]
        found[metric.name] = compare_metric(
            metric.per_request,
            samples=(samples[0], samples[1]),
            settings=settings,
            stream=metric.stream,
            basis=gaps[0].basis if metric.name == "itl_us" else None,
            again=metric.again,
        )
        if metric.sooner is not None:
            other = compare_metric(
                (metric.sooner, metric.per_request[1]),
                samples=(WeightedSample.of_requests(metric.sooner), samples[1]),
                settings=settings,
                stream=metric.stream,
                again=metric.again,
            )
            found[metric.name] = _with_both(found[metric.name], other)
    return found


def relative_errors(
    pairs: Pairs, *, bootstrap: Bootstrap, only: Collection[str]
) -> dict[str, tuple[Estimate, Estimate]]:
    """Return MAPE and bias by metric: ``compare``'s, a fifth of its work."""
    found = {}
    for metric in metrics_of(pairs, only):
        found[metric.name] = _relative_alone(metric, metric.per_request[0], bootstrap)
        if metric.sooner is not None:
            other = _relative_alone(metric, metric.sooner, bootstrap)
            mape, bias = (hull(one, two) for one, two in zip(found[metric.name], other, strict=True))
            found[metric.name] = mape, bias
    return found


def _relative_alone(metric: Metric, observed: Floats, settings: Bootstrap) -> tuple[Estimate, Estimate]:
    """Return MAPE and bias of one metric, with intervals where its requests are enough."""
    per_request, n = (observed, metric.per_request[1]), len(observed)
    once = np.ones((1, n), np.float32)
    values = [float(each[0]) for each in _relative_errors(per_request, once)]
    if n < MIN_REQUESTS:
        return Estimate(value=finite(values[0])), Estimate(value=finite(values[1]))
    runs = None if metric.again is None else FurtherRuns.of(per_request[1], metric.again, has_gaps=True)
    drawn = np.empty((2, settings.replicates))
    for which, counts in resamples(
        n,
        block_length(_relative(per_request[1] - observed, observed)),
        replicates=settings.replicates,
        seed=settings.seed,
        stream=1000 * metric.stream,
    ):
        pace = None if runs is None else runs.usual[runs.number(which.start, len(counts))]
        drawn[:, which] = _relative_errors(per_request, counts, pace=pace)
    mape, bias = (
        interval(value, each, level=settings.level) for value, each in zip(values, drawn, strict=True)
    )
    return mape, bias


def hull(one: Estimate, two: Estimate) -> Estimate:
    """Return the first with an interval that reaches over both; as it is where one of them has none."""
    if one.low is None or one.high is None or two.low is None or two.high is None:
        return one
    return replace(one, low=min(one.low, two.low), high=max(one.high, two.high))


def _with_both(found: MetricErrors, other: MetricErrors) -> MetricErrors:
    """Return the errors with intervals that reach over both: TTFT as recorded, and as early as it may have been."""
    return replace(
        found,
        error={name: hull(each, other.error[name]) for name, each in found.error.items()},
        rel_error={name: hull(each, other.rel_error[name]) for name, each in found.rel_error.items()},
        mape=hull(found.mape, other.mape),
        bias=hull(found.bias, other.bias),
    )


def compare_metric(
    per_request: tuple[Floats, Floats],
    *,
    samples: tuple[WeightedSample, WeightedSample],
    settings: Bootstrap,
    stream: int,
    basis: Basis | None = None,
    again: Floats | None = None,
) -> MetricErrors:
    """Return one metric's errors; ``per_request`` are the two values of each request in order of time.

    ``again``: the simulated values in further runs [runs, n].
    """
    observed, simulated = (side.statistics(QUANTILES) for side in samples)
    expected, block, drawn = _drawn(per_request, samples, again, settings=settings, stream=stream)

    def between(value: float, key: str) -> Estimate:
        return interval(value, drawn[key], level=settings.level) if drawn else Estimate(value=finite(value))

    def expected_mape() -> Estimate | None:
        return None if expected is None else between(_of_all((per_request[0], expected))[2], "mape_expected")

    off = simulated - observed
    ratios = _relative(off, observed)
    error = {name: between(off[i], f"error {name}") for i, name in enumerate(STATISTICS)}
    rel_error = {name: between(ratios[i], f"rel_error {name}") for i, name in enumerate(STATISTICS)}
    r, spearman, mape, bias = _of_all(per_request)
    return MetricErrors(
        n=len(per_request[0]),
        num_ratios=int(np.isfinite(_relative(per_request[1] - per_request[0], per_request[0])).sum()),
        observed=_named(observed),
        simulated=_named(simulated),
        error=error,
        rel_error=rel_error,
        mape=between(mape, "mape"),
        mape_expected=expected_mape(),
        bias=between(bias, "bias"),
        pearson_r=between(r, "pearson_r"),
        spearman_r=between(spearman, "spearman_r"),
        ks=_band(samples[0].distance(samples[1]), drawn.get("ks_reach"), level=settings.level, most=1.0),
        wasserstein_us=_band(
            samples[0].wasserstein(samples[1]), drawn.get("wasserstein_reach"), level=settings.level
        ),
        log_ratio_sd=_log_sd(drawn.get("rel_error mean")),
        basis=basis,
        block=block,
    )


def _drawn(
    per_request: tuple[Floats, Floats],
    samples: tuple[WeightedSample, WeightedSample],
    again: Floats | None,
    *,
    settings: Bootstrap,
    stream: int,
) -> tuple[Floats | None, int, dict[str, Floats]]:
    """Return each request's expected value in further runs, the block that is drawn, and the replicates."""
    runs = (
        None
        if again is None
        else FurtherRuns.of(per_request[1], again, has_gaps=samples[1].binned is not None)
    )
    expected = None if again is None else np.median(again, axis=0)
    block = block_length(_relative(per_request[1] - per_request[0], per_request[0]))
    drawn = _replicates(
        per_request,
        samples=samples,
        runs=runs,
        expected=expected,
        settings=settings,
        block=block,
        stream=stream,
    )
    return expected, block, drawn


def _named(statistics: Floats) -> dict[str, float | None]:
    return dict(zip(STATISTICS, map(finite, statistics), strict=True))


def _of_all(per_request: tuple[Floats, Floats]) -> tuple[float, float, float, float]:
    """Return Pearson's and Spearman's correlation, MAPE and bias of all requests, each counted once."""
    once = np.ones((1, len(per_request[0])), dtype=np.float32)
    mape, bias = (float(value[0]) for value in _relative_errors(per_request, once))
    return (
        float(correlation(per_request, once)[0]),
        float(correlation(_ranks(per_request), once)[0]),
        mape,
        bias,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherRuns:
    """One metric in further runs of the twin; each replicate is of one of them, in turn.

    ``samples``: of each run, one value per request. There are none for gaps, which further runs do not record: the
    first run's gaps are used, ``pace`` [runs] times as long. ``usual`` [runs]: a run's mean over that of all.
    """

    samples: tuple[WeightedSample, ...]
    pace: Floats
    usual: Floats

    @staticmethod
    def of(first: Floats, again: Floats, *, has_gaps: bool) -> FurtherRuns:
        """Return the runs [runs, n] beside the ``first`` [n]."""
        means, first_mean = again.mean(axis=1), float(first.mean())
        one = np.ones(len(means))
        return FurtherRuns(
            samples=() if has_gaps else tuple(WeightedSample.of_requests(run) for run in again),
            pace=means / first_mean if first_mean else one,
            usual=means / means.mean() if means.mean() else one,
        )

    def number(self, first: int, size: int) -> NDArray[np.int64]:
        """Return the run of each of ``size`` replicates from the ``first`` on."""
        return (first + np.arange(size)) % len(self.pace)

    def resampled(
        self, sample: WeightedSample, counts: NDArray[np.float32], number: NDArray[np.int64]
    ) -> Floats:
        """Return mean and quantiles of each row of counts [replicates, n], of the run with its ``number``."""
        if not self.samples:
            return sample.resampled(counts, QUANTILES) * self.pace[number][:, None]
        found = np.empty((len(counts), 1 + len(QUANTILES)))
        for run in np.unique(number):
            rows = number == run
            found[rows] = self.samples[run].resampled(counts[rows], QUANTILES)
        return found


def _relative(difference: Floats, reference: Floats) -> Floats:
    """Return difference / reference, NaN where the reference is 0 and no ratio exists."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = difference / reference
    return np.where(reference != 0, ratio, np.nan)


def correlation(two: tuple[Floats, Floats], counts: NDArray[np.floating]) -> Floats:
    """Return Pearson's R of the two values in each row of counts; NaN where one of them does not vary."""
    weights = counts.astype(np.float64, copy=False)
    # Centred first: sums of squares of large times would lose the digits that R is made of.
    x, y = two[0] - two[0].mean(), two[1] - two[1].mean()
    total = weights.sum(axis=1)
    mean_x, mean_y, mean_xx, mean_yy, mean_xy = (
        weighted_sums(weights, each) / total for each in (x, y, x * x, y * y, x * y)
    )
    covariance = mean_xy - mean_x * mean_y
    spread = (mean_xx - mean_x**2) * (mean_yy - mean_y**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = np.where(spread > 0, covariance / np.sqrt(np.maximum(spread, 0)), np.nan)
    return np.clip(r, -1, 1)


def _ranks(two: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
    """Return both sides' ranks, ties sharing their middle one: Pearson's R of these is Spearman's.

    A resample keeps the ranks of the whole sample: ranking every replicate again would cost a sort each and changes R
    by far less than the interval's width.
    """

    def ranks(values: Floats) -> Floats:
        _, place, num = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(num) - (num - 1) / 2)[place]

    return ranks(two[0]), ranks(two[1])


def _relative_errors(
    per_request: tuple[Floats, Floats], counts: NDArray[np.floating], *, pace: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return MAPE and bias of each row of counts, the simulated values this many times as long; NaN where undefined."""
    if pace is not None and (pace != pace[0]).any():
        mape, bias = np.empty(len(counts)), np.empty(len(counts))
        for each in np.unique(pace):
            rows = pace == each
            mape[rows], bias[rows] = _relative_errors(per_request, counts[rows], pace=pace[rows])
        return mape, bias
    observed, simulated = per_request
    relative = _relative(simulated * (1.0 if pace is None else pace[0]) - observed, observed)
    known = np.isfinite(relative)
    weights = counts.astype(np.float64, copy=False)
    if not known.all():
        weights, relative = weights[:, known], relative[known]
    drawn = weights.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mape = weighted_sums(weights, np.abs(relative)) / drawn
        bias = weighted_sums(weights, relative) / drawn
    return mape, bias


def _replicates(
    per_request: tuple[Floats, Floats],
    *,
    samples: tuple[WeightedSample, WeightedSample],
    runs: FurtherRuns | None = None,
    expected: Floats | None = None,
    settings: Bootstrap,
    block: int,
    stream: int,
) -> dict[str, Floats]:
    """Return every statistic's value in every replicate; empty where the requests are too few."""
    n = len(per_request[0])
    if n < MIN_REQUESTS:
        return {}
    spread, ranks = spread_of(samples, num_requests=n), _ranks(per_request)
    chunks: list[dict[str, Floats]] = []
    for which, counts in resamples(
        n, block, replicates=settings.replicates, seed=settings.seed, stream=1000 * stream
    ):
        number = None if runs is None else runs.number(which.start, len(counts))
        drawn = [sample.drawn(counts) for sample in samples]
        observed = statistics_of(drawn[0], QUANTILES)
        if runs is None or number is None:
            simulated = statistics_of(drawn[1], QUANTILES)
        else:
            simulated = runs.resampled(samples[1], counts, number)
        error = simulated - observed
        chunk = {f"error {name}": error[:, i] for i, name in enumerate(STATISTICS)}
        ratio = _relative(error, observed)
        chunk |= {f"rel_error {name}": ratio[:, i] for i, name in enumerate(STATISTICS)}
        weights = counts.astype(np.float64)
        chunk["pearson_r"] = correlation(per_request, weights)
        pace = None if runs is None or number is None else runs.usual[number]
        chunk["mape"], chunk["bias"] = _relative_errors(per_request, weights, pace=pace)
        if expected is not None:
            chunk["mape_expected"] = _relative_errors((per_request[0], expected), weights, pace=pace)[0]
        chunk["spearman_r"] = correlation(ranks, weights)
        chunk["ks_reach"], chunk["wasserstein_reach"] = spread.reach(drawn)
        chunks.append(chunk)
    return {key: np.concatenate([chunk[key] for chunk in chunks]) for key in chunks[0]}


def _band(value: float, reach: Floats | None, *, level: float, most: float = np.inf) -> Estimate:
    """Return a distance between distributions and an interval that holds it at least as often as stated.

    A replicate's KS differs from KS by at most the sup of |(F* - G*) - (F - G)|, whose quantile is the
    half-width; percentiles of KS itself would lie above the value, since resampling only adds distance. The same
    holds for Wasserstein's distance and the area below |(F* - G*) - (F - G)|.
    """
    if reach is None:
        return Estimate(value=finite(value))
    half = float(np.quantile(reach, level))
    return Estimate(value=value, low=max(0.0, value - half), high=min(most, value + half))


def _log_sd(rel_error: Floats | None) -> float | None:
    """Return the spread of log(1 + relative error) over the replicates, None where it has none."""
    if rel_error is None:
        return None
    ratio = 1 + rel_error[np.isfinite(rel_error)]
    return float(np.std(np.log(ratio))) if len(ratio) and bool((ratio > 0).all()) else None
