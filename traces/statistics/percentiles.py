"""Percentiles of values that are sorted already: numpy's own function sorts them again, and takes 100 µs of Python."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def quantile_of(ordered: NDArray[np.float64], share: float) -> float:
    """Return the quantile of ascending values, at least one, none of them NaN; ``share``: from 0 to 1.

    Linear interpolation between the two around it, bit for bit as ``numpy.quantile`` computes it (definition 7 of
    Hyndman and Fan, "Sample Quantiles in Statistical Packages", 1996).
    """
    last = len(ordered) - 1
    place = last * share
    before = math.floor(place)
    if before >= last:
        return float(ordered[last])
    low, high, part = float(ordered[before]), float(ordered[before + 1]), place - before
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part


def percentile_of(ordered: NDArray[np.float64], percent: float) -> float:
    """Return a percentile of ascending values, as ``quantile_of``; ``percent``: from 0 to 100."""
    return quantile_of(ordered, percent / 100)


def median_of(ordered: NDArray[np.float64]) -> float:
    """Return the median of ascending values, at least one, as ``numpy.median`` computes it."""
    middle = len(ordered) // 2
    high = float(ordered[middle])
    return high if len(ordered) % 2 else (float(ordered[middle - 1]) + high) / 2
