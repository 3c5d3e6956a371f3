"""Which rate to observe next, and what all steps together say of the highest within the limits: pure.

From a first rate the search goes up while the limits are kept, or down while one is broken. Once both have been seen,
it stays where the belief is (``rate_belief``), in turn a little above and a little below, until the interval is as
narrow as asked. An overloaded server tells its throughput, and no rate above that is tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import Final

from observe.capacity.rate_belief import Belief, RatePrior, believe
from observe.judged.criteria import Criterion
from observe.judged.judged_step import GROWN, StepVerdict

MOST_STEPS: Final = 8
FINEST: Final = 0.03
"""The precision that the longest steps are for."""
FIRST_STEP: Final = 1.5
"""From a first rate that may be far off, the next is this factor away;"""
NEAR_STEP: Final = 1.08
"""from a twin's, this; each further one twice as far on the log scale, and at most twice the rate."""
NEAR_SPREAD: Final = 0.1
FAR_SPREAD: Final = 1.0
"""How far off the first rate may be, on the log scale."""
BELOW_CEILING: Final = 0.95
"""An overloaded server answered so much; the rate to try next is at most this share of it."""
NEARLY_ALL: Final = 0.9
TO_IDLE: Final = 10.0
"""Where nearly all requests are beyond a limit and no queue grows, an idle server may be, too: a rate this factor lower
shows it."""
FAILURES: Final = 3
"""So many in a row are a reason to ask whether the server has recovered from the first."""
Z_99: Final = 2.576
Z_90: Final = 1.645
"""Of the normal distribution: half the width of an interval, in standard deviations."""
SURELY: Final = 0.9
"""What kept the limits by chance may break them another time; at this share of the rate it would not."""
ABOVE: Final = 1.0
BELOW: Final = 0.5
"""The rates to try lie this many times the precision above the belief, and below it."""
OUTWARD_EFFORT: Final = 0.2
WIDE_EFFORT: Final = 0.5
WIDE: Final = 3.0
"""What is far from the answer deserves no long step: this share of one while the limits were always kept, or always
broken, and this while the belief is so many times the precision wide. On a simulated server of 64 seats, 20 searches
from a guess sent 95,000 requests on average in place of 125,000, all within 3 % either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """A rate, requests per s, and what was seen at it; ``is_met``: whether the limits were kept, as far as known."""

    rate_per_s: float
    verdict: StepVerdict
    is_met: bool

    @property
    def is_surely_broken(self) -> bool:
        """Whether a limit was surely broken: an overload, that a server may not recover from."""
        return self.verdict.is_met is False


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRate:
    """A rate to observe and why; ``effort``: which share of the longest step it deserves."""

    rate_per_s: float
    purpose: str
    effort: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRate:
    """The highest rate, requests per s, and its 90 % interval; ``rate_per_s`` None: no rate kept the limits.

    ``high`` None: no rate broke a limit. ``limiting``: what broke first, None: nothing. ``is_narrow``: whether the
    interval is as narrow as asked. ``recovers``: whether the server kept the limits again after an overload, None: not
    tried. ``highest_met``: the highest rate at which a step kept them.
    """

    rate_per_s: float | None
    low: float | None
    high: float | None
    is_narrow: bool
    limiting: str | None
    recovers: bool | None
    highest_met: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSearch:
    """The question. ``begin_per_s``: the first rate; ``is_near``: a twin's, near the answer. ``precision``: 0.03."""

    criteria: Sequence[Criterion]
    begin_per_s: float
    is_near: bool = False
    precision: float = 0.03
    most_steps: int = MOST_STEPS

    def next_rate(self, steps: Sequence[SeenStep]) -> NextRate | None:
        """Return what to observe after these steps, None at the end."""
        if not steps:
            return NextRate(
                rate_per_s=self.begin_per_s, purpose="the first rate", effort=self._outward_effort
            )
        is_slow = not any(each.is_met for each in steps) and _are_idle_and_slow(steps[-2:])
        if len(steps) >= self.most_steps or recovers(steps) is False or is_slow:
            return None
        if len({each.is_met for each in steps}) == 1:
            return self._outward(steps)
        belief = self.belief(steps)
        is_last = len(steps) == self.most_steps - 1 or self._is_narrow(belief)
        if (again := _to_try_again(steps, is_last=is_last)) is not None:
            return NextRate(
                rate_per_s=again,
                purpose="within the SLO before an overload: is it again?",
                effort=self._longest * OUTWARD_EFFORT,
            )
        if self._is_narrow(belief):
            return None
        goes_above = sum(each.rate_per_s > belief.rate_per_s for each in steps) * 2 <= len(steps)
        reach = ABOVE * self.precision if goes_above else -BELOW * self.precision
        return NextRate(
            rate_per_s=belief.rate_per_s * (1 + reach),
            purpose=f"believed: {belief.low:.4g} to {belief.high:.4g}/s",
            effort=self._longest * (WIDE_EFFORT if belief.half_width > WIDE * self.precision else 1.0),
        )

    @property
    def _outward_effort(self) -> float:
        """The share of a step before the limits have been both kept and broken: all of it beside a twin's answer."""
        return self._longest * (1.0 if self.is_near else OUTWARD_EFFORT)

    @property
    def _longest(self) -> float:
        """The share of a step that the precision deserves: errors go with the root of the number of requests."""
        return min((FINEST / self.precision) ** 2, 1.0)

    def belief(self, steps: Sequence[SeenStep]) -> Belief:
        """Return where the rate is believed to lie: between what was surely kept and surely broken, where both are."""
        prior = RatePrior(rate_per_s=self.begin_per_s, spread=NEAR_SPREAD if self.is_near else FAR_SPREAD)
        believed = believe(
            [each.rate_per_s for each in steps], [each.verdict for each in steps], self.criteria, prior
        )
        kept = max((each.rate_per_s for each in steps if each.verdict.is_met), default=0.0)
        broken = min((each.rate_per_s for each in steps if each.is_surely_broken), default=0.0)
        if not believed.rate_per_s < kept < broken:
            return believed
        return Belief(rate_per_s=math.sqrt(kept * broken), low=kept, high=broken)

    def _is_narrow(self, belief: Belief) -> bool:
        """Return whether the rate is known to the precision, with 99 %."""
        return belief.half_width * Z_99 / Z_90 <= self.precision

    def _outward(self, steps: Sequence[SeenStep]) -> NextRate:
        """Return a rate beyond those that all kept the limits, or all broke one."""
        step = min((NEAR_STEP if self.is_near else FIRST_STEP) ** (2 ** (len(steps) - 1)), 2.0)
        rates = [each.rate_per_s for each in steps]
        if steps[0].is_met:
            return NextRate(
                rate_per_s=max(rates) * step,
                purpose=f"{max(rates):.4g}/s was within the SLO",
                effort=self._outward_effort,
            )
        if _are_idle_and_slow(steps[-1:], least=1):
            step = TO_IDLE
        aim = min([min(rates) / step, *(BELOW_CEILING * each for each in _answered(steps))])
        return NextRate(
            rate_per_s=aim,
            purpose=f"{min(rates):.4g}/s was not within the SLO",
            effort=self._outward_effort,
        )

    def found(self, steps: Sequence[SeenStep]) -> FoundRate:
        """Return what the steps say."""
        met = [each.rate_per_s for each in steps if each.is_met]
        broken = sorted((each for each in steps if not each.is_met), key=lambda each: each.rate_per_s)
        belief = self.belief(steps) if met and broken else None
        if belief is None:
            rate, low, high = max(met, default=None), max(met, default=None), None
            high = broken[0].rate_per_s if broken else None
        else:
            rate, low, high = belief.rate_per_s, belief.low, belief.high
        return FoundRate(
            rate_per_s=rate,
            low=low,
            high=high,
            is_narrow=belief is not None and self._is_narrow(belief),
            limiting=broken[0].verdict.broken(self.criteria) if broken else None,
            recovers=recovers(steps),
            highest_met=max((each for each in met if high is None or each <= high), default=None),
        )


