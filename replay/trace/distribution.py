"""Mean and percentiles of a metric, as every table and document of a simulation gives them."""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

PERCENTILES = (50, 90, 95, 99)

Floats = NDArray[np.float64]


class Distribution(TypedDict):
    """A metric over the finished requests (or, for ITL, over all gaps), µs or tokens; None when there is none."""

    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


def distribution(values: Floats) -> Distribution:
    """Return mean and percentiles (linear interpolation) of the values that are not NaN."""
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return Distribution(mean=None, p50=None, p90=None, p95=None, p99=None)
    p50, p90, p95, p99 = (float(value) for value in np.percentile(known, PERCENTILES))
    return Distribution(mean=float(known.mean()), p50=p50, p90=p90, p95=p95, p99=p99)
