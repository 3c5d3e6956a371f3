"""The fewest engines that meet an objective in simulation: of one pool, or of several together, pool by pool."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from lazy_dataclasses import dataclass

from replay.fleet.check.fewest_engines import (
    FINE,
    MOST_CONFIRMED,
    MOST_TIMES,
    STRIDE,
    Counts,
    FleetRuns,
    a_little_more,
)
from sim.fleet.fewest import NoneIsEnough, enough, fewest


@dataclass(slots=True, kw_only=True)
class EngineSearch:
    """A search over the engines of one pool, or of several whose counts depend on each other.

    ``prices``: of an engine of each pool; the most expensive pool is made smaller first. ``is_smallest``: also search
    below the numbers that it begins with.
    """

    runs: FleetRuns
    prices: Sequence[float] = (0.0,)
    is_smallest: bool = True

    def found(self, first: Counts, *, guess: int | None = None) -> Counts | None:
        """Return engines that meet the objective in both runs; one fewer of any pool does not. None: none kept it.

        All pools grow from ``first`` until they meet it; then each in turn is made as small as the objective allows,
        and engines of an expensive pool are exchanged for fewer or cheaper ones of another. If a whole run breaks a
        limit there, one pool grows, the one with the cheapest engine first, else all. ``guess``: fewer engines that may
        do, where the search in one pool begins.
        """
        is_one = len(first) == 1
        best = self._in_one(first[0], guess) if is_one else self._in_several(first)
        if best is None:
            return None
        for _ in range(MOST_CONFIRMED):
            more = tuple(a_little_more(each) for each in best)
            fleets = [best]
            if not is_one:
                fleets += [_with(best, place, more[place]) for place in reversed(self._dearest())]
            for fleet in fleets:
                if (is_one or self.runs.may_keep(fleet)) and self.runs.keeps_both(fleet):
                    return fleet
            best = more
        return None

    def _in_one(self, first: int, guess: int | None) -> Counts | None:
        """Return the smallest number that meets the objective, near one of the two; None: none that was tried does."""
        is_below = self.is_smallest and guess is not None and guess < first
        try:
            number = fewest(
                lambda number: self.runs.may_keep((number,)),
                near=(guess, first) if is_below and guess is not None else (first,),
                least=1 if self.is_smallest else first,
                most=MOST_TIMES * first,
                stride=STRIDE,
                fine=FINE,
            )
        except NoneIsEnough:
            return None
        return (number,)

    def _in_several(self, first: Counts) -> Counts | None:
        """Return engines of several pools that meet the objective in one run; None: none that was tried does."""
        grown = self._upwards(first)
        if grown is None:
            return None
        least = tuple(1 for _ in first) if self.is_smallest else first
        return self._exchanged(self._shrunk(grown, least), least)

    def cost(self, fleet: Counts) -> float:
        """Return what a fleet's engines cost; their number where some pool has no price."""
        prices = self.prices if all(self.prices) else [1.0] * len(fleet)
        return math.fsum(number * price for number, price in zip(fleet, prices, strict=True))

    def _dearest(self) -> list[int]:
        """Return the pools, the one with the most expensive engine first."""
        return sorted(range(len(self.prices)), key=lambda place: -self.prices[place])

    def _upwards(self, first: Counts) -> Counts | None:
        """Return the first fleet that keeps it as all pools grow alike; None: none that was tried does."""
        largest = max(first)

        def grown(number: int) -> Counts:
            """Return the fleet whose largest pool has so many engines."""
            return tuple(-(-each * number // largest) for each in first)

        try:
            _, number = enough(
                lambda number: self.runs.may_keep(grown(number)),
                near=(largest,),
                most=MOST_TIMES * largest,
                stride=STRIDE,
            )
        except NoneIsEnough:
            return None
        return grown(number)

    def _shrunk(self, fleet: Counts, least: Counts) -> Counts:
        """Return the fleet with each pool in turn as small as the objective allows; ``fleet`` meets it."""
        for place in self._dearest():
            number = fewest(
                partial(self._keeps_with, fleet, place),
                near=(fleet[place],),
                least=least[place],
                most=fleet[place],
                stride=STRIDE,
                fine=FINE,
            )
            fleet = _with(fleet, place, number)
        return fleet

    def _keeps_with(self, fleet: Counts, place: int, number: int) -> bool:
        return self.runs.may_keep(_with(fleet, place, number))

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
