"""How far all steps of a fitted twin may be off together: what held-out requests show, and what none of them can."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from replay.twin.pace import MOST, Pace
from sim import Extended

if TYPE_CHECKING:
    from calibrate.fit.result import Fit

RUN_TO_RUN = 0.005
"""A server's pace differs by so much from one run of the same requests to the next (90 %, one H100)."""
WITHIN = 0.01
"""Steps of loads within the fitted ones are off by so much, where the terms are right."""
BEYOND, BEYOND_WITH_TILES = 0.026, 0.01
"""The same beyond them: a smooth curve does not know where tiles end."""
DECIMALS = 4


def pace_of(fit: Fit) -> Pace:
    """Return the pace of a fitted twin, fractions; at least what the chosen model was off by on held-out requests.

    An E2E is off by at least as much as the steps that it consists of, so that the one bounds the other.
    """
    chosen = next((each for each in fit.candidates if each.chosen), None)
    off = 0.0 if chosen is None else chosen.e2e_off
    latency = fit.config.latency
    has_tiles = isinstance(latency, Extended) and bool(latency.tiles)
    within = max(WITHIN, math.hypot(off, RUN_TO_RUN))
    beyond = max(within, BEYOND_WITH_TILES if has_tiles else BEYOND)
    return Pace(within=_rounded(within), beyond=_rounded(beyond))


def _rounded(value: float) -> float:
    return min(round(value, DECIMALS), MOST)
