"""A capacity's interval with the fit's uncertainty in it: the rate if all steps are longer, or shorter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from replay.capacity.capacity import Capacity, crossing_of
from replay.search.evaluation import Evaluator
from replay.search.highest import highest
from replay.search.load import load_of
from replay.simulation.pace_band import paced
from traces import RunLimit

if TYPE_CHECKING:
    from replay.search.workload_draws import Drawing
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

DRAWN = 20_000
"""With this many requests, the same at each pace, the ratio of two capacities is known to a fraction of 1 %."""
NEAR = 0.001
"""Each is found to within this share of itself: a pace changes it by a few per cent."""


def with_pace(
    found: Capacity,
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    delta: float,
    drawing: Drawing | None,
) -> Capacity:
    """Return a capacity whose interval has seeds and pace in it, as independent of each other.

    ``delta``: how far all steps may be off together, a fraction, 90 %. A capacity without an interval stays as it is.
    """
    if found.rate_per_s is None or found.low is None or found.high is None:
        return found
    own, slower, faster = _at_paces(
        found, _drawn(traces, drawing, found.requests_to_last), twin, limits, delta=delta
    )
    if min(own, slower, faster) <= 0:
        return found
    below = math.hypot(math.log(found.rate_per_s / found.low), math.log(max(own / slower, 1.0)))
    above = math.hypot(math.log(found.high / found.rate_per_s), math.log(max(faster / own, 1.0)))
    ceiling = _ceiling_at_paces(found, delta)
    return replace(
        found,
        low=found.rate_per_s * math.exp(-below),
        high=found.rate_per_s * math.exp(above),
        pace_frac=delta,
        ceiling_low=ceiling[0],
        ceiling_high=ceiling[1],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GainAtPaces:
    """How a gain moves where all steps of both servers are longer, or shorter, by ``pace_frac``.

    ``down``, ``up``: logarithms, 0 or more, of what 1 + gain is divided by, and multiplied with, at the worse and at
    the better pace; of the same requests.
    """

    pace_frac: float
    down: float
    up: float


def gain_at_paces(
    own: tuple[TwinConfig, Capacity],
    best: tuple[TwinConfig, Capacity],
    traces: Sequence[Trace],
    limits: Sequence[RunLimit],
    *,
    delta: float,
    drawing: Drawing | None,
) -> GainAtPaces | None:
    """Return how the gain of one server over another moves with the pace of both; None where one has no capacity.

    Most of a pace moves both rates alike and cancels; what is left is where a limit lies near a step's own length.
    """
    trace = _drawn(traces, drawing, max(own[1].requests_to_last, best[1].requests_to_last))
    mine, others = (
        _at_paces(found, trace, twin, limits, delta=delta) if found.rate_per_s else (0.0, 0.0, 0.0)
        for twin, found in (own, best)
    )
    if min(*mine, *others) <= 0:
        return None
    logs = [math.log(other / each) for each, other in zip(mine, others, strict=True)]
    return GainAtPaces(pace_frac=delta, down=logs[0] - min(logs), up=max(logs) - logs[0])


def _drawn(traces: Sequence[Trace], drawing: Drawing | None, least: int) -> Trace:
    """Return requests that are enough to compare paces by."""
    number = max(DRAWN, least)
    return traces[0] if drawing is None or len(traces[0]) >= number else drawing(number, 1)[0]


def _at_paces(
    found: Capacity, trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], *, delta: float
) -> tuple[float, float, float]:
    """Return a twin's capacity for one draw, requests/s: as it is, with longer and with shorter steps."""
    twins = (twin, paced(twin, 1 + delta), paced(twin, 1 - delta))
    own, slower, faster = (_capacity(trace, each, limits, near=found) for each in twins)
    return own, slower, faster


def _ceiling_at_paces(found: Capacity, delta: float) -> tuple[float | None, float | None]:
    """Return the ceiling's interval with the pace in it: a full server answers as fast as its steps are."""
    most, low, high = found.ceiling_per_s, found.ceiling_low, found.ceiling_high
    if most is None or low is None or high is None:
        return low, high
    below = math.hypot(math.log(most / low), math.log1p(delta))
    above = math.hypot(math.log(high / most), -math.log1p(-delta))
    return most * math.exp(-below), most * math.exp(above)


def _capacity(trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], *, near: Capacity) -> float:
    """Return the capacity for one draw, requests/s; 0 where it has none."""
    evaluator = Evaluator(loads=[load_of(trace, twin)], limits=limits)
    found = highest(evaluator, least=_kept(evaluator, near.rate_per_s or 0.0), tolerance=NEAR)
    return crossing_of(evaluator, found)


def _kept(evaluator: Evaluator, rate: float) -> float:
    """Return a rate near this one that is within the limits, 0 if there is none."""
    for share in (1.0, 0.95, 0.85, 0.7):
        if evaluator.at(share * rate).meets(evaluator.limits):
            return share * rate
    return 0.0
