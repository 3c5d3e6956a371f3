"""The highest rate within limits, of given draws of a load.

Every rate is simulated with the same draws, so that rates differ by their load and not by chance. From a rate of the
right order the search goes up until a limit breaks, or more requests arrive than are answered
(``replay.verdict.growth``); bisection then finds where. A run that is too short to tell meets no limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.search.evaluation import THROUGHPUT, Evaluation, Evaluator
from replay.search.load import IDLE, load_of
from traces import RunLimit

if TYPE_CHECKING:
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

TOLERANCE = 0.005
"""Bisection ends when the rate is known to this share of itself."""
MOST_AIMED = 4
"""This many rates are taken from between two others by their latencies."""
MOST_STEPS = 40
"""So many steps at most from the first rate up, or down."""
DOUBLE = 2.0
"""A rate of the right order is doubled or halved until it is bracketed;"""
NEAR_STEP = 1.04
"""from a rate that is near, the first step is this factor, and each next one its square."""
LASTING = 50
"""A run that lasts less than this many times a request ends before queues have grown: in runs of 30 times, capacities
came out 7 % too high, of 80 times within 1.5 % (docs/how-to/find-the-capacity.md)."""
MORE = 4
"""The factor by which requests increase where a run could not tell whether the server keeps up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HighestRate:
    """The highest rate that meets the limits, None: none does; what breaks just above it; an idle server."""

    low: float | None
    broken: Evaluation | None
    idle: Evaluation

    def limiting(self, limits: Sequence[RunLimit]) -> str:
        """Return the limit that breaks first, or ``throughput``."""
        return THROUGHPUT if self.broken is None else self.broken.worst(limits)


def highest(
    evaluator: Evaluator, *, least: float = 0.0, near: HighestRate | None = None, tolerance: float = TOLERANCE
) -> HighestRate:
    """Return the highest rate that meets the limits.

    ``least``: a rate that does, not far below. ``near``: what fewer requests have found, whose rate must be near.
    """
    if near is not None and near.low is not None:
        return _searched(evaluator, near.low, idle=near.idle, step=NEAR_STEP, tolerance=tolerance)
    start = least if least > 0 else float(np.mean([load.scale_per_s() for load in evaluator.loads]))
    idle = evaluator.at(start * IDLE if start > 0 else 1.0)
    if start <= 0 or (least <= 0 and not idle.meets(evaluator.limits)):
        return HighestRate(low=None, broken=idle, idle=idle)
    step = NEAR_STEP if least > 0 else DOUBLE
    return _searched(evaluator, start, idle=idle, step=step, tolerance=tolerance)


def highest_among(evaluator: Evaluator, rates: Sequence[float], *, near: HighestRate) -> HighestRate:
    """Return the highest rate that meets the limits; fewer draws have found ``near`` and simulated these rates.

    Those are tried first, since each draw is simulated only once at a rate.
    """
    low = near.low
    ascending = sorted(rate for rate in rates if rate > near.idle.rate_per_s)
    if low not in ascending:
        return highest(evaluator, near=near)
    at = ascending.index(low)
    while at >= 0 and not evaluator.at(ascending[at]).meets(evaluator.limits):
        at -= 1
    while 0 <= at < len(ascending) - 1 and evaluator.at(ascending[at + 1]).meets(evaluator.limits):
        at += 1
    if not 0 <= at < len(ascending) - 1:
        return highest(evaluator, near=near)
    low, high = _narrowed(evaluator, ascending[at], ascending[at + 1], tolerance=TOLERANCE)
    return HighestRate(low=low, broken=evaluator.at(high), idle=near.idle)


def _searched(
    evaluator: Evaluator, start: float, *, idle: Evaluation, step: float, tolerance: float
) -> HighestRate:
    def is_met(rate: float) -> bool:
        return evaluator.at(rate).meets(evaluator.limits)

    ends = _bracket(is_met, start, step=step, least=idle.rate_per_s)
    if ends is None:
        return HighestRate(low=None, broken=idle, idle=idle)
    low, high = _narrowed(evaluator, *ends, tolerance=tolerance)
    evaluator.at(low)  # an idle server's rate may be known of fewer requests only
    return HighestRate(low=low, broken=evaluator.at(high), idle=idle)


def requests_to_last(evaluator: Evaluator, found: HighestRate) -> int:
    """Return how many requests make a run long enough: for ``LASTING`` stays, and for a search that could tell."""
    if found.low is None:
        return MORE * len(evaluator.loads[0]) if found.idle.is_undecided(evaluator.limits) else 0
    is_full = found.limiting(evaluator.limits) == THROUGHPUT
    at = (
        found.idle if is_full else evaluator.at(found.low)
    )  # where only the load ends it, a stay is mostly its queue
    stay_s = at.curve_us["e2e"][0] * 1e-6
    asked = 0.0 if math.isnan(stay_s) else LASTING * stay_s * found.low
    if found.broken is not None and found.broken.is_too_short:
        asked = max(asked, MORE * len(evaluator.loads[0]))
    return math.ceil(asked / 100) * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Above:
    """The capacity for one draw, requests/s; None where it is not above a rate. ``asks``: requests it takes to tell.

    ``found``: what the search found, None where there was none.
    """

    rate_per_s: float | None
    asks: int
    found: HighestRate | None = None


def highest_above(
    trace: Trace,
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    least: float,
    alike: tuple[float, float] | None = None,
) -> Above:
    """Return the capacity for one draw; without a rate where it is not above ``least``, requests/s.

    If it is not above, a single simulation has shown that. ``alike``: two rates, from ``least`` up; one between them is
    not looked for: the lower is taken for it.
    """
    evaluator = Evaluator(loads=[load_of(trace, twin)], limits=limits)
    if least > 0 and not (first := evaluator.at(least)).meets(limits):
        return Above(rate_per_s=None, asks=MORE * len(trace) if first.is_undecided(limits) else 0)
    found = None if alike is None else _between(evaluator, *alike)
    if found is None:
        found = highest(evaluator, least=least)
    return Above(rate_per_s=found.low, asks=requests_to_last(evaluator, found), found=found)


def _between(evaluator: Evaluator, low: float, high: float) -> HighestRate | None:
    """Return ``low`` as the highest rate where it meets the limits and ``high`` breaks them, else None."""
    limits = evaluator.limits
    if not evaluator.at(low).meets(limits) or evaluator.at(high).meets(limits):
        return None
    return HighestRate(low=low, broken=evaluator.at(high), idle=evaluator.at(low * IDLE))


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


def _narrowed(evaluator: Evaluator, low: float, high: float, *, tolerance: float) -> tuple[float, float]:
    """Return the same two rates as ``bisect``, of fewer simulations: just below where the ratio passes 1, just above.

    Between two rates the logarithm of a ratio is almost linear in the logarithm of the rate. If that does not converge,
    bisection does.
    """
    limits = evaluator.limits
    for _ in range(MOST_AIMED):
        if high > 2 * low or high - low <= tolerance * high:
            break
        before, after = (max(evaluator.at(rate).ratios(limits).values(), default=0.0) for rate in (low, high))
        if not 0 < before <= 1 < after < math.inf:
            break
        guess = low * (high / low) ** (-math.log(before) / math.log(after / before))
        is_near = guess < low * (1 + tolerance / 2)
        aim = low * (1 + 0.9 * tolerance) if is_near else guess * (1 - tolerance / 3)
        if not low < aim < high:
            break
        if evaluator.at(aim).meets(limits):
            low = aim
        else:
            high = aim
    return bisect(lambda rate: evaluator.at(rate).meets(limits), low, high, tolerance=tolerance)


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
