"""The highest rate within limits, and the most that is answered at all, of given draws of a load.

Every rate is simulated with the same draws, so that one rate is better than another for its load and not by chance.
From a rate of the right size the search goes up until a limit breaks, or more comes than is answered
(``replay.verdict.growth``); bisection then finds where. A run that ends before it could tell meets no limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.plan.evaluation import THROUGHPUT, Evaluation, Evaluator
from replay.plan.load import load_of
from traces.run_slo import RunLimit

if TYPE_CHECKING:
    from replay.twin.config import TwinConfig
    from traces import Trace

TOLERANCE = 0.005
"""Bisection ends when the rate is known to this share of itself,"""
CEILING_TOLERANCE = 0.02
"""and the most that is answered to this one."""
IDLE = 1e-3
"""At this share of a rate of the right size, requests hardly ever meet."""
MOST_STEPS = 40
"""From the first rate up, or down."""
DOUBLE = 2.0
"""A rate of the right size is doubled or halved until it is found on both sides;"""
NEAR_STEP = 1.03
"""from one that is near, the first step is this one, and each next one its square."""
LASTING = 50
"""A run that lasts less than so many times a request ends before queues have grown: in runs of 30 times, capacities
came out 7 % too high, of 80 times within 1.5 % (docs/how-to/tune-the-flags.md)."""
MORE = 4
"""So many times as many requests are asked for where a run could not tell whether the server keeps up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The highest rate that meets the limits, None: none does; what breaks just above it; an idle server."""

    low: float | None
    broken: Evaluation | None
    idle: Evaluation

    def limiting(self, limits: Sequence[RunLimit]) -> str:
        """Return the limit that breaks first, or ``throughput``."""
        return THROUGHPUT if self.broken is None else self.broken.worst(limits)


def highest(
    evaluator: Evaluator, *, least: float = 0.0, near: Found | None = None, tolerance: float = TOLERANCE
) -> Found:
    """Return the highest rate that meets the limits.

    ``least``: a rate that does. ``near``: what fewer requests have found, whose rate must be near.
    """
    if near is not None and near.low is not None:
        return _searched(evaluator, near.low, idle=near.idle, step=NEAR_STEP, tolerance=tolerance)
    start = least if least > 0 else scale(evaluator)
    idle = evaluator.at(start * IDLE if start > 0 else 1.0)
    if start <= 0 or (least <= 0 and not idle.meets(evaluator.limits)):
        return Found(low=None, broken=idle, idle=idle)
    return _searched(evaluator, start, idle=idle, step=DOUBLE, tolerance=tolerance)


def _searched(
    evaluator: Evaluator, start: float, *, idle: Evaluation, step: float, tolerance: float
) -> Found:
    def is_met(rate: float) -> bool:
        return evaluator.at(rate).meets(evaluator.limits)

    ends = _bracket(is_met, start, step=step, least=idle.rate_per_s)
    if ends is None:
        return Found(low=None, broken=idle, idle=idle)
    low, high = bisect(is_met, *ends, tolerance=tolerance)
    evaluator.at(low)  # an idle server's rate may be known of fewer requests only
    return Found(low=low, broken=evaluator.at(high), idle=idle)


def scale(evaluator: Evaluator) -> float:
    """Return a rate of the right size, requests/s; 0 where nothing is answered at all."""
    return float(np.mean([load.scale_per_s() for load in evaluator.loads]))


def requests_to_last(evaluator: Evaluator, found: Found) -> int:
    """Return how many requests make a run long enough: for ``LASTING`` stays, and for a search that could tell."""
    if found.low is None:
        return MORE * len(evaluator.loads[0].requests) if found.idle.is_undecided(evaluator.limits) else 0
    is_full = found.limiting(evaluator.limits) == THROUGHPUT
    at = (
        found.idle if is_full else evaluator.at(found.low)
    )  # where only the load ends it, a stay is mostly its queue
    stay_s = at.curve_us["e2e"][0] * 1e-6
    asked = 0.0 if math.isnan(stay_s) else LASTING * stay_s * found.low
    if found.broken is not None and found.broken.is_too_short:
        asked = max(asked, MORE * len(evaluator.loads[0].requests))
    return math.ceil(asked / 100) * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """The capacity for one draw, requests/s; None where it is not above a rate. ``asks``: requests it takes to tell."""

    rate_per_s: float | None
    asks: int


def highest_above(trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], *, least: float) -> Above:
    """Return the capacity for one draw; without a rate where it is not above ``least``, requests/s.

    Where it is not above, one simulation has said so.
    """
    evaluator = Evaluator(loads=[load_of(trace, twin)], limits=limits)
    if least > 0 and not (first := evaluator.at(least)).meets(limits):
        return Above(rate_per_s=None, asks=MORE * len(trace) if first.is_undecided(limits) else 0)
    found = highest(evaluator, least=least)
    return Above(rate_per_s=found.low, asks=requests_to_last(evaluator, found))


def ceiling_of(evaluator: Evaluator, *, above: float | None = None) -> float | None:
    """Return the most that is answered, requests/s, whatever the latencies; None where runs are too short to tell.

    By bisection the lowest rate that is not followed, and of that one what was answered; where too few have left by
    then to say, of twice as much. ``above``: a rate that is followed.
    """

    def is_followed(rate: float) -> bool:
        return not evaluator.at(rate).is_behind

    start = above if above is not None else scale(evaluator)
    ends = _bracket(is_followed, start, step=DOUBLE) if start > 0 else None
    if ends is None:
        return None
    broken = [
        evaluator.at(rate) for rate in (bisect(is_followed, *ends, tolerance=CEILING_TOLERANCE)[1], ends[1])
    ]
    settled = [each.served_per_s for each in broken if each.is_settled]
    return max(settled[0], above or 0.0) if settled else None


def _bracket(
    holds: Callable[[float], bool], start: float, *, step: float, least: float | None = None
) -> tuple[float, float] | None:
    """Return (a rate at which it holds, one at which it does not), a step apart; None: there are none.

    Steps grow up to a factor of two. ``least``: a rate at which it is known to hold.
    """
    rate, goes_up = start, holds(start)
    for _ in range(MOST_STEPS):
        following = rate * step if goes_up else rate / step
        if not goes_up and least is not None and following <= least:
            return least, rate
        if holds(following) != goes_up:
            return (rate, following) if goes_up else (following, rate)
        rate, step = following, min(step * step, DOUBLE)
    return None


def bisect(
    holds: Callable[[float], bool], low: float, high: float, *, tolerance: float
) -> tuple[float, float]:
    """Return (a rate at which it holds, one at which it does not), nearer to each other than the tolerance.

    It holds at ``low`` and not at ``high``. While they are far apart, their geometric mean halves the orders of
    magnitude between them.
    """
    while high - low > tolerance * high:
        middle = math.sqrt(low * high) if high > 4 * low else (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low, high
