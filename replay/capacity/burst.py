"""What a server answers for good once a burst has emptied its caches: less than its capacity, or as much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from replay.verdict.again import Repeatable, after_a_burst, first_part
from replay.verdict.growth import customers_of, growth_of
from replay.verdict.judge import CACHED, FEW, FEWEST, GROWING, SHORT

if TYPE_CHECKING:
    from replay.search.load import Load

DIFFERS = 0.02
"""A rate that is lower by less is the same."""


def after_burst_per_s(load: Load, rate_per_s: float) -> float | None:
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
