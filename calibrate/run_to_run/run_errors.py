"""How far a twin's own error can change a mean or a p99 from one run to another, by the runs of its fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibrate.compare.pair import Pairs
from traces.statistics.bootstrap import MIN_REQUESTS, Floats

METRICS = ("ttft_us", "tpot_us", "e2e_us")
STATISTICS = ("mean", "p99")
ONCE_IN_TWENTY = 1.96 * 2**0.5
"""Two normal values differ by more than so many standard deviations once in twenty."""


def statistics_of(values: Floats) -> Floats:
    """Return the mean and the p99 of a latency over a run's requests, in its unit."""
    return np.array([values.mean(), np.quantile(values, 0.99)])


def own_errors(runs: Sequence[Pairs]) -> Mapping[str, float]:
    """Return the least change between two runs that a twin's own error cannot make, by names such as ``ttft_p99``.

    A fraction. The error of a run is simulated / observed - 1. It is the largest of any run, or, where that is more,
    the difference that the errors of two further runs reach once in twenty, by the errors' standard deviation. A run
    with few requests of a metric does not count; without any other the metric is left out.
    """
    found: dict[str, list[float]] = {}
    for metric in METRICS:
        for each in runs:
            both = np.array([side[metric].to_numpy(np.float64) for side in (each.observed, each.simulated)])
            seen, made = both[:, np.isfinite(both).all(axis=0)]
            if len(seen) < MIN_REQUESTS or seen.max() <= 0:
                continue
            errors = statistics_of(made) / statistics_of(seen) - 1
            for statistic, error in zip(STATISTICS, errors, strict=True):
                found.setdefault(f"{metric.removesuffix('_us')}_{statistic}", []).append(float(error))
    return {name: float(f"{_reach(np.array(errors)):.4g}") for name, errors in found.items()}


def _reach(errors: Floats) -> float:
    spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0
    return max(float(np.abs(errors).max()), ONCE_IN_TWENTY * spread)
