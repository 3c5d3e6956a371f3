"""Inter-token latencies out of the engine's spans: each gap of each request, without a row per token.

The engine logs spans of steps that gave tokens and, for each request, its first and last of them; a request that
got nothing in between has its pauses listed. A gap is the distance of two consecutive emissions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.jit.compile import engine_entry, part
from sim.records.histograms import percentiles

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

FEW = 64
"""Up to this many largest gaps are kept in order, more in a heap."""
TIGHT = 4
"""If the largest value is at most this many times their number, values are counted in a table of all between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterTokenLatencies:
    """Per request (n): mean and 99th percentile of its gaps, NaN below two tokens, µs, float64.

    Pooled: ``gaps_us`` ascending with how often each occurred, over all tokens of all requests. alpha2 is in each
    gap, rounded by itself: where it is no whole number, p99 and pool may be 1 µs off the tokens' own times.
    """

    mean_us: Floats
    p99_us: Floats
    gaps_us: Int64s
    counts: Int64s

    def pooled_mean_us(self) -> float:
        """Return the mean over all gaps, NaN when there is none."""
        total = int(self.counts.sum())
        return float((self.gaps_us * self.counts).sum() / total) if total else float("nan")

    def pooled_percentiles_us(self, percents: Sequence[float]) -> list[float]:
        """Return percentiles over all gaps, interpolated linearly as numpy does, NaN when there is none."""
        return percentiles(self.gaps_us, self.counts, percents)


@engine_entry
def put_emission_times(first_end_us: Int64s, step_us: Int64s, num_steps: Int64s, times: Int64s) -> None:
    """Write the time of every step that gave tokens."""
    at = 0
    for i in range(len(num_steps)):
        for k in range(num_steps[i]):
            times[at] = first_end_us[i] + k * step_us[i]
            at += 1


def latencies_of_tokens(
    request: Int64s, time_us: Int64s, *, mean_us: Floats, delay_us: int
) -> InterTokenLatencies:
    """Return the gaps of n requests from their tokens in the order of the steps; the rest as below.

    Tokens that a request gets at once share the gap to those before: divided among them, in whole µs that add up.
    """
    order = np.argsort(request, kind="stable")
    request, time_us = request[order], time_us[order]
    is_new = np.ones(len(request), np.bool_)
    is_new[1:] = (request[1:] != request[:-1]) | (time_us[1:] != time_us[:-1])
    starts = np.flatnonzero(is_new)
    sizes = np.diff(np.append(starts, len(request)))
    owner, ends = request[starts], time_us[starts]
    follows = np.zeros(len(starts), np.bool_)
    follows[1:] = owner[1:] == owner[:-1]
    gaps, sizes = np.where(follows, np.diff(ends, prepend=0), 0), sizes - ~follows  # a first token has no gap
    position = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    per_token, rest = np.divmod(gaps, np.maximum(sizes, 1))
    shares = np.repeat(per_token, sizes) + (position < np.repeat(rest, sizes))
    p99 = _ninety_ninth_of(np.repeat(owner, sizes), shares, num_requests=len(mean_us))
    values, pooled = np.unique(shares, return_counts=True)
    return InterTokenLatencies(
        mean_us=mean_us, p99_us=p99 + delay_us, gaps_us=values + delay_us, counts=pooled
    )


def _ninety_ninth_of(owner: Int64s, gaps: Int64s, *, num_requests: int) -> Floats:
    """Return the 99th percentile of each request's gaps, given with the request that each belongs to."""
    gaps = gaps[np.lexsort((gaps, owner))]
    counts = np.bincount(owner, minlength=num_requests)
    starts = np.cumsum(counts) - counts
    has_any = counts > 0
    rank = 0.99 * (counts[has_any] - 1)
    below = rank.astype(np.int64)
    low = gaps[starts[has_any] + below]
    high = gaps[starts[has_any] + np.minimum(below + 1, counts[has_any] - 1)]
    p99 = np.full(num_requests, np.nan)
    p99[has_any] = np.round(low + (rank - below) * (high - low), 3)
    return p99


@part
def _insert(largest: Int64s, num: int, gap: int) -> None:
    """Put a gap in the place of the least of ``num`` that ascend."""
    at = 0
    while at + 1 < num and largest[at + 1] < gap:
        largest[at] = largest[at + 1]
        at += 1
    largest[at] = gap


@part
def _replace_least(largest: Int64s, num: int, gap: int) -> None:
    """Put a gap in the place of the least of ``num`` in a heap, the least at its head."""
    at, child = 0, 1
    while child < num:
        if child + 1 < num and largest[child + 1] < largest[child]:
            child += 1
        if largest[child] >= gap:
            break
        largest[at] = largest[child]
        at, child = child, 2 * child + 1
    largest[at] = gap


@part
def _put_gaps(
    gaps: Int64s,
    times: Int64s,
    first: int,
    last: int,
    pause_last: Int64s,
    pause_next: Int64s,
    first_pause: int,
    end_pause: int,
) -> int:
    """Write one request's gaps, in the order of its tokens; return how many there are."""
    length, at = 0, first
    for p in range(first_pause, end_pause + 1):
        end = pause_last[p] if p < end_pause else last
        while at < end:
            gaps[length] = times[at + 1] - times[at]
            length += 1
            at += 1
        if p < end_pause:
            gaps[length] = times[pause_next[p]] - times[at]
            length += 1
            at = pause_next[p]
    return length


