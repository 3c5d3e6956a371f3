"""The highest rate within an SLO, its interval, which limit breaks first, and which resource would have to grow.

One draw of few requests finds the approximate capacity, and how many requests an exact one takes. That many are drawn
with each seed, and the rate at which all of them together break the first limit is the capacity. The rates at which
each seed alone breaks it show how far chance moves the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from lazy_dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from replay.capacity.assumed_seats import AssumedSeats
from replay.capacity.binding import Binding, binding_of
from replay.capacity.burst import AfterBurst, after_a_burst_at
from replay.numbers.t_interval import half_width
from replay.search.ceiling import NARROW as SAME
from replay.search.ceiling import Ceiling, find_ceiling
from replay.search.evaluation import FAILED, GROWN, THROUGHPUT, TOO_SHORT, Evaluation, Evaluator
from replay.search.highest import (
    TOLERANCE,
    HighestRate,
    highest,
    highest_among,
    requests_to_last,
)
from replay.search.load import load_of, loads_of
from traces import RunLimit
from traces.facts import NotebookAnswer

if TYPE_CHECKING:
    from replay.search.workload_draws import Drawing
    from replay.twin.twin_config import TwinConfig
    from traces import Trace

ROUGHLY = 0.02
"""The first draw finds the capacity to this share of itself."""
NUM_MEASURED = 150_000
"""This many requests, of all seeds together, make intervals 2 to 4 % wide (docs/validation.md)."""
NARROW = 0.038
"""Where the interval is wider than this share of the rate, more seeds are drawn, as many as should suffice."""
SPARE = 1.2
"""This many times what a run must have is drawn, since a longer one may find a higher rate."""
MOST_DRAWN = 200_000
"""With one seed; a search that needs more does not draw more of its own accord."""
MOST_TRIES = 3
"""How often, at most, the first draw is made longer."""
BURSTS = 1.3
"""A capacity's interval is this factor wider than the t interval over seeds, which holds 75 to 85 %: long waits come
in bursts, and seeds with few of them have a high capacity and a small spread at once (docs/validation.md)."""
HOPELESS = 1.1
"""Where an idle server has this many times what is allowed, no other draw of the requests is looked at."""
AROUND = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2)
"""Shares of the capacity at which the curve is drawn; between the middle two, the rates that the search simulated."""
APART = 0.03
"""A rate this near to one at which all draws were simulated is left out: one draw's tail may seem a step back."""
DRAWN_CURVE = 10_000
"""Requests with which it is drawn away from the capacity, and the highest throughput is found."""
WIDER = (1.04, 1.1, 1.25, 1.5, 2.0)
"""Where single seeds have their capacities further away than all rates seen, all draws are simulated there, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityAsked:
    """The question behind a capacity: the limits, the twin, and the requests' lengths in words.

    ``notes``: what a reader needs, of the requests' file first. ``price_per_hour``: of all servers, None without
    prices.
    """

    limits: tuple[RunLimit, ...]
    twin: TwinConfig
    lengths: str
    notes: tuple[str, ...] = ()
    price_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Capacity(NotebookAnswer):
    """The highest rate within the limits, requests/s; None where not even an idle server meets them.

    ``low``, ``high``: 90 % t interval over seeds (or stretches of a recorded load), None where there is none.
    ``limiting``: the limit that breaks first, or ``throughput``. ``ceiling_per_s``: the most that is answered, whatever
    the latencies; None where runs are too short to find it, or no rate is within the limits. ``ceiling_low``,
    ``ceiling_high``: its 90 % interval. ``after_burst``: the rate that survives a burst; None where the capacity does.
    ``assumed_seats``: seats that nobody stated, whose likely numbers the interval then holds.
    ``curve``: rates around it, ascending. ``evaluations``: all
    rates simulated, ascending. ``of_parts``: the capacity of each seed or stretch, of the same requests in every
    search; empty where one has none. ``num_requests``: of each seed; ``requests_to_last``: how many make a run long
    enough for queues to grow; ``is_too_short``: there are fewer, or the search ended at a rate whose runs could not
    tell; then there is no interval. ``pace_frac``: how far all steps may be off together, which
    the interval then has in it; None where the twin does not say. ``asked``: of one that a user asked for.
    ``alone_us``: each limit's value of requests that come alone, where no rate is within the limits and it is known.
    """

    drawn_by: ClassVar[str] = "replay.drawn_answers:of_capacity"
    told_by: ClassVar[str] = "replay.capacity.text:capacity_document"

    rate_per_s: float | None
    low: float | None
    high: float | None
    limiting: str
    ceiling_per_s: float | None
    idle: Evaluation
    curve: tuple[Evaluation, ...]
    evaluations: tuple[Evaluation, ...]
    binding: Binding | None
    num_seeds: int
    num_parts: int
    of_parts: tuple[float, ...]
    num_requests: int
    requests_to_last: int = 0
    is_too_short: bool = False
    pace_frac: float | None = None
    ceiling_low: float | None = None
    ceiling_high: float | None = None
    after_burst: AfterBurst | None = None
    assumed_seats: AssumedSeats | None = None
    asked: CapacityAsked | None = None
    alone_us: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the capacity in a line."""
        if self.rate_per_s is None:
            return f"no rate is within the limits ({self.limiting} breaks first)"
        reach = "" if self.low is None or self.high is None else f" (90 %: {self.low:.4g} to {self.high:.4g})"
        return f"{self.rate_per_s:.4g} requests/s{reach}, held by {self.limiting}"

    @property
    def is_cut_short(self) -> bool:
        """Whether the search ended at a rate whose runs could not tell: the capacity is this rate or a higher one."""
        return self.rate_per_s is not None and self.limiting == TOO_SHORT

    @property
    def is_by_seeds(self) -> bool:
        """Whether the load was drawn several times."""
        return self.num_seeds > 1

    @property
    def at_capacity(self) -> Evaluation:
        """The evaluation at the capacity; that of an idle server where there is none."""
        return next((each for each in self.evaluations if each.rate_per_s == self.rate_per_s), self.idle)

    def is_met(self, evaluation: Evaluation, limits: Sequence[RunLimit]) -> bool:
        """Return whether a rate is within the limits and answered; above a rate that is not, none is."""
        broken = (each.rate_per_s for each in self.evaluations if not each.meets(limits))
        return evaluation.rate_per_s < min(broken, default=math.inf)


