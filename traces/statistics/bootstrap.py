"""The moving-block bootstrap: resampling requests in runs, since neighbours in time share a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.90
"""Share of intervals that should contain the true value."""
REPLICATES = 1000
MIN_REQUESTS = 8
"""With fewer requests than this there is no interval: it would not be reliable."""
RUN = 5
"""This many correlations in a row must be no larger than chance; sqrt(log10 n) exceeds it from 10²⁵ requests on."""
CHUNK_CELLS = 200_000
"""So many counts are drawn at a time, 24 bytes each, whatever the number of requests: they stay in the core's cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number and the interval around it; None where it is undefined or the requests are too few."""

    value: float | None
    low: float | None = None
    high: float | None = None


def finite(value: float) -> float | None:
    """Return the number, or None for NaN and infinities: JSON has neither."""
    return float(value) if np.isfinite(value) else None


def interval(value: float, replicates: Floats, *, level: float = LEVEL) -> Estimate:
    """Return the value between the replicates' percentiles (NaN replicates are ignored)."""
    known = replicates[np.isfinite(replicates)]
    if len(known) < len(replicates) / 2 or len(known) == 0 or not np.isfinite(value):
        return Estimate(value=finite(value))
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(value=float(value), low=float(low), high=float(high))


def block_length(series: Floats) -> int:
    """Return how many neighbours a block holds, 1 or more, from how far the correlation of ``series`` [n] reaches.

    Values that are not finite (a request without an end, a relative error of nothing) are left out.
    Politis & White, Econometric Reviews 23 (2004), with Patton's correction (2009), circular blocks.
    """
    known = series[np.isfinite(series)]
    n = len(known)
    if not n or (known == known[0]).all():
        return 1
    scaled = np.ldexp(known, -int(np.frexp(np.abs(known).max())[1]))  # exact, and no square overflows
    centred = scaled - scaled.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * n)) ** 2
    covariance = np.fft.irfft(spectrum)[:n] / n
    reach = _last_significant_lag(covariance / covariance[0])
    lags = np.arange(1, 2 * reach)  # further ones have no weight; none is beyond n - 1
    taper = np.minimum(2 * (1 - lags / (2 * reach)), 1)
    slope = 2 * float(np.sum(taper * lags * covariance[lags]))
    density = covariance[0] + 2 * float(np.sum(taper * covariance[lags]))
    if density <= 0:
        return 1
    best = (2 * slope**2 / (4 / 3 * density**2)) ** (1 / 3) * n ** (1 / 3)
    return int(np.clip(np.ceil(best), 1, np.ceil(min(3 * np.sqrt(n), n / 3))))


def _last_significant_lag(correlation: Floats) -> int:
    """Return the lag after which a run of correlations is indistinguishable from none."""
    n = len(correlation)
    limit = int(np.ceil(np.sqrt(n))) + RUN
    small = np.abs(correlation[1 : limit + 1]) < 2 * np.sqrt(np.log10(n) / n)
    for lag in range(len(small) - RUN):
        if small[lag : lag + RUN].all():
            return lag
    return max(len(small) - RUN, 0)


