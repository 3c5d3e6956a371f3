"""Values with how often each occurred: mean and percentiles of many without a row for each."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def percentiles(
    values: NDArray[np.int64] | NDArray[np.float64], counts: NDArray[np.int64], percents: Sequence[float]
) -> list[float]:
    """Return percentiles, interpolated linearly as numpy does; ``values`` ascend. NaN where nothing was counted."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    if total == 0:
        return [float("nan")] * len(percents)
    ranks = [percent / 100 * (total - 1) for percent in percents]
    below = [int(rank) for rank in ranks]
    low = values[ends.searchsorted(below, side="right")].tolist()
    high = values[ends.searchsorted([min(each + 1, total - 1) for each in below], side="right")].tolist()
    return [
        float(a + (rank - each) * (b - a)) for a, b, rank, each in zip(low, high, ranks, below, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """``values`` (float64 [n], ascending) and how often each occurred (int64 [n], all above 0)."""

    values: NDArray[np.float64]
    counts: NDArray[np.int64]

    def mean(self) -> float:
        """Return the mean, NaN where nothing was counted."""
        total = int(self.counts.sum())
        return float((self.values * self.counts).sum() / total) if total else float("nan")

    def percentiles(self, percents: Sequence[float]) -> list[float]:
        """Return percentiles, NaN where nothing was counted."""
        return percentiles(self.values, self.counts, percents)


def histogram_of(counts: NDArray[np.int64], values: NDArray[np.float64]) -> Histogram:
    """Return what was counted at all."""
    occurs = counts > 0
    return Histogram(values=values[occurs], counts=counts[occurs].copy())