def capacity_of_draws(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    drawing: Drawing | None = None,
    least: int = NUM_MEASURED,
    with_binding: bool = True,
    with_curve: bool = True,
    near: HighestRate | None = None,
) -> Capacity:
    """Return the capacity of a twin for a workload, given as several draws of it, or as one recorded load.

    ``drawing``: draws it with as many requests as it takes, ``least`` together; None: the given ones are all there are.
    ``near``: of several draws, what one of fewer requests has found; then the rate alone is looked for, not what
    survives a burst, and the most that is answered only where the load ends the search. Raises ConfigError where the
    workload has no times to scale.
    """
    pilot = _pilot(traces, twin, limits, drawing=drawing, near=near)
    if _is_hopeless(pilot, limits):
        return _none_of(pilot, limits)
    evaluator, found, sure = _of_all(pilot, traces, twin, limits, drawing=drawing, least=least)
    broken = found.limiting(limits)
    is_asked = found.low is not None and (near is None or broken == THROUGHPUT)
    most = find_ceiling(evaluator.loads) if is_asked else None
    found, sure, most = answered(evaluator, found, sure, most)
    rate = found.low
    outline = _outline(evaluator)
    curve = () if rate is None or not with_curve else _curve(evaluator, outline, rate)
    return Capacity(
        rate_per_s=rate,
        low=sure.low,
        high=sure.high,
        limiting=broken,
        ceiling_per_s=None if most is None else most.per_s,
        ceiling_low=None if most is None else most.interval[0],
        ceiling_high=None if most is None else most.interval[1],
        after_burst=after_a_burst_at(evaluator.loads[0], rate) if near is None and rate is not None else None,
        idle=found.idle,
        curve=curve,
        evaluations=_in_order({**{each.rate_per_s: each for each in curve}, **evaluator.seen}),
        binding=binding_of(pilot.trace, twin, limits) if with_binding and rate is not None else None,
        num_seeds=len(evaluator.loads),
        num_parts=evaluator.num_parts,
        of_parts=sure.of_parts,
        num_requests=len(evaluator.loads[0]),
        requests_to_last=sure.asks,
        is_too_short=sure.is_too_short,
    )