def generator_of(seed: int, stream: int) -> np.random.Generator:
    """Return the generator of a seed and a stream, from 0 on; of a negative seed, or a long one, its last 64 bits.

    A list of such a number and a small one would become floats, of which all negative seeds are the same.
    """
    key = np.array([seed & (2**64 - 1), stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


SCRATCH_CELLS = 16_000
"""So many are counted at a time: arrays of more than 128 KB come from the system page by page, five times as slow."""
STRETCH = 128
"""So many values are counted together where a quantile is looked for, and one by one where it lies."""


def resamples(
    n: int, block: int, *, replicates: int, seed: int, stream: int
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield (which, counts [some, n]): how often each of n requests, in order of time, is drawn; rows sum to n.

    Blocks are circular, so that every request is drawn equally often; the last one is cut to fit. Together
    come as many resamples as hold ``CHUNK_CELLS`` counts, at least one; the counts are the same however many.
    """
    generator = generator_of(seed, stream)
    num_blocks, step = -(-n // block), max(1, CHUNK_CELLS // n)
    for first in range(0, replicates, step):
        size = min(step, replicates - first)
        starts = generator.integers(0, n, size=(size, num_blocks))
        yield slice(first, first + size), _counts(starts, n=n, block=block)


def over_resamples(
    statistic: Callable[[NDArray[np.float32]], Floats],
    n: int,
    block: int,
    *,
    replicates: int = REPLICATES,
    seed: int,
    stream: int,
) -> Floats:
    """Return a statistic of counts [some, n] -> [some, ...] of all ``resamples``: [replicates, ...]."""
    drawn = resamples(n, block, replicates=replicates, seed=seed, stream=stream)
    return np.concatenate([statistic(counts) for _, counts in drawn])


def _counts(starts: NDArray[np.int64], *, n: int, block: int) -> NDArray[np.float32]:
    """Return how often each request is drawn in blocks with these starts [resamples, blocks]: [resamples, n]."""
    counts = np.empty((len(starts), n), np.float32)
    step = max(1, SCRATCH_CELLS // (n + block))
    for first in range(0, len(starts), step):
        _put_counts(counts[first : first + step], starts[first : first + step], block=block)
    return counts


def _put_counts(counts: NDArray[np.float32], starts: NDArray[np.int64], *, block: int) -> None:
    """Write how often each request is drawn to ``counts`` [resamples, n]."""
    (size, n), num_blocks = counts.shape, starts.shape[1]
    width, row = n + block + 1, np.arange(size)
    begun = np.bincount((starts + row[:, None] * width).ravel(), minlength=size * width).reshape(size, width)
    if block == 1:
        counts[:] = begun[:, :n]
        return
    drawn = begun.copy()
    drawn[:, block:] -= begun[
        :, :-block
    ]  # all end so far behind their starts, but for the last one, which is cut
    drawn[row, starts[:, -1] + block] += 1
    drawn[row, starts[:, -1] + n - block * (num_blocks - 1)] -= 1
    np.cumsum(drawn, axis=1, out=drawn)
    drawn[:, : min(block, n)] += drawn[:, n : n + min(block, n)]
    counts[:] = drawn[:, :n]


def weighted_sums(counts: NDArray[np.floating], values: Floats) -> Floats:
    """Return the sum of ``values`` [n] weighted by each row of ``counts`` [replicates, n]: [replicates].

    Not ``counts @ values``: BLAS adds in an order that depends on its number of threads, and so would the last digits.
    """
    return np.asarray(np.einsum("rn,n->r", counts, values, dtype=np.float64))


def quantile_rows(values: Floats, counts: NDArray[np.float32], *, at: Floats) -> Floats:
    """Return the quantiles of each row's resample: [replicates, len(at)].

    ``values`` [m] ascending, ``counts`` [replicates, m] how often each was drawn (integers).
    Linear interpolation at rank q (n - 1), so that a row equals ``numpy.quantile`` of its resample.
    """
    starts = np.arange(0, len(values), STRETCH)
    reached = np.cumsum(np.add.reduceat(counts, starts, axis=1, dtype=np.float64), axis=1)
    rank = at[None, :] * (reached[:, -1:] - 1)
    below = np.floor(rank)
    wanted = np.concatenate([below, below + 1], axis=1)
    stretch = [each.searchsorted(of, side="right") for each, of in zip(reached, wanted, strict=True)]
    first = starts[np.minimum(stretch, len(starts) - 1)]
    inside = np.minimum(first[..., None] + np.arange(STRETCH), len(values) - 1)
    rows = np.arange(len(counts))[:, None]
    left = wanted - np.where(first > 0, reached[rows, first // STRETCH - 1], 0)
    passed = first + np.count_nonzero(
        np.cumsum(counts[rows[..., None], inside], axis=2, dtype=np.float64) <= left[..., None], axis=2
    )
    lower, upper = np.split(values[np.minimum(passed, len(values) - 1)], 2, axis=1)
    return np.asarray(lower + (rank - below) * (upper - lower), dtype=np.float64)
