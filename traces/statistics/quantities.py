"""How a number is distributed."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64s = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """How a number is distributed over requests (or tokens): n values, their mean and quantiles."""

    n: int
    mean: float
    stdev: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def quantity(values: Float64s) -> Quantity | None:
    """Return the distribution of the values that are not NaN (linear quantiles), None where none is."""
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return None
    low, p50, p90, p95, p99, high = np.quantile(values, (0.0, 0.5, 0.9, 0.95, 0.99, 1.0)).tolist()
    return Quantity(
        n=len(values),
        mean=float(values.mean()),
        stdev=float(values.std()),
        min=low,
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=high,
    )
