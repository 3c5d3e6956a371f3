"""Mean and percentiles of a metric, as every table and document of a simulation gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from traces.statistics.percentiles import percentile_of

PERCENTILES = (25, 50, 75, 90, 95, 99, 99.9)

Floats = NDArray[np.float64]

Distribution = TypedDict(
    "Distribution",
    {
        "mean": float | None,
        "p25": float | None,
        "p50": float | None,
        "p75": float | None,
        "p90": float | None,
        "p95": float | None,
        "p99": float | None,
        "p99.9": float | None,
        "min": float | None,
        "max": float | None,
        "n": int,
    },
)
"""A metric over the finished requests (or, for ITL, over all gaps), µs or tokens; None when there is none.

``n``: how many values there are.
"""


def distribution(values: Floats) -> Distribution:
    """Return mean and percentiles (linear interpolation) of the values that are not NaN."""
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return distribution_of(None, [None] * len(PERCENTILES), n=0, ends=(None, None))
    ordered = np.sort(known)
    percentiles = [percentile_of(ordered, each) for each in PERCENTILES]
    ends = float(ordered[0]), float(ordered[-1])
    return distribution_of(float(known.mean()), percentiles, n=len(known), ends=ends)


def distribution_of(
    mean: float | None,
    percentiles: Sequence[float | None],
    *,
    n: int,
    ends: tuple[float | None, float | None],
) -> Distribution:
    """Return a distribution of its mean, its ``PERCENTILES``, in their order, its ``n`` values, and their ``ends``."""
    p25, p50, p75, p90, p95, p99, p999 = percentiles
    return {
        "mean": mean,
        "p25": p25,
        "p50": p50,
        "p75": p75,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "p99.9": p999,
        "min": ends[0],
        "max": ends[1],
        "n": n,
    }