def _are_idle_and_slow(steps: Sequence[SeenStep], *, least: int = 2) -> bool:
    """Return whether all of so many steps had nearly every request beyond a limit, and none a queue that grew."""
    return len(steps) >= least and all(
        each.verdict.grown_frac < GROWN
        and max(share.beyond_frac for share in each.verdict.shares.values()) > NEARLY_ALL
        for each in steps
    )


def recovers(steps: Sequence[SeenStep]) -> bool | None:
    """Return whether the server kept the limits at a rate after an overload as before it; None: not tried."""
    overload, before = _before_overload(steps)
    if overload is None:
        return None
    after = steps[overload + 1 :]
    if any(each.is_met for each in after):
        return True
    return False if any(each.is_surely_broken and each.rate_per_s <= before for each in after) else None


def _before_overload(steps: Sequence[SeenStep]) -> tuple[int | None, float]:
    """Return the number of the first step that surely broke a limit, and a rate that was surely within before it."""
    overload = next((k for k, each in enumerate(steps) if each.is_surely_broken), None)
    before = [
        each.rate_per_s * (1.0 if each.verdict.is_met else SURELY) for each in steps[:overload] if each.is_met
    ]
    return overload, max(before, default=0.0)


def _to_try_again(steps: Sequence[SeenStep], *, is_last: bool) -> float | None:
    """Return a rate that was within before an overload, where nothing since has been, and the search would end.

    Or where three steps in a row have surely broken a limit.
    """
    overload, before = _before_overload(steps)
    if overload is None or not before or recovers(steps) is not None:
        return None
    return before if is_last or len(steps) - overload >= FAILURES else None


def _answered(steps: Sequence[SeenStep]) -> list[float]:
    """Return what was answered per s where more was sent than that."""
    return [
        each.verdict.answered_per_s
        for each in steps
        if each.verdict.is_behind and each.verdict.answered_per_s
    ]