def _of_all(
    pilot: Pilot,
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    drawing: Drawing | None,
    least: int,
) -> tuple[Evaluator, HighestRate, Sureness]:
    """Return the search with all draws, from what one of them has found.

    It has more requests where all draws together ask for longer runs than the one did, and more seeds where that takes
    them.
    """
    evaluator, found, asks = pilot.evaluator, pilot.found, pilot.asks
    for _ in range(MOST_TRIES):
        if drawing is not None:
            number = num_drawn(asks, seeds=drawing.seeds, least=least)
            traces = drawing(number, drawing.seeds)
        if drawing is not None or len(traces) > 1:
            evaluator = Evaluator(loads=loads_of(traces, twin), limits=limits)
            found = highest(evaluator, near=found)
        sure = sureness_of(evaluator, found)
        asks = max(sure.asks, asks)
        if drawing is None or not sure.is_too_short:
            break
        if num_drawn(asks, seeds=drawing.seeds, least=least) <= len(traces[0]):
            break
    if drawing is not None and (wanted := sure.wanted_seeds(drawing)) > drawing.seeds:
        seen = sorted(evaluator.seen)
        evaluator = evaluator.with_more(
            loads_of(drawing(number, wanted)[drawing.seeds :], twin, first=drawing.seeds)
        )
        found = highest_among(evaluator, seen, near=found)
        sure = sureness_of(evaluator, found)
    return evaluator, found, sure


@dataclass(frozen=True, slots=True, kw_only=True)
class Sureness:
    """How sure a capacity is. ``of_parts``, ``low``, ``high``: see ``Capacity``; ``asks``: its ``requests_to_last``."""

    asks: int
    is_too_short: bool
    of_parts: tuple[float, ...]
    low: float | None
    high: float | None

    def wanted_seeds(self, drawing: Drawing) -> int:
        """Return how many seeds should make the interval narrow: as many as there are, where it is or where none is."""
        if self.low is None or self.high is None:
            return drawing.seeds
        width = math.log(self.high / self.low)
        wanted = math.ceil(drawing.seeds * (width / NARROW) ** 2)
        return max(drawing.seeds, min(wanted, drawing.most_seeds))


