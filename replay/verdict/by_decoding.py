"""Growth without a queue: requests are admitted at once, and each of them is served ever more slowly.

A step takes longer the more requests it decodes for. At a steady rate below what steps can bear, the number in the
server rises to where it stays: whoever comes finds ``n`` there and leaves ``a + u · n`` behind, with ``u`` below 1 (in
the time that it stays, as many come; see ``growth``). Above, ``u`` is more than 1, and the number has no end.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
NO_END = 0.97
"""The least ``u`` of a number that has no end, as far as unlike lengths let it be seen: they make it look smaller."""
PILED_UP = 0.05
"""The share of what came that piled up, at least: a load that rises slowly keeps the number near where it stays."""
SLOWER = 1.5
"""A stay that grows by this factor is noticed."""
FEWEST = 20
"""Requests that came and left while the number grew, at least, for their slope to tell."""
BURST = 1.5
"""What is sent within a stay is an overload if it is sent this many times as fast as it is then answered."""
SURPLUS = 3.0
"""So many roots of what came, at least, are sent beyond what the server ever serves in as long a time."""
EDGE = 0.1
"""The share of the requests, from either end, whose stays are compared,"""
FEWEST_AT_EDGE = 5
"""and at least so many."""


def has_no_end(came_us: Int64s, left_us: Int64s, *, from_us: float, to_us: float, unevenness: float) -> bool:
    """Return whether the number in the server, which grew between two times, would have grown on and on.

    Times when requests came, ascending, and left, µs, int64 [n]. ``unevenness``: of arrivals, 1 for a Poisson process.
    """
    here = (came_us >= from_us) & (came_us <= to_us)
    came, left = came_us[here], left_us[here]
    if len(came) < FEWEST:
        return False
    gone = np.sort(left_us)
    there = _there(came_us, gone, np.array([from_us - 1, to_us], np.float64))
    if there[1] - there[0] < PILED_UP * len(came) or not _is_slower(came_us, left_us, here):
        return False
    if len(came) - _served_most(came_us, left_us, to_us - from_us) < SURPLUS * np.sqrt(
        len(came) * unevenness
    ):
        return False
    through = left <= to_us
    if int(through.sum()) < FEWEST:
        return _is_burst(came, left, gone, to_us=to_us)
    found = _there(came_us, gone, came[through].astype(np.float64) - 1)
    behind = _there(came_us, gone, left[through].astype(np.float64))
    spread = float(found.var())
    if spread == 0.0:
        return False
    return float(((found - found.mean()) * (behind - behind.mean())).mean()) / spread >= NO_END


def _there(came_us: Int64s, gone_us: Int64s, times_us: Floats) -> Floats:
    """Return how many had come and not gone at each time."""
    there = np.searchsorted(came_us, times_us, side="right") - np.searchsorted(
        gone_us, times_us, side="right"
    )
    return there.astype(np.float64)


def _served_most(came_us: Int64s, left_us: Int64s, span_us: float) -> float:
    """Return how many requests' worth was served, at most, within any time of a length.

    Each is served evenly over its stay: answers of requests that came together come together.
    """
    pace = 1 / np.maximum(left_us - came_us, 1).astype(np.float64)
    times = np.concatenate([came_us, left_us]).astype(np.float64)
    order = np.argsort(times, kind="stable")
    times = times[order]
    paces = np.cumsum(np.concatenate([pace, -pace])[order])
    served = np.concatenate([[0.0], np.cumsum(paces[:-1] * np.diff(times))])
    return float((np.interp(times + span_us, times, served) - served).max())


def _is_slower(came_us: Int64s, left_us: Int64s, here: NDArray[np.bool_]) -> bool:
    """Return whether the last of some requests stayed much longer than the first, or than those before them."""
    places = np.flatnonzero(here)
    few = max(int(EDGE * len(places)), FEWEST_AT_EDGE)
    stays = (left_us - came_us).astype(np.float64)
    before = stays[max(int(places[0]) - few, 0) : places[0]]
    first = min(float(np.mean(each)) for each in (before, stays[places[:few]]) if len(each))
    return float(stays[places[-few:]].mean()) >= SLOWER * first


def _is_burst(came_us: Int64s, left_us: Int64s, gone_us: Int64s, *, to_us: float) -> bool:
    """Return whether requests, hardly any of which left before the last came, came much faster than they left."""
    stayed = max(float(np.median(left_us)) - float(np.median(came_us)), 1.0)
    num_left = np.searchsorted(gone_us, to_us + stayed, side="right") - np.searchsorted(gone_us, to_us)
    sent_per_us = len(came_us) / max(to_us - float(came_us[0]), 1.0)
    return sent_per_us >= BURST * float(num_left) / stayed
