"""The moving-block bootstrap: resampling requests in runs, since neighbours in time share a queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces.strict.free_memory import require_memory

Floats = NDArray[np.float64]

LEVEL = 0.90
"""Share of intervals that should contain the true value."""
REPLICATES = 1000
MIN_REQUESTS = 8
"""With fewer requests than this there is no interval: it would not be reliable."""
RUN = 5
"""This many correlations in a row must be no larger than chance; sqrt(log10 n) exceeds it from 10²⁵ requests on."""
CHUNK_CELLS = 4_000_000
"""Replicates are taken in chunks of this many counts (16 MB), whatever the number of requests."""

BYTES_PER_COUNT = 32
"""While resamples are drawn: two counts, their difference and its sum, of 64 bits each."""


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


def draw_counts(n: int, block: int, *, replicates: int, seed: int, stream: int) -> NDArray[np.float32]:
    """Return how often each of n requests, in order of time, is drawn: [replicates, n], rows sum to n.

    Blocks are circular, so that every request is drawn equally often; the last one is cut to fit. Raises ConfigError
    where there is too little memory.
    """
    require_memory(
        f"got {replicates:,} resamples of {n:,} requests, which take",
        BYTES_PER_COUNT * replicates * (n + block),
    )
    generator = generator_of(seed, stream)
    num_blocks = -(-n // block)
    starts = generator.integers(0, n, size=(replicates, num_blocks))
    lengths = np.full(num_blocks, block)
    lengths[-1] = n - block * (num_blocks - 1)
    width = n + block + 1
    row = np.arange(replicates)[:, None] * width
    begun = np.bincount((row + starts).ravel(), minlength=replicates * width)
    ended = np.bincount((row + starts + lengths).ravel(), minlength=replicates * width)
    unwrapped = np.cumsum((begun - ended).reshape(replicates, width), axis=1)
    counts = unwrapped[:, :n].copy()
    counts[:, : min(block, n)] += unwrapped[:, n : n + min(block, n)]
    return counts.astype(np.float32)


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
    reached = np.cumsum(counts, axis=1, dtype=np.float64)
    rank = at[None, :] * (reached[:, -1:] - 1)
    below = np.floor(rank)
    last = len(values) - 1
    found = np.empty((*rank.shape, 2))
    for column in range(len(at)):
        for side in (0, 1):
            passed = np.count_nonzero(reached <= below[:, column, None] + side, axis=1)
            found[:, column, side] = values[np.minimum(passed, last)]
    lower, upper = found[..., 0], found[..., 1]
    return np.asarray(lower + (rank - below) * (upper - lower), dtype=np.float64)
