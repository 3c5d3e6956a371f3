"""Whether a rate is within an SLO, of what a step has seen so far: pure, for a run under way as for one that is over.

The first fifth of the requests, and at least two generations, find an empty server and are not judged; a generation is
as many as are sent while one stays. Nothing is sure before some generations have passed: queues grow slowly.

Requests that come before a server is warm are told from an overload by what follows: where the second half of the
judged requests keeps a limit, and the first broke it, the first is left out. A server that falls behind is known by its
queue, which grows from each tenth of the step to the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from observe.judged.criteria import Criterion
from observe.judged.sequential_test import FEWEST, ShareBeyond, share_beyond

Floats = NDArray[np.float64]

SETTLING: Final = 0.2
"""Share of the requests, the first, that is not judged; as in ``vtwin capacity``."""
TOO_SHORT: Final = "too short to tell"
SETTLING_GENERATIONS: Final = 2
LASTING_TO_BREAK: Final = 5
LASTING_TO_MEET: Final = 80
"""Before so many generations are judged, no limit is surely broken, or kept. In runs of 30 generations ``vtwin
capacity`` found capacities 7 % too high, of 80 within 1.5 % (``replay.search.highest``)."""
OF_FIRST: Final = 50
"""A stay is the median of so many first answers: in an overload all later ones stay longer."""
THROUGHPUT: Final = "throughput"
"""What breaks where a queue grows, and no latency is beyond its limit yet."""
NUM_TENTHS: Final = 10
GROWN: Final = 0.02
"""A server in which a larger share of the requests piles up falls behind; a smaller one is chance;"""
T_OF_TENTHS: Final = 3.5
"""so is a growth below this many of its standard errors (Student's t of 9 steps: 0.4 %)."""
LASTING_TO_GROW: Final = 10
FEWEST_FOR_GROWTH: Final = 100
"""A server that fills for the first time is told from a queue by generations, and requests, as many as these."""
COLD_TIMES: Final = 3.0
"""A slow start has at least so many times the share of requests beyond a limit that is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAnswers:
    """The requests of a step, as far as all that were sent before are answered, in the order of sending.

    ``send_us``, ``end_us``: float64 [n], µs from the step's start. ``ratios``: by criterion, float64 [n].
    """

    send_us: Floats
    end_us: Floats
    ratios: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """A step's result. ``is_met``: whether all limits are surely kept, or one surely broken; None: not known.

    ``shares``: by criterion. ``grown_frac``: the share of the requests that piled up, ``is_behind``: surely.
    ``is_too_short``: too few generations were judged to tell anything. ``slow_start_us``: how long the server was slow
    before it kept the limits, None: it was not. ``answered_per_s``: of a server that is behind, during the sending.
    """

    is_met: bool | None
    shares: Mapping[str, ShareBeyond]
    grown_frac: float
    is_behind: bool
    is_too_short: bool
    slow_start_us: float | None
    answered_per_s: float | None
    num_judged: int

    def best_guess(self, criteria: Sequence[Criterion]) -> bool:
        """Return whether the limits are kept, by what is surely known, else by what was counted."""
        if self.is_met is not None:
            return self.is_met
        return not self.is_too_short and self.worst_ratio(criteria) <= 1

    def worst_ratio(self, criteria: Sequence[Criterion]) -> float:
        """Return the largest share of requests beyond a limit, over what is allowed."""
        return max((self.shares[each.name].beyond_frac / each.beyond_frac for each in criteria), default=0.0)

    def broken(self, criteria: Sequence[Criterion]) -> str:
        """Return what is furthest beyond what is allowed."""
        if self.worst_ratio(criteria) <= 1:
            return THROUGHPUT if self.is_behind else TOO_SHORT
        return max(criteria, key=lambda each: self.shares[each.name].beyond_frac / each.beyond_frac).name


def judge(answers: StepAnswers, criteria: Sequence[Criterion]) -> StepVerdict:
    """Return what the answers of a step say of the limits."""
    n = len(answers.send_us)
    generation = _generation(answers)
    first = min(max(int(SETTLING * n), math.ceil(SETTLING_GENERATIONS * generation)), n)
    begin = _warm_from(answers, criteria, first)
    lasted = (n - begin) / max(generation, 1.0)
    shares = {
        each.name: share_beyond(answers.ratios[each.name][begin:], each.beyond_frac) for each in criteria
    }
    grown, is_growing = _growth(answers, begin)
    is_behind = is_growing and lasted >= LASTING_TO_GROW
    known = [each.is_met for each in shares.values()]
    is_met: bool | None = None
    if is_behind or (False in known and lasted >= LASTING_TO_BREAK):
        is_met = False
    elif all(known) and lasted >= LASTING_TO_MEET:
        is_met = True
    return StepVerdict(
        is_met=is_met,
        shares=shares,
        grown_frac=grown,
        is_behind=is_behind,
        is_too_short=n - begin < FEWEST or lasted < LASTING_TO_BREAK,
        slow_start_us=float(answers.send_us[begin]) if begin > first else None,
        answered_per_s=_answered_per_s(answers, begin) if is_behind else None,
        num_judged=n - begin,
    )


def _generation(answers: StepAnswers) -> float:
    """Return how many requests are sent while one stays."""
    n = len(answers.send_us)
    if n < 2:
        return 0.0
    stay_us = float(np.median((answers.end_us - answers.send_us)[:OF_FIRST]))
    return stay_us * (n - 1) / max(float(answers.send_us[-1] - answers.send_us[0]), 1.0)


def _warm_from(answers: StepAnswers, criteria: Sequence[Criterion], first: int) -> int:
    """Return the first request to judge: ``first``, or the middle of the rest where only what is before it was slow."""
    middle = (first + len(answers.send_us)) // 2
    if middle - first < FEWEST:
        return first
    has_slow_start = False
    for each in criteria:
        before, after = (
            share_beyond(answers.ratios[each.name][part], each.beyond_frac)
            for part in (slice(first, middle), slice(middle, None))
        )
        if after.beyond_frac > each.beyond_frac:
            return first
        is_cold = before.beyond_frac > COLD_TIMES * each.beyond_frac and _falls(answers, first, middle)
        has_slow_start |= is_cold and before.is_met is False
    return middle if has_slow_start else first


def _falls(answers: StepAnswers, first: int, middle: int) -> bool:
    """Return whether fewer are in flight in the second half than in the first: no queue grows."""
    held = _in_flight(answers)
    return bool(held[middle:].mean() <= held[first:middle].mean())


def _in_flight(answers: StepAnswers) -> Floats:
    """Return how many requests were in flight when each was sent, itself left out; float64 [n]."""
    ends = np.sort(answers.end_us)
    done = np.searchsorted(ends, answers.send_us, side="right")
    return np.asarray(np.arange(len(answers.send_us)) - done, np.float64)


def _growth(answers: StepAnswers, begin: int) -> tuple[float, bool]:
    """Return the share of the requests that piled up from ``begin`` on, and whether that is surely a growth."""
    held = _in_flight(answers)[begin:]
    if len(held) < FEWEST:
        return 0.0, False
    means = np.array([each.mean() for each in np.array_split(held, NUM_TENTHS)])
    steps = np.diff(means)
    grown = float(steps.mean() / (len(held) / NUM_TENTHS))
    error = float(steps.std(ddof=1) / np.sqrt(len(steps)))
    is_growing = grown > GROWN and float(steps.mean()) > T_OF_TENTHS * error
    return grown, is_growing and len(held) >= FEWEST_FOR_GROWTH


def _answered_per_s(answers: StepAnswers, begin: int) -> float:
    """Return the answers per second from the first judged request to the last that was sent."""
    since, until = answers.send_us[begin], answers.send_us[-1]
    done = np.count_nonzero((answers.end_us > since) & (answers.end_us <= until))
    return float(done / max(until - since, 1.0) * 1e6)
