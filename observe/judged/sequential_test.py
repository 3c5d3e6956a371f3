"""Whether the share of requests beyond a limit is surely above what is allowed, surely below, or not known yet.

Neighbours in time share a queue, and long waits come together: a run of n requests is worth fewer independent ones.
How many, the scatter of batches says (``traces.findings.tail_precision``, batch means). Of so many, the number beyond
the limit is about Poisson's; the share is known where chance would bring as many, or as few, less often than
``ERROR``, at each of a run's looks.
"""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from traces import NUM_BATCHES, num_effective

Floats = NDArray[np.float64]

ERROR = 0.003
"""The chance of a look to be wrong on each side at a server exactly at its limit, were its worth known. It is not: on
queues at 90 % load some 5 % of looks were (docs/how-to/find-the-capacity-of-a-server.md)."""
FEWEST = 2 * NUM_BATCHES


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBeyond:
    """The share of requests beyond a limit; ``worth``: how many independent requests it is known from.

    ``is_met``: whether the limit is surely kept, None: not known.
    """

    beyond_frac: float
    worth: float
    is_met: bool | None

    @property
    def num_beyond(self) -> float:
        """Of so many independent requests, those beyond."""
        return self.beyond_frac * self.worth


def share_beyond(ratios: Floats, allowed_frac: float) -> ShareBeyond:
    """Return what requests, in the order in which they were sent, say of a limit.

    ``ratios``: latency over the limit, float64 [n]. Of fewer than ``FEWEST`` nothing is known.
    """
    n = len(ratios)
    if n < FEWEST:
        return ShareBeyond(beyond_frac=float(np.mean(ratios > 1)) if n else 0.0, worth=float(n), is_met=None)
    finite = np.where(np.isinf(ratios), np.finfo(np.float64).max, ratios)
    worth = num_effective(finite, np.sort(finite), tail=allowed_frac)
    beyond = float(np.mean(ratios > 1))
    expected, seen = allowed_frac * worth, beyond * worth
    is_met: bool | None = None
    if beyond > allowed_frac and chance_of_at_least(seen, expected) < ERROR:
        is_met = False
    elif beyond < allowed_frac and 1 - chance_of_at_least(seen + 1, expected) < ERROR:
        is_met = True
    return ShareBeyond(beyond_frac=beyond, worth=worth, is_met=is_met)


def chance_of_at_least(number: float, expected: float) -> float:
    """Return the chance that Poisson's distribution gives so many or more; ``number`` may be no whole one, > 0.

    The regularised lower incomplete gamma function P(number, expected), by its series (Abramowitz and Stegun, 6.5.29).
    """
    if expected <= 0:
        return 0.0
    if number > 50 * (expected + 1):
        return 0.0
    term = math.exp(number * math.log(expected) - expected - math.lgamma(number + 1))
    total, k = 0.0, 0
    while term > 1e-12 * max(total, 1e-300) or k < expected:
        total += term
        k += 1
        term *= expected / (number + k)
        if k > 100_000 or (term == 0.0 and k > expected):
            break
    return min(total, 1.0)
