"""The fewest engines of several pools that meet an objective together, pool by pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from replay.plan.fleet.check.search import FINE, Runs

Counts = tuple[int, ...]

MOST_GROWN = 8
"""All pools grow together this often before the search gives up."""
STRIDE = 0.1
"""The first step of such a growth, and of making one pool smaller, as a share of the engines; it doubles."""
MOST_CONFIRMED = 12
"""This many fleets are tried near the one found, until both runs meet the objective."""


@dataclass(slots=True, kw_only=True)
class SeveralSearch:
    """A search over the engines of several pools, whose counts hang together.

    ``prices``: of an engine of each pool; the dearest is made small first. ``is_smallest``: fewer than where it begins
    are looked for, too.
    """

    runs: Runs[Counts]
    prices: Sequence[float]
    is_smallest: bool = True

    def found(self, first: Counts) -> Counts | None:
        """Return engines that meet the objective in both runs; one fewer of any pool does not. None: none kept it.

        All pools grow from ``first`` until they keep it; then each by itself is made as small as that leaves it, and
        engines of a dear pool are given for fewer or cheaper ones of another. Where a whole run breaks there, one pool
        grows, the cheapest engine first, else all.
        """
        grown = self._upwards(first)
        if grown is None:
            return None
        least = tuple(1 for _ in first) if self.is_smallest else first
        best = self._exchanged(self._shrunk(grown, least), least)
        for _ in range(MOST_CONFIRMED):
            more = tuple(each + max(1, each // FINE) for each in best)
            for fleet in (best, *(_with(best, place, more[place]) for place in reversed(self._dearest()))):
                if self.runs.may_keep(fleet) and self.runs.keeps_both(fleet):
                    return fleet
            best = more
        return None

    def cost(self, fleet: Counts) -> float:
        """Return what a fleet's engines cost; their number where some pool has no price."""
        prices = self.prices if all(self.prices) else [1.0] * len(fleet)
        return math.fsum(number * price for number, price in zip(fleet, prices, strict=True))

    def _dearest(self) -> list[int]:
        """Return the pools, the one with the dearest engine first."""
        return sorted(range(len(self.prices)), key=lambda place: -self.prices[place])

    def _upwards(self, first: Counts) -> Counts | None:
        growth, stride, fleet = 1.0, STRIDE, first
        for _ in range(MOST_GROWN):
            if self.runs.may_keep(fleet):
                return fleet
            growth, stride = growth + stride, 2 * stride
            fleet = tuple(math.ceil(each * growth) for each in first)
        return None

    def _shrunk(self, fleet: Counts, least: Counts) -> Counts:
        """Return the fleet with each pool in turn as small as the objective leaves it; ``fleet`` keeps it."""
        for place in self._dearest():
            fleet = _with(fleet, place, self._fewest(fleet, place, least[place]))
        return fleet

    def _fewest(self, fleet: Counts, place: int, least: int) -> int:
        """Return the smallest number of a pool that keeps it, from ``least`` on, all else being the same.

        Downwards in growing strides until it breaks, then by bisection.
        """
        low, high, stride = least - 1, fleet[place], STRIDE
        while high > low + 1:
            number = max(low + 1, min(high - 1, math.floor(high * (1 - min(stride, 0.5)))))
            if not self.runs.may_keep(_with(fleet, place, number)):
                low = number
                break
            high, stride = number, 2 * stride
        while high - low > max(1, high // FINE):
            middle = (low + high) // 2
            low, high = (low, middle) if self.runs.may_keep(_with(fleet, place, middle)) else (middle, high)
        return high

    def _exchanged(self, fleet: Counts, least: Counts) -> Counts:
        """Return a fleet that costs no more: two engines of a pool for one of another, or one for a cheaper one."""
        places = range(len(fleet))
        pairs = [(giver, taker) for giver in self._dearest() for taker in places if giver != taker]
        for giver, taker in pairs:
            while True:
                other = next(
                    (
                        moved
                        for number in (1, 2)
                        if fleet[giver] - number >= least[giver]
                        and self.cost(moved := _moved(fleet, giver, taker, number)) < self.cost(fleet) - 1e-9
                        and self.runs.may_keep(moved)
                    ),
                    None,
                )
                if other is None:
                    break
                fleet = self._shrunk(other, least)
        return fleet


def _with(fleet: Counts, place: int, number: int) -> Counts:
    return (*fleet[:place], number, *fleet[place + 1 :])


def _moved(fleet: Counts, giver: int, taker: int, number: int) -> Counts:
    """Return the fleet with this many engines of one pool fewer, and one of another more."""
    return _with(_with(fleet, giver, fleet[giver] - number), taker, fleet[taker] + 1)
