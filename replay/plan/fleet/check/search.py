"""The fewest engines that keep an objective in simulation: found with one seed, confirmed with another."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from replay.plan.fleet.check.limits import keeps, limits_of
from replay.plan.fleet.check.pool import Verification
from replay.plan.fleet.check.steady import Asked
from sim.fleet.sizing import Objective

MOST_TRIES = 14
STEP = 0.05
"""So much larger or smaller, at least, is the next fleet that is tried."""
FINE = 50
"""The number found is within a part of so many of the smallest; up to twice as many engines it is the smallest."""
SECOND_SEED = 1_000_003
CONFIRM_MORE = 1.02
"""A number is confirmed with so much more load: a fleet at its edge fills up rarely, but then for long."""
MORE = f"{CONFIRM_MORE - 1:.0%}"
CONFIRM_TIMES, CONFIRM_MOST = 3.0, 300_000
"""The run that confirms is so many times as long, up to so many requests, and never shorter."""
GLANCE, GLANCE_FROM = 0.25, 100_000
"""Where a run has so many requests, one of this share of it comes first, and decides where it is clear."""
CLEAR_KEPT, CLEAR_BROKEN = 0.7, 1.5
"""Of a limit: clear is what stays below the first, and what exceeds the second, noise included."""


def terms(rate_per_s: float, seed: int, asked: Asked, *, run: int, stay_s: float) -> tuple[float, int, Asked]:
    """Return the rate, seed and length of a run: a glance (-1), the first (0), or the second (1), harder and longer.

    ``stay_s``: how long a request stays, 95th percentile.
    """
    if run <= 0:
        return rate_per_s, seed, asked if run == 0 else replace(asked, times=GLANCE)
    more = rate_per_s * CONFIRM_MORE
    times = min(CONFIRM_TIMES, max(1.0, CONFIRM_MOST / asked.number(more, stay_s)))
    return more, seed + SECOND_SEED, replace(asked, times=times)


@dataclass(slots=True, kw_only=True)
class Search:
    """A search over numbers of engines. ``tried_at``: what a number does at a glance (-1), in run 0, or in run 1.

    ``has_glances``: whether a short run comes first. ``runs``: by number and run, in the order in which they were
    simulated; each is simulated once.
    """

    tried_at: Callable[[int, int], Verification]
    objective: Objective
    has_glances: bool = False
    runs: dict[tuple[int, int], Verification] = field(default_factory=dict)

    def keeps(self, engines: int, run: int = 0) -> bool:
        """Say whether so many engines keep the objective."""
        return keeps(self._run(engines, run), self.objective)

    @property
    def tried(self) -> tuple[Verification, ...]:
        """The first run of each number, or the glance where that was clear, in the order in which they were tried."""
        return tuple(self.runs.get((n, 0), self.runs[n, run]) for n, run in self._first_runs())

    def _first_runs(self) -> list[tuple[int, int]]:
        return [(n, run) for n, run in self.runs if run == -1 or (run == 0 and (n, -1) not in self.runs)]

    def _run(self, engines: int, run: int) -> Verification:
        if (engines, run) not in self.runs:
            self.runs[engines, run] = self.tried_at(engines, run)
        return self.runs[engines, run]

    def _may_keep(self, engines: int) -> bool:
        """Say whether so many engines keep the objective, at a glance where that is clear, else in the first run."""
        if not self.has_glances or (engines, 0) in self.runs:
            return self.keeps(engines)
        limits = limits_of(self._run(engines, -1), self.objective)
        if all(each.most <= CLEAR_KEPT * each.limit for each in limits):
            return True
        if any(each.value - (each.most - each.value) > CLEAR_BROKEN * each.limit for each in limits):
            return False
        return self.keeps(engines)

    def found(self, first: int, *, guess: int | None) -> int:
        """Return the smallest number that keeps the objective in both runs; the last that was tried where none does.

        ``first``: where to begin; ``guess``: fewer that may do, None: fewer are not looked for. More engines keep what
        fewer keep, so a number between one that breaks and one that keeps it is found by bisection.
        """
        high = self._upwards(first)
        if high is None:
            return self._last
        low = max((number for number, _ in self.runs if number < high), default=0)
        if guess is not None and low == 0:
            low, high = self._downwards(high, guess)
        best = self._between(low, high) if guess is not None or high > first else high
        while not (self.keeps(best) and self.keeps(best, 1)):
            if self._num_tried >= 2 * MOST_TRIES:
                return self._last
            best += max(1, best // FINE)
        return best

    @property
    def _num_tried(self) -> int:
        return len({number for number, _ in self.runs})

    @property
    def _last(self) -> int:
        return list(self.runs)[-1][0]

    def _upwards(self, engines: int) -> int | None:
        """Return a number from here upwards, in growing strides, that keeps it; None: none that was tried."""
        stride = STEP
        while not self._may_keep(engines):
            if self._num_tried >= MOST_TRIES:
                return None
            engines = max(engines + 1, math.ceil(engines * (1 + stride)))
            stride *= 2
        return engines

    def _downwards(self, high: int, guess: int) -> tuple[int, int]:
        """Return a number that breaks it (0: none) and a larger one that keeps it: at the guess first, then below."""
        low, stride, number = 0, STEP, min(guess, high - 1)
        while number > low and self._num_tried < MOST_TRIES:
            if not self._may_keep(number):
                return number, high
            high = number
            stride *= 2
            number = min(high - 1, math.floor(high * (1 - min(stride, 0.5))))
        return low, high

    def _between(self, low: int, high: int) -> int:
        """Return the smallest number above ``low``, which breaks it, up to ``high``, which keeps it."""
        while high - low > max(1, high // FINE):
            middle = (low + high) // 2
            low, high = (low, middle) if self._may_keep(middle) else (middle, high)
        return high