def ninety_ninth(
    times: Int64s, first: Int64s, last: Int64s, pause_starts: Int64s, pause_last: Int64s, pause_next: Int64s
) -> Floats:
    """Return the 99th percentile of each request's gaps; pauses are sorted by request, then time."""
    longest = int((last - first).max(initial=1))
    gaps, largest = np.empty(longest, np.int64), np.empty(longest // 100 + 3, np.int64)
    p99 = np.empty(len(first), np.float64)
    put_ninety_ninth(times, first, last, pause_starts, pause_last, pause_next, gaps, largest, p99)
    return p99


@engine_entry
def put_ninety_ninth(  # noqa: PLR0913, PLR0917 - it makes no arrays
    times: Int64s,
    first: Int64s,
    last: Int64s,
    pause_starts: Int64s,
    pause_last: Int64s,
    pause_next: Int64s,
    gaps: Int64s,
    largest: Int64s,
    p99: Floats,
) -> None:
    """Write the 99th percentile of each request's gaps to ``p99``; ``gaps`` and ``largest`` hold those of one request.

    Written as loops: numba takes five seconds to compile numpy's function for it. It makes no arrays: what does
    brings numba's reference counting with it, which takes 30 ms to load.
    """
    for r in range(len(first)):
        p99[r] = math.nan
        if first[r] < 0 or last[r] == first[r]:
            continue
        length = _put_gaps(
            gaps, times, first[r], last[r], pause_last, pause_next, pause_starts[r], pause_starts[r + 1]
        )
        below = int(0.99 * (length - 1))
        num = length - below
        for i in range(num):
            largest[i] = -1
        if num <= FEW:
            for i in range(length):
                if gaps[i] > largest[0]:
                    _insert(largest, num, gaps[i])
            low, high = largest[0], largest[min(1, num - 1)]
        else:
            for i in range(length):
                if gaps[i] > largest[0]:
                    _replace_least(largest, num, gaps[i])
            low, high = largest[0], min(largest[1], largest[2])
        p99[r] = low + (0.99 * (length - 1) - below) * (high - low)


def inter_token_latencies(
    *,
    spans: NDArray[np.void],
    pauses: NDArray[np.void],
    first_emission: Int64s,
    last_emission: Int64s,
    mean_us: Floats,
    delay_us: int,
) -> InterTokenLatencies:
    """Return the gaps of n requests from the engine's SPAN and PAUSE records and each request's first and last.

    ``mean_us`` is taken as it is, exact; every other gap is ``delay_us`` longer than its steps are apart.
    """
    num_requests = len(first_emission)
    first_end, step, num = (
        np.ascontiguousarray(spans[name]) for name in ("first_end_us", "step_us", "num_steps")
    )
    times = np.empty(num.sum(), np.int64)
    put_emission_times(first_end, step, num, times)
    first_of_its = first_emission[pauses["request"]]
    pauses = pauses[(first_of_its >= 0) & (pauses["last_emission"] >= first_of_its)]  # the rest was undone
    pauses = pauses[np.lexsort((pauses["last_emission"], pauses["request"]))]
    starts = np.searchsorted(pauses["request"], np.arange(num_requests + 1)).astype(np.int64)
    pause_last = np.ascontiguousarray(pauses["last_emission"])
    pause_next = np.ascontiguousarray(pauses["next_emission"])
    first, last = first_emission.astype(np.int64), last_emission.astype(np.int64)
    p99 = np.round(ninety_ninth(times, first, last, starts, pause_last, pause_next), 3)
    weights = np.zeros(len(times) + 1, np.int64)
    got_tokens = first >= 0
    np.add.at(weights, first[got_tokens], 1)
    np.subtract.at(weights, last[got_tokens], 1)
    np.subtract.at(weights, pause_last, 1)
    np.add.at(weights, pause_next, 1)
    consecutive = np.cumsum(weights)[: max(0, len(times) - 1)]
    gaps = np.concatenate([np.diff(times), times[pause_next] - times[pause_last]])
    counts = np.concatenate([consecutive, np.ones(len(pause_next), np.int64)])
    values, pooled = summed(gaps[counts > 0], counts[counts > 0])
    return InterTokenLatencies(
        mean_us=mean_us, p99_us=p99 + delay_us, gaps_us=values + delay_us, counts=pooled
    )


def summed(values: Int64s, counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct values, ascending, and for each the sum of its counts; values are 0 or more, counts 1."""
    if len(values) and int(values.max()) <= TIGHT * len(values):  # without sorting: a tenth of the time
        sums = np.bincount(values, weights=counts).astype(np.int64)
        distinct = np.flatnonzero(sums)
        return distinct, sums[distinct]
    distinct, place = np.unique(values, return_inverse=True)
    return distinct, np.bincount(place, weights=counts, minlength=len(distinct)).astype(np.int64)
