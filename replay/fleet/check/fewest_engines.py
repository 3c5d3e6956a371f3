"""The simulations that a search for the fewest engines makes: with one seed, and confirmed with another."""

from __future__ import annotations

from collections.abc import Callable
from lazy_dataclasses import dataclass, field, replace

from replay.fleet.check.pool import Verification
from replay.fleet.check.slo_limits import Limit, keeps, limits_of
from replay.fleet.check.steady import RunLength
from sim.fleet.sizing import Objective

STRIDE = 0.1
"""The fleet that is tried next is at least this share larger or smaller, then twice that, and so on."""
MOST_TIMES = 32
"""The largest fleet that is tried has this many times the formula's engines; more would not help."""
MOST_CONFIRMED = 12
"""This many numbers are tried from the one found upwards until both runs meet the objective: 27 % more at most."""
FINE = 50
"""The number found is within 1/50 of the smallest; up to 100 engines it is the smallest."""
SECOND_SEED = 1_000_003
"""Added to the seed for the run that confirms, so that it draws other requests."""
CONFIRM_MORE = 1.02
"""A number is confirmed at this much more load: a fleet at its edge fills up rarely, but then for long."""
MORE = f"{CONFIRM_MORE - 1:.0%}"
CONFIRM_TIMES, CONFIRM_MOST = 3.0, 300_000
"""The run that confirms is this many times as long, up to this many requests, and never shorter."""
GLANCE, GLANCE_FROM = 0.125, 100_000
"""Where a run has the second number of requests, one of the first share of it comes first, and decides if clear."""
CLEAR_KEPT, CLEAR_BROKEN = 0.7, 1.5
"""Shares of a limit: a figure below the first or above the second, noise included, decides clearly."""
NO_ROOM = 2.0
"""With fewer standard deviations of free seats a queue grows: batches then differ because of it, not by noise."""

Counts = tuple[int, ...]
"""The engines of a fleet, pool by pool."""


def terms(
    rate_per_s: float, seed: int, asked: RunLength, *, run: int, stay_s: float
) -> tuple[float, int, RunLength]:
    """Return the rate, seed and length of a run: the first (0), the second (1), harder and longer, or its glance (-1).

    A glance is a short run with the second's seed and load: a fleet that breaks a limit there breaks it in the second
    run, and one that is far from the limit there is further from it in the first. ``stay_s``: how long a request stays,
    95th percentile.
    """
    if run == 0:
        return rate_per_s, seed, asked
    more = rate_per_s * CONFIRM_MORE
    times = min(CONFIRM_TIMES, max(1.0, CONFIRM_MOST / asked.number(more, stay_s)))
    return more, seed + SECOND_SEED, replace(asked, times=GLANCE if run < 0 else times)


def is_long(rate_per_s: float, asked: RunLength, *, stay_s: float) -> bool:
    """Return whether runs at a rate are long enough for a glance first; with a given measured part there is none."""
    return asked.ends_s is None and asked.number(rate_per_s, stay_s) >= GLANCE_FROM


@dataclass(slots=True, kw_only=True)
class FleetRuns:
    """Simulations of fleets, each made once. ``tried_at``: what a fleet does at a glance (-1), in run 0, or in run 1.

    ``has_glances``: runs are long, so a short one comes first, and run 1, which asks for more, before run 0. ``seen``:
    by fleet and run, in the order in which they were simulated.
    """

    tried_at: Callable[[Counts, int], Verification]
    objective: Objective
    has_glances: bool = False
    seen: dict[tuple[Counts, int], Verification] = field(default_factory=dict)

    def run(self, fleet: Counts, run: int) -> Verification:
        """Return a fleet's result in a run."""
        if (fleet, run) not in self.seen:
            self.seen[fleet, run] = self.tried_at(fleet, run)
        return self.seen[fleet, run]

    def keeps(self, fleet: Counts, run: int = 0) -> bool:
        """Say whether a fleet meets the objective in a run."""
        return keeps(self.run(fleet, run), self.objective)

    def may_keep(self, fleet: Counts) -> bool:
        """Say whether a fleet meets the objective, at a glance where that is clear, else in a whole run."""
        if not self.has_glances:
            return self.keeps(fleet)
        if (fleet, 1) not in self.seen:
            seen = self.run(fleet, -1)
            limits = limits_of(seen, self.objective)
            if all(each.most <= CLEAR_KEPT * each.limit for each in limits):
                return True
            if any(_least(each, room=seen.room) > CLEAR_BROKEN * each.limit for each in limits):
                return False
        return self.keeps(fleet, 1)

    def keeps_both(self, fleet: Counts) -> bool:
        """Say whether a fleet meets the objective in both whole runs."""
        return all(self.keeps(fleet, run) for run in ((1, 0) if self.has_glances else (0, 1)))

    @property
    def tried(self) -> tuple[Verification, ...]:
        """The first run of each fleet, else its glance, or else the second, in the order in which they were tried."""
        fleets = dict.fromkeys(fleet for fleet, _ in self.seen)
        return tuple(
            next(self.seen[each, run] for run in (0, -1, 1) if (each, run) in self.seen) for each in fleets
        )

    @property
    def last(self) -> Counts:
        """The fleet that was simulated last."""
        return next(reversed(self.seen))[0]


def _least(limit: Limit, *, room: float) -> float:
    """Return how low a figure may be for all the noise; itself where seats are so few that a queue grows."""
    return limit.value if room < NO_ROOM else limit.value - (limit.most - limit.value)


def a_little_more(engines: int) -> int:
    """Return the next larger number that is tried where a number is not confirmed."""
    return engines + max(1, engines // FINE)
