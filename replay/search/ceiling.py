"""The most that a server answers, requests/s, whatever the latencies: what leaves it while more comes than it can do.

A ceiling is counted in answers under overload, never in what was offered. The rate is raised until too much comes, and
then set a little above what was answered there, so that caches and queues are as they are near the ceiling. What is
answered in the second half of the sending is the ceiling. A server that keeps up with more than that as long as no
queue has emptied its caches has the higher one; that, too, is counted in answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.numbers.t_interval import half_width
from replay.verdict.growth import Growth
from replay.verdict.judge import FEW, LASTING, SETTLED, SHORT, UNDER_WAY, is_overloaded, tells_rate
from replay.verdict.judged import MARGIN, UNANSWERED

if TYPE_CHECKING:
    from replay.search.load import Load, Pushed

STRIDE = 4.0
"""The rate goes up, or down, by this factor until the highest throughput is bracketed."""
MOST_STRIDES = 25
"""Enough for a factor of 10^15: a rate that is not found by then does not exist."""
ABOVE = 1.1
"""The highest throughput is found at this factor above it: there growth shows, and the server hardly differs."""
NARROW = 1.05
"""Two rates within this factor need no third between them."""
MOST_LOOKS = 10
WIDER = 1.3
"""The t interval over eight draws held 14 of 20 ceilings (docs/validation.md): it is made wider by this factor,"""
OVERLOADS = 0.0015
"""and by this share: another overload has other steps."""
MOST_REPEATED = 400_000
"""The most requests of a run that is lengthened by repeating its requests."""
SCALED = 4
"""A run lasts this many times as long as a fleet may take to scale; its first half is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Result of the runs at a rate: whether it is too high, and how many requests/s of each load were answered."""

    rate_per_s: float
    is_outrun: bool
    answered_per_s: tuple[float, ...]

    @property
    def mean_per_s(self) -> float:
        """What was answered, the mean over the loads."""
        return float(np.mean(self.answered_per_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that is answered, requests/s. ``of_loads``: of each draw, in the overload; their mean, or more.

    ``overloaded_per_s``: what is answered while more comes than can be. It is below ``per_s`` only of a server that
    loses its caches to a queue.
    """

    per_s: float
    overloaded_per_s: float
    of_loads: tuple[float, ...]

    @property
    def interval(self) -> tuple[float, float] | tuple[None, None]:
        """The 90 % interval from the draws; nothing with one. As wide as a capacity's, and ``OVERLOADS`` wider."""
        if len(self.of_loads) < 2:
            return None, None
        reach = math.hypot(WIDER * half_width(np.log(self.of_loads)), OVERLOADS)
        return self.per_s * math.exp(-reach), self.per_s * math.exp(reach)


def ceiling_of(loads: Sequence[Load]) -> float | None:
    """Return the most that is answered, requests/s, whatever the latencies: the mean over draws of one load.

    None if no run can tell, as when all requests are refused.
    """
    found = find_ceiling(loads)
    return None if found is None else found.per_s


def find_ceiling(loads: Sequence[Load]) -> Ceiling | None:
    """Return the most that is answered, with what each draw says; None if no run can tell."""
    possible = loads[0].num_possible()
    sides = _sides(loads[0], possible) if possible else None
    if sides is None:
        return None
    followed, outrun = _refined(loads[0], *sides, possible=possible)
    told = outrun if len(loads) == 1 else _told(loads, outrun.rate_per_s, possible)
    if told is None:
        return None
    most = told.mean_per_s
    if followed.mean_per_s > NARROW * most:  # overload empties caches: less is answered then
        most = followed.mean_per_s
    return Ceiling(per_s=most, overloaded_per_s=told.mean_per_s, of_loads=told.answered_per_s)


def _sides(load: Load, possible: int) -> tuple[Told, Told] | None:
    """Return a rate that is kept up with and, at most a stride above it, one that is not."""
    rate, followed, outrun = load.own_rate_per_s, None, None
    for _ in range(MOST_STRIDES):
        told = _told([load], rate, possible)
        if told is None:
            return None
        if told.is_outrun:
            outrun = told
        else:
            followed = told
        if followed is not None and outrun is not None:
            return followed, outrun
        rate *= 1 / STRIDE if told.is_outrun else STRIDE
    return None


def _refined(load: Load, followed: Told, outrun: Told, *, possible: int) -> tuple[Told, Told]:
    """Return the same two rates, the second a little above what is answered at it."""
    for _ in range(MOST_LOOKS):
        rate = ABOVE * outrun.mean_per_s
        if not followed.rate_per_s * NARROW < rate < outrun.rate_per_s / NARROW:
            rate = math.sqrt(followed.rate_per_s * outrun.rate_per_s)
        told = _told([load], rate, possible)
        if told is None:
            break
        if not told.is_outrun:
            followed = told
        else:
            outrun = told
        is_near = outrun.rate_per_s < ABOVE * NARROW * outrun.mean_per_s
        if is_near or outrun.rate_per_s < followed.rate_per_s * NARROW:
            break
    return followed, outrun


def _told(loads: Sequence[Load], rate_per_s: float, possible: int) -> Told | None:
    """Return a rate's result; None if one of the loads is too short to tell.

    ``possible``: how many of the first load's customers an idle server answers.
    """
    known = [each for each in (_pushed(load, rate_per_s) for load in loads) if each is not None]
    if len(known) < len(loads):
        return None
    share = possible / max(int(loads[0].first.sum()), 1)
    outrun = [
        _is_outrun(each.growth, num_possible=share * int(load.first.sum()), load=load)
        for each, load in zip(known, loads, strict=True)
    ]
    return Told(
        rate_per_s=rate_per_s,
        is_outrun=sum(outrun) * 2 > len(outrun),
        answered_per_s=tuple(each.answered_per_s for each in known),
    )


def _is_outrun(growth: Growth, *, num_possible: float, load: Load) -> bool:
    """Return whether more requests arrive than are answered.

    Those that give up, or are turned away, count as not answered. Those that not even an idle server answers, as they
    are too long for it, do not count.
    """
    laps = max(1, round(growth.num_sent / max(int(load.first.sum()), 1)))
    is_lost = growth.num_sent < (1 - UNANSWERED) * laps * num_possible
    piles_up = growth.growth_frac > MARGIN and growth.generations >= SETTLED and not growth.falls_back
    return is_lost or piles_up or is_overloaded(growth)


def _pushed(load: Load, rate_per_s: float) -> Pushed | None:
    """Return the result of a run, repeated until it is long enough to tell; None if it never is."""
    span_us = len(load) / rate_per_s * 1e6
    laps = math.ceil(FEW / len(load)) if len(load) < SHORT else 1
    laps = max(laps, min(math.ceil(SCALED * load.scaling_us / span_us), MOST_REPEATED // len(load)))
    while True:
        pushed = load.pushed(rate_per_s, laps=laps)
        if pushed is None:
            return None
        growth = pushed.growth
        if tells_rate(growth) and is_overloaded(growth):
            return pushed
        if growth.in_system <= UNDER_WAY * growth.num_sent:
            return pushed
        if 2 * laps * len(load) > MOST_REPEATED:
            return pushed if is_overloaded(growth) else None
        wanted = math.ceil(LASTING * growth.in_system / growth.num_sent * laps)
        laps = min(max(2 * laps, wanted), MOST_REPEATED // len(load))
