"""The highest rate at which a server recovers from a burst, where that is less than its capacity.

A burst makes a queue, and a queue may empty the caches that the server lives from. Then it answers less than comes, and
the queue stays.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from replay.search.highest import bisect
from replay.verdict.again import Repeatable, after_a_burst, first_part
from replay.verdict.growth import customers_of, growth_of
from replay.verdict.judge import CACHED, FEW, FEWEST, GROWING, SHORT

if TYPE_CHECKING:
    from replay.search.load import Load

DIFFERS = 0.02
"""A rate that is lower by less is the same."""

STEP = 0.8
"""The search goes down by this factor until the server recovers."""
MOST_STEPS = 12
NEAR = 0.02
"""The rate is found to this share of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterBurst:
    """What a burst changes, in requests/s.

    ``survives_per_s``: the highest rate from which the server recovers, None where none was found. ``left_per_s``: what
    it answers for good if the burst comes at its capacity.
    """

    survives_per_s: float | None
    left_per_s: float


def after_a_burst_at(load: Load, rate_per_s: float) -> AfterBurst | None:
    """Return what a burst changes at a rate that the server keeps up with; None where it recovers."""
    left = left_after_burst(load, rate_per_s)
    if left is None:
        return None
    high, low = rate_per_s, rate_per_s * STEP
    for _ in range(MOST_STEPS):
        if left_after_burst(load, low) is None:
            break
        high, low = low, low * STEP
    else:
        return AfterBurst(survives_per_s=None, left_per_s=left)
    low, _ = bisect(lambda rate: left_after_burst(load, rate) is None, low, high, tolerance=NEAR)
    return AfterBurst(survives_per_s=low, left_per_s=left)


def left_after_burst(load: Load, rate_per_s: float) -> float | None:
    """Return the requests/s that are answered after a fifth of a run has come at once, where others come at a rate.

    None where the server recovers: it then answers what comes. Only caches that a queue empties can make a server
    slower for good, so nothing is simulated without hits, nor of a run so short that the burst is most of it.
    """
    requests = load.at(rate_per_s)
    run = Repeatable(requests=requests, session=load.session, first=load.first, serve=load.serve_again)
    part = first_part(run, max(len(run) // 2, min(len(run), FEW)))
    if len(part) < SHORT or not _has_hits(load, rate_per_s):
        return None
    calm = growth_of(customers_of(part.serve(part.requests, np.arange(len(part)), len(part)), part.session))
    growth = growth_of(customers_of(after_a_burst(part), part.session))
    if calm is None or growth is None or growth.falls_back or growth.growth_frac <= GROWING:
        return None
    if growth.in_system <= 2 * max(calm.in_system, FEWEST):
        return None
    # of sessions as wholes, or of requests: the share that is answered is the same
    left = growth.served_per_s / growth.sent_per_s * rate_per_s
    return left if left < rate_per_s * (1 - DIFFERS) else None


def _has_hits(load: Load, rate_per_s: float) -> bool:
    outcomes = load.serve(load.at(rate_per_s), "none")[0]
    cached = outcomes.num_cached_tokens[outcomes.scheduled_us >= 0].sum()
    return float(cached) >= CACHED * float(load.requests.prompt_tokens.sum())
