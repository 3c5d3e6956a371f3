"""Amounts spread evenly over time, and how much of them falls into each stretch of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]


def spread(
    ends: Floats,
    start_us: Int64s,
    end_us: Int64s,
    amount: Floats,
    *,
    where: NDArray[np.int32],
    num_places: int,
) -> Floats:
    """Return amounts spread evenly from their start to their end, per stretch and place, float64 [T, places].

    ``ends`` [T] of the stretches; what lies beyond the last is in none. In O(n log T): the amount by a time is the sum,
    over the spans that have begun, of rate times age, less the same for those that have ended.
    """
    start, end = start_us.astype(np.float64), np.maximum(end_us, start_us + 1).astype(np.float64)
    rate = amount / (end - start)
    rates, offsets = np.zeros((len(ends), num_places)), np.zeros((len(ends), num_places))
    for at, sign in ((start, 1.0), (end, -1.0)):
        place = np.searchsorted(ends, at, side="left")
        inside = place < len(ends)
        flat = place[inside] * num_places + where[inside]
        size = len(ends) * num_places
        rates += np.bincount(flat, sign * rate[inside], minlength=size).reshape(rates.shape)
        offsets += np.bincount(flat, sign * (rate * at)[inside], minlength=size).reshape(rates.shape)
    by_then = np.cumsum(rates, axis=0) * ends[:, None] - np.cumsum(offsets, axis=0)
    return np.asarray(np.maximum(np.diff(by_then, axis=0, prepend=0.0), 0.0))
