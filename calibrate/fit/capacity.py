"""What a trace says of the server's capacity: when its k-th answer was done, whoever's it was.

Above capacity a queue grows for as long as the run lasts, and a latency is the run's length more than the server's.
How fast answers come out is not: their times in order are one more thing that a fit compares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.bootstrap import Floats

GROWING = 1.5
"""Above capacity: so many times as many in flight over the last quarter of the arrivals as over the second."""
MIN_FINISHED = 40
RUN_UP = 0.2
"""The first share of the answers says more about the start than about the capacity."""


def is_above_capacity(arrival_us: Floats, done_us: Floats) -> bool:
    """Return whether the number in flight kept growing while requests arrived; times NaN where not finished."""
    known = np.isfinite(arrival_us) & np.isfinite(done_us)
    if known.sum() < MIN_FINISHED:
        return False
    begin, end = arrival_us[known], done_us[known]
    edges = np.quantile(begin, [0.25, 0.5, 0.75, 1.0])
    early = _mean_in_flight(begin, end, between=(edges[0], edges[1]))
    late = _mean_in_flight(begin, end, between=(edges[2], edges[3]))
    return bool(late > GROWING * max(early, 1.0))


def _mean_in_flight(begin: Floats, end: Floats, *, between: tuple[float, float]) -> float:
    """Return how many were in flight on average between two moments."""
    low, high = between
    overlap = np.clip(np.minimum(end, high) - np.maximum(begin, low), 0.0, None)
    return float(overlap.sum() / max(high - low, 1.0))


def in_order(done_us: Floats, rows: NDArray[np.int64], *, start_us: float) -> Floats:
    """Return, for each of ``rows``, the k-th of which was the k-th done when observed, when the k-th was done here.

    Counted from ``start_us``; NaN in every other row [n], inf where fewer were done.
    """
    times = np.full(len(done_us), np.nan)
    ends = np.sort(np.where(np.isfinite(done_us[rows]), done_us[rows] - start_us, np.inf))
    times[rows] = ends
    return times


def observed_in_order(arrival_us: Floats, done_us: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the finished rows in the order in which they were done, and ``in_order`` of them without the run-up."""
    rows = np.flatnonzero(np.isfinite(done_us))
    rows = rows[np.argsort(done_us[rows], kind="stable")]
    times = in_order(done_us, rows, start_us=float(np.nanmin(arrival_us)))
    times[rows[: int(RUN_UP * len(rows))]] = np.nan
    return rows, times
