"""Where the highest rate within the limits lies, by all steps together: a belief on a grid of rates.

Around the rate that is looked for, the share of requests beyond a limit rises steeply: its logit is nearly a line over
the rate's logarithm. For each rate and each slope of the line, a step is as likely as the binomial distribution has the
requests that were beyond the limit, of as many independent ones as the step is worth. Steps may contradict each other:
chance makes some do so, and each counts for what it is worth. Of several limits, the rate is the least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from observe.judged.criteria import Criterion
    from observe.judged.judged_step import StepVerdict

Floats = NDArray[np.float64]

SLOPES: Final = np.geomspace(2.5, 320.0, 29)
SLOPE: Final = 40.0
"""Before anything is known: 3 % more load, 3 times as many beyond a limit (servers of 8 and 64 seats, TTFT p99);"""
SLOPE_SPREAD: Final = 1.0
"""it may be three times as steep, or a third. On the log scale."""
NUM_RATES: Final = 1500
BEYOND: Final = math.log(3.0)
"""The grid reaches so far below the lowest rate that was tried, and above the highest."""
LEVEL: Final = 0.90
REACH: Final = 0.15
"""At this distance from the rate, on the log scale, a step counts for a third of its requests."""
MOST_WORTH: Final = 2000.0
"""The line is no more than near the truth: no step counts for more independent requests than this."""
OF_ONE_REQUEST: Final = 1.6
Z_90: Final = 1.645
"""A step begins at an empty server, and its queue takes long to fill: a rate that is known from steps of n requests is
off by this over the root of n, root mean square, however sure the counts are. It was so on simulated servers of 8 and
64 seats from 400 to 30,000 requests a step; no interval is narrower than 1.645 times that."""
OF_QUEUE: Final = 2.0
"""A queue that surely grows, or none, counts as so many requests that all are beyond a limit of one half, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePrior:
    """A rate, requests per s, and how far off it may be: its standard deviation on the log scale."""

    rate_per_s: float
    spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The median rate, requests per s, and its 90 % interval."""

    rate_per_s: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval, as a share of the rate."""
        return (self.high - self.low) / 2 / self.rate_per_s


def believe(
    rates: Sequence[float], verdicts: Sequence[StepVerdict], criteria: Sequence[Criterion], prior: RatePrior
) -> Belief:
    """Return where the highest rate within the limits lies after steps at these rates.

    Steps far from it say little of the line near it: they count for less, once it is known about where that is.
    """
    logs = np.log(np.array(rates))
    grid = np.linspace(logs.min() - BEYOND, logs.max() + BEYOND, NUM_RATES)
    about = _chance_of_all(grid, logs, np.ones(len(logs)), verdicts, criteria, prior)
    middle = float(np.interp(-0.5, -about, grid))
    near = np.exp(-(((logs - middle) / REACH) ** 2))
    below = _chance_of_all(grid, logs, near, verdicts, criteria, prior)
    low, median, high = (
        math.exp(float(np.interp(-chance, -below, grid)))
        for chance in ((1 + LEVEL) / 2, 0.5, (1 - LEVEL) / 2)
    )
    wide = Z_90 * OF_ONE_REQUEST / math.sqrt(_longest(verdicts, near))
    return Belief(
        rate_per_s=median, low=min(low, median * math.exp(-wide)), high=max(high, median * math.exp(wide))
    )


def _longest(verdicts: Sequence[StepVerdict], near: Floats) -> int:
    """Return the requests of the longest step near the rate; of the nearest, where none is near."""
    kept = [
        each for each, weight in zip(verdicts, near, strict=True) if weight >= min(math.exp(-1), near.max())
    ]
    return max(*(each.num_judged for each in kept), 1)


def _chance_of_all(
    grid: Floats,
    logs: Floats,
    near: Floats,
    verdicts: Sequence[StepVerdict],
    criteria: Sequence[Criterion],
    prior: RatePrior,
) -> Floats:
    """Return the chance that every limit's rate is above each of the grid, float64 [grid]."""
    below = np.ones(len(grid))
    for each in criteria:
        worth = near * [min(verdict.shares[each.name].worth, MOST_WORTH) for verdict in verdicts]
        beyond = worth * [verdict.shares[each.name].beyond_frac for verdict in verdicts]
        if beyond.any():  # what never broke says nothing of where it would
            below *= _chance_above(grid, logs, beyond, worth, allowed_frac=each.beyond_frac, prior=prior)
    grown = np.array([verdict.is_behind for verdict in verdicts])
    if grown.any():
        worth = near * OF_QUEUE
        below *= _chance_above(grid, logs, grown * worth, worth, allowed_frac=0.5, prior=prior)
    return below


def _chance_above(
    grid: Floats, logs: Floats, beyond: Floats, worth: Floats, *, allowed_frac: float, prior: RatePrior
) -> Floats:
    """Return the chance that a limit's rate is above each of the grid, float64 [grid], falling from 1 to 0."""
    at_limit = math.log(allowed_frac / (1 - allowed_frac))
    logit = at_limit + SLOPES[None, :, None] * (logs[None, None, :] - grid[:, None, None])
    # log q = -log(1 + exp(-logit)), log(1 - q) = -log(1 + exp(logit))
    likely = -(beyond * np.logaddexp(0, -logit) + (worth - beyond) * np.logaddexp(0, logit)).sum(axis=2)
    likely += -0.5 * ((grid[:, None] - math.log(prior.rate_per_s)) / prior.spread) ** 2
    likely += -0.5 * (np.log(SLOPES / SLOPE)[None, :] / SLOPE_SPREAD) ** 2
    weight = np.exp(likely - likely.max()).sum(axis=1)
    return np.asarray(1 - np.cumsum(weight) / weight.sum(), np.float64)
