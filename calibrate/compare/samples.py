"""A metric's distribution over requests, in a form that is resampled by one matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from calibrate.compare.gaps import Gaps
from traces.statistics.bootstrap import Floats, quantile_rows, weighted_sums

BIN_EDGES = ((0.0, 0.9, 1.0), (0, 500, 1200))
"""Pooled gaps are resampled in bins: 500 over the lower 90 %, 700 over the rest, where density is low."""
KS_GRID = 200
"""Points at which a resample's two distributions are compared; the value itself is exact."""

Drawn = tuple[NDArray[np.float32], Floats]
"""How often each value was drawn in each resample [replicates, n], and the values [n], ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSample:
    """Values in ascending order, each with its weight (an integer) and the request it belongs to.

    ``binned``: [requests, bins] how much weight a request has in each bin, where the values are many; None
    where there is one value per request. ``bin_values`` [bins]: the bins' means, ascending.
    """

    values: Floats
    weights: Floats
    owner: NDArray[np.int64]
    binned: csr_array[np.float64] | None = None
    bin_values: Floats | None = None

    @staticmethod
    def of_requests(values: Floats) -> WeightedSample:
        """Return the sample that has one value per request."""
        order = np.argsort(values, kind="stable")
        return WeightedSample(values=values[order], weights=np.ones(len(values)), owner=order)

    @staticmethod
    def of_gaps(gaps: Gaps, *, num_requests: int) -> WeightedSample:
        """Return the pooled gaps of ``num_requests`` requests."""
        order = np.argsort(gaps.gap_us, kind="stable")
        values, weights, owner = gaps.gap_us[order], gaps.weight[order], gaps.request[order]
        reached = np.cumsum(weights)
        share = (reached - weights / 2) / reached[-1]
        # Equal values stay in one bin, so that a constant gap is a single point here too.
        place = np.floor(np.interp(share, *BIN_EDGES)).astype(np.int64)
        starts = np.r_[True, values[1:] > values[:-1]]
        place = place[np.flatnonzero(starts)][np.cumsum(starts) - 1]
        _, bins = np.unique(place, return_inverse=True)
        mass = np.bincount(bins, weights)
        return WeightedSample(
            values=values,
            weights=weights,
            owner=owner,
            binned=csr_array((weights, (owner, bins)), shape=(num_requests, len(mass))),
            bin_values=np.bincount(bins, values * weights) / mass,
        )

    def statistics(self, quantiles: Floats) -> Floats:
        """Return the mean and the quantiles, exactly, over all values as often as they weigh.

        Not ``values @ weights``: see ``weighted_sums``; and BLAS's threads wait for more work, busily.
        """
        reached = np.cumsum(self.weights)
        mean = float((self.values * self.weights).sum()) / reached[-1]
        rank = quantiles * (reached[-1] - 1)
        below = np.floor(rank)
        last = len(self.values) - 1
        lower = self.values[np.minimum(np.searchsorted(reached, below, side="right"), last)]
        upper = self.values[np.minimum(np.searchsorted(reached, below + 1, side="right"), last)]
        return np.concatenate([[mean], lower + (rank - below) * (upper - lower)])

    def resampled(self, counts: NDArray[np.float32], quantiles: Floats) -> Floats:
        """Return mean and quantiles of each row of ``counts`` [replicates, requests]."""
        return statistics_of(self.drawn(counts), quantiles)

    def drawn(self, counts: NDArray[np.float32]) -> Drawn:
        """Return how often each value, or each bin's mean, is drawn in each row of ``counts``, and the values."""
        if self.binned is None or self.bin_values is None:
            return counts.take(self.owner, axis=1), self.values
        return np.asarray(counts @ self.binned, dtype=np.float32), self.bin_values

    def share_up_to(self, at: Floats) -> Floats:
        """Return the distribution function at each point."""
        reached = np.r_[0.0, np.cumsum(self.weights)]
        return np.asarray(reached[np.searchsorted(self.values, at, side="right")] / reached[-1])

    def distance(self, other: WeightedSample) -> float:
        """Return Kolmogorov and Smirnov's distance to another sample."""
        points = np.union1d(self.values, other.values)
        return float(np.max(np.abs(self.share_up_to(points) - other.share_up_to(points))))

    def wasserstein(self, other: WeightedSample) -> float:
        """Return Wasserstein's first distance to another sample: the area between the distribution functions, µs."""
        points = np.union1d(self.values, other.values)
        difference = np.abs(self.share_up_to(points) - other.share_up_to(points))
        return float((difference[:-1] * np.diff(points)).sum())


def statistics_of(drawn: Drawn, quantiles: Floats) -> Floats:
    """Return mean and quantiles of each row of counts: [replicates, 1 + quantiles]."""
    counts, values = drawn
    mean = weighted_sums(counts, values) / counts.sum(axis=1, dtype=np.float64)
    return np.column_stack([mean, quantile_rows(values, counts, at=quantiles)])


def up_to(at: Floats, drawn: Drawn) -> Floats:
    """Return the distribution function at each of these points, ascending, of each row of counts."""
    counts, values = drawn
    num_up_to = np.searchsorted(values, at, side="right")
    starts = np.unique(np.append(num_up_to[num_up_to < len(values)], 0))
    reached = np.cumsum(np.add.reduceat(counts, starts, axis=1, dtype=np.float64), axis=1)
    before = np.column_stack([np.zeros(len(counts)), reached])
    return np.asarray(before[:, np.searchsorted(starts, num_up_to)] / reached[:, -1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far a resample's difference of distributions deviates from the sample's."""

    grid: Floats
    samples: tuple[WeightedSample, WeightedSample]
    difference: Floats

    def reach(self, drawn: Sequence[Drawn]) -> tuple[Floats, Floats]:
        """Return, of each row, the greatest abs((F* - G*) - (F - G)) over the grid, and the area below it, µs.

        ``drawn``: how often each value of either sample was drawn.
        """
        one, other = (up_to(self.grid, each) for each in drawn)
        off = np.abs(other - one - self.difference)
        return np.asarray(np.max(off, axis=1)), weighted_sums(off[:, :-1], np.diff(self.grid))


def spread_of(samples: tuple[WeightedSample, WeightedSample], *, num_requests: int) -> Spread:
    """Return the two samples with a common grid, and the difference of their distributions on it."""
    pooled = WeightedSample.of_requests(np.concatenate([side.values for side in samples]))
    grid = np.unique(pooled.statistics(np.linspace(0, 1, KS_GRID))[1:])
    each_once = np.ones((1, num_requests), np.float32)
    one, other = (up_to(grid, side.drawn(each_once))[0] for side in samples)
    return Spread(grid=grid, samples=samples, difference=other - one)