def sureness_of(evaluator: Evaluator, found: HighestRate) -> Sureness:
    """Return how sure a capacity is that was found of these loads."""
    asks = requests_to_last(evaluator, found)
    is_too_short = len(evaluator.loads[0]) < asks
    of_parts = () if is_too_short else _of_parts(evaluator, found)
    low, high = _interval(evaluator, found, of_parts)
    return Sureness(asks=asks, is_too_short=is_too_short, of_parts=of_parts, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pilot:
    """The result of one draw, and how many requests are needed for an answer."""

    trace: Trace
    evaluator: Evaluator
    found: HighestRate
    asks: int


def searched(
    trace: Trace,
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    drawing: Drawing | None = None,
    is_all: bool = False,
) -> Pilot:
    """Return one draw's result, from a longer draw if it is too short. ``is_all``: there are no other draws."""
    for _ in range(MOST_TRIES):
        evaluator = Evaluator(loads=[load_of(trace, twin)], limits=limits)
        found = highest(evaluator, tolerance=TOLERANCE if is_all else ROUGHLY)
        asks = requests_to_last(evaluator, found)
        pilot = Pilot(trace=trace, evaluator=evaluator, found=found, asks=asks)
        if drawing is None or asks <= len(trace):
            break
        (longer,) = drawing(num_drawn(asks, seeds=1, least=0), 1)
        if len(longer) <= len(trace):
            break
        trace = longer
    return pilot


def _pilot(
    traces: Sequence[Trace],
    twin: TwinConfig,
    limits: Sequence[RunLimit],
    *,
    drawing: Drawing | None,
    near: HighestRate | None,
) -> Pilot:
    """Return one draw's result; ``near``: what one of fewer requests has found, so that rates around it suffice."""
    if near is None:
        is_all = drawing is None and len(traces) == 1
        return searched(traces[0], twin, limits, drawing=drawing, is_all=is_all)
    evaluator = Evaluator(loads=[load_of(traces[0], twin)], limits=limits)
    found = highest(evaluator, near=near, tolerance=ROUGHLY)
    return Pilot(trace=traces[0], evaluator=evaluator, found=found, asks=0)


def num_drawn(asks: int, *, seeds: int, least: int = NUM_MEASURED) -> int:
    """Return how many requests each seed draws: ``least`` over all seeds, and no fewer than a run needs."""
    return min(max(math.ceil(least / seeds), math.ceil(SPARE * asks)), MOST_DRAWN)


def _is_hopeless(pilot: Pilot, limits: Sequence[RunLimit]) -> bool:
    """Return whether an idle server clearly breaks a limit, so that no other requests need be looked at."""
    ratios = pilot.found.idle.ratios(limits)
    return pilot.found.low is None and max(ratios.values(), default=0.0) > HOPELESS


def _none_of(pilot: Pilot, limits: Sequence[RunLimit]) -> Capacity:
    """Return that there is no capacity, from one draw."""
    return Capacity(
        rate_per_s=None,
        low=None,
        high=None,
        limiting=pilot.found.limiting(limits),
        ceiling_per_s=None,
        idle=pilot.found.idle,
        curve=(),
        evaluations=_in_order(pilot.evaluator.seen),
        binding=None,
        num_seeds=1,
        num_parts=pilot.evaluator.num_parts,
        of_parts=(),
        num_requests=len(pilot.trace),
    )


def answered(
    evaluator: Evaluator, found: HighestRate, sure: Sureness, most: Ceiling | None
) -> tuple[HighestRate, Sureness, Ceiling | None]:
    """Return a capacity that is not above what is answered, with its interval; and the ceiling.

    Where only the load ends the search, the capacity is the ceiling itself: a rate a few per cent above it piles up too
    little in a run to be told from chance. A server that keeps up with more than it answers in an overload, which
    empties its caches, has the higher ceiling.
    """
    if most is None or found.low is None or found.broken is None:
        return found, sure, most
    if found.low > SAME * most.overloaded_per_s and found.low > most.per_s:
        kept = evaluator.kept_per_s(found.low)
        most = replace(most, per_s=max(most.per_s, found.low if kept > found.low * (1 - GROWN) else kept))
    is_load = found.limiting(evaluator.limits) == THROUGHPUT
    is_ceiling = is_load and most.per_s <= found.broken.rate_per_s
    if found.low <= most.per_s and not is_ceiling:
        return found, sure, most
    evaluator.at(most.per_s)
    if not evaluator.at(most.per_s).meets(evaluator.limits) and found.low <= most.per_s:
        return found, sure, most
    scale = most.per_s / found.low
    low, high = (None if each is None else each * scale for each in (sure.low, sure.high))
    if is_load and low is not None and most.interval[0] is not None:
        low, high = most.interval
    return replace(found, low=most.per_s), replace(sure, low=low, high=high), most


def _outline(evaluator: Evaluator) -> Evaluator:
    """Return the simulation of rates away from the capacity: as many of the draws as are needed there."""
    enough = math.ceil(DRAWN_CURVE / len(evaluator.loads[0]))
    if enough >= len(evaluator.loads):
        return evaluator
    return Evaluator(loads=evaluator.loads[:enough], limits=evaluator.limits)


def _curve(evaluator: Evaluator, outline: Evaluator, rate: float) -> tuple[Evaluation, ...]:
    """Return the evaluations of rates around the capacity."""
    near = {each: found for each, found in evaluator.seen.items() if 0.88 * rate < each < 1.12 * rate}
    apart = [
        share * rate for share in AROUND if all(abs(share * rate - each) > APART * rate for each in near)
    ]
    return _in_order({**{each: outline.at(each) for each in apart}, **near})


def _in_order(seen: Mapping[float, Evaluation]) -> tuple[Evaluation, ...]:
    return tuple(seen[rate] for rate in sorted(seen))


def short_run_note(found: Capacity, num_requests: int) -> str | None:
    """Return the warning that a run is too short for queues to grow, None where it lasts long enough."""
    if not found.is_too_short:
        return None
    why = "the run ends before queues have grown, and the capacity comes out too high"
    better = "is better"
    if found.is_cut_short:
        why = "beyond that rate a run ends before it could tell whether the server keeps up"
        better = "or more would tell"
    elif found.rate_per_s is None:
        why = "the run ends before it could tell whether the server keeps up"
    limit = "" if num_requests < MOST_DRAWN else ", more than a search takes by itself"
    return f"{num_requests:,} requests are too few: {why}. --num-requests {found.requests_to_last} {better}{limit}"


def _interval(
    evaluator: Evaluator, found: HighestRate, of_parts: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return the 90 % interval around where all requests together break the limit; the rate is the last below it."""
    if found.low is None or not of_parts:
        return None, None
    middle = crossing_of(evaluator, found)
    reach = BURSTS * half_width(np.log(of_parts))
    return min(middle * math.exp(-reach), found.low), middle * math.exp(reach)


def crossing_of(evaluator: Evaluator, found: HighestRate) -> float:
    """Return the rate at which all requests together break the limit, from the last below it on; 0: there is none."""
    if found.low is None:
        return 0.0
    broken = found.limiting(evaluator.limits)
    middle = _crossing(evaluator, lambda each: _ratio(each, evaluator.limits, broken))
    return middle if found.low <= middle < math.inf else found.low


def _of_parts(evaluator: Evaluator, found: HighestRate) -> tuple[float, ...]:
    """Return the capacities of single seeds, or stretches; none where one of them has none."""
    limits, rate = evaluator.limits, found.low
    broken = found.limiting(limits)
    if rate is None or broken in (FAILED, TOO_SHORT) or (broken == THROUGHPUT and len(evaluator.loads) == 1):
        return ()

    def own() -> list[float]:
        return [
            _crossing(evaluator, lambda each, part=part: _ratio(each, limits, broken, part=part))  # type: ignore[misc]
            for part in range(evaluator.num_parts)
        ]

    for wider in WIDER:
        parts = own()
        if min(parts) == 0.0:
            evaluator.at(rate / wider)
        if max(parts) == math.inf:
            evaluator.at(rate * wider)
    parts = own()
    return tuple(parts) if min(parts) > 0 and max(parts) < math.inf else ()


def _crossing(evaluator: Evaluator, ratio_of: Callable[[Evaluation], float]) -> float:
    """Return the rate at which a ratio passes 1, between simulated ones; 0 if none is below 1, infinity if all are."""
    seen = _in_order(evaluator.seen)
    ratios = [ratio_of(each) for each in seen]
    broken = next((i for i, ratio in enumerate(ratios) if ratio > 1), None)
    if broken is None or broken == 0:
        return math.inf if broken is None else 0.0
    below, above = seen[broken - 1].rate_per_s, seen[broken].rate_per_s
    before, after = ratios[broken - 1], ratios[broken]
    if math.isinf(after) or before <= 0:
        return below
    share = -math.log(before) / math.log(after / before)
    return float(below * (above / below) ** share)


def _ratio(each: Evaluation, limits: Sequence[RunLimit], broken: str, *, part: int | None = None) -> float:
    """Return the largest value over what is allowed; where throughput breaks first, also what piles up.

    ``part``: of this seed or stretch; None: of all together.
    """
    ratio = each.worst_latency(limits) if part is None else each.worst_of_part(part, limits)
    if broken != THROUGHPUT:
        return ratio
    return max(ratio, (each.growth_frac if part is None else each.growths[part]) / GROWN)
