"""Values with how often each occurred: mean and percentiles of many without a row for each."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def percentile(
    values: NDArray[np.int64] | NDArray[np.float64], counts: NDArray[np.int64], percent: float
) -> float:
    """Return a percentile, interpolated linearly as numpy does; ``values`` ascend. NaN where nothing was counted."""
    total = int(counts.sum())
    if total == 0:
        return float("nan")
    rank = percent / 100 * (total - 1)
    below = int(rank)
    ends = np.cumsum(counts)
    low = values[np.searchsorted(ends, below, side="right")]
    high = values[np.searchsorted(ends, min(below + 1, total - 1), side="right")]
    return float(low + (rank - below) * (high - low))


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """``values`` (float64 [n], ascending) and how often each occurred (int64 [n], all above 0)."""

    values: NDArray[np.float64]
    counts: NDArray[np.int64]

    def mean(self) -> float:
        """Return the mean, NaN where nothing was counted."""
        total = int(self.counts.sum())
        return float((self.values * self.counts).sum() / total) if total else float("nan")

    def percentile(self, percent: float) -> float:
        """Return a percentile, NaN where nothing was counted."""
        return percentile(self.values, self.counts, percent)


def histogram_of(counts: NDArray[np.int64], values: NDArray[np.float64]) -> Histogram:
    """Return what was counted at all."""
    occurs = counts > 0
    return Histogram(values=values[occurs], counts=counts[occurs].copy())
