"""The highest rate within an SLO, how sure that is, which limit breaks first, and what would have to grow.

Every rate is simulated with the same draws, so that one rate is better than another for its load and not by chance.
From a rate of the right size the search goes up until a limit breaks, or more comes than is answered
(``replay.verdict.growth``); bisection then finds where. A run that ends before it could tell meets no limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from replay.plan.evaluation import GROWN, THROUGHPUT, Evaluation, Evaluator
from replay.plan.load import load_of
from sim.config import UNBOUNDED, EngineConfig, InvalidConfig
from traces.run_slo import RunLimit

if TYPE_CHECKING:
    from replay.twin.config import TwinConfig
    from traces import Trace

TOLERANCE = 0.005
"""Bisection ends when the rate is known to this share of itself,"""
CEILING_TOLERANCE = 0.02
"""and the most that is answered to this one."""
IDLE = 1e-3
"""At this share of a rate of the right size, requests hardly ever meet."""
MOST_DOUBLINGS = 40
"""From a rate of the right size up, or down."""
LEVEL = 0.90
GAIN = 0.02
"""Twice of a resource that gives less than this much more rate does not bind."""
LASTING = 50
"""A run that lasts less than so many times a request ends before queues have grown: in runs of 30 times, capacities
came out 7 % too high, of 80 times within 1.5 % (docs/how-to/tune-the-flags.md)."""
MORE = 4
"""So many times as many requests are asked for where a run could not tell whether the server keeps up."""
AROUND = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2)
"""Shares of the capacity at which the curve is drawn."""

Resource = Literal["seats", "kv_blocks", "token_budget", "all"]
RESOURCES: dict[Resource, tuple[str, ...]] = {
    "seats": ("max_num_seqs",),
    "kv_blocks": ("num_gpu_blocks",),
    "token_budget": ("max_num_batched_tokens",),
    "all": ("max_num_seqs", "num_gpu_blocks", "max_num_batched_tokens"),
}
STEP_TIME = "step_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What holds the capacity down: of seats, KV blocks and the step's token budget the one that twice of gives most.

    ``resource``: that one, "all" where only all three together help, ``step_time`` where nothing does: steps would have
    to be faster. ``with_twice``: the capacity with twice as much of each, requests/s; a resource that is unbounded or
    cannot grow alone is left out.
    """

    resource: str
    with_twice: dict[str, float]
    base_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The highest rate within the limits, requests/s; None where not even an idle server keeps them.

    ``low``, ``high``: 90 % t interval over seeds (or stretches of a recorded load), None where there is none.
    ``limiting``: the limit that breaks first, or ``throughput``. ``ceiling_per_s``: the most that is answered, whatever
    the latencies; None where runs are too short to find it. ``curve``: rates around it, ascending. ``evaluations``: all
    rates simulated, ascending. ``of_parts``: the capacity of each seed or stretch, of the same requests in every
    search; empty where one has none. ``requests_to_last``: how many make a run long enough for queues to grow;
    ``is_too_short``: there are fewer, or the search ended at a rate whose runs could not tell; then there is no
    interval.
    """

    rate_per_s: float | None
    low: float | None
    high: float | None
    limiting: str
    ceiling_per_s: float | None
    idle: Evaluation
    curve: tuple[Evaluation, ...]
    evaluations: tuple[Evaluation, ...]
    binding: Binding | None
    is_by_seeds: bool
    num_parts: int
    of_parts: tuple[float, ...]
    requests_to_last: int = 0
    is_too_short: bool = False

    @property
    def at_capacity(self) -> Evaluation:
        """What the capacity comes to; of an idle server where there is none."""
        return next((each for each in self.evaluations if each.rate_per_s == self.rate_per_s), self.idle)

    def is_met(self, evaluation: Evaluation, limits: Sequence[RunLimit]) -> bool:
        """Say whether a rate is within the limits and answered; above one that is not, none is."""
        broken = (each.rate_per_s for each in self.evaluations if not each.meets(limits))
        return evaluation.rate_per_s < min(broken, default=math.inf)


def find_capacity(
    traces: Sequence[Trace], twin: TwinConfig, limits: Sequence[RunLimit], *, with_binding: bool = True
) -> Capacity:
    """Return the capacity of a twin for a workload, given as several draws of it, or as one recorded load.

    Raises ConfigError where the workload has no times to scale.
    """
    evaluator = Evaluator(loads=[load_of(trace, twin) for trace in traces], limits=limits)
    found = _highest(evaluator)
    ceiling = ceiling_of(evaluator, above=found.low)
    asks = _requests_to_last(evaluator, found)
    is_too_short = len(traces[0]) < asks
    of_parts = () if is_too_short else _of_parts(evaluator, found)
    low = high = None
    rate = found.low
    if rate is not None and of_parts:
        reach = reach_of(np.log(of_parts))
        low, high = rate * math.exp(-reach), rate * math.exp(reach)
    curve = [] if rate is None else [evaluator.at(share * rate) for share in AROUND]
    binding = binding_of(traces[0], twin, limits) if with_binding and rate is not None else None
    return Capacity(
        rate_per_s=rate,
        low=low,
        high=high,
        limiting=THROUGHPUT if found.broken is None else found.broken.worst(limits),
        ceiling_per_s=ceiling,
        idle=found.idle,
        curve=tuple(curve),
        evaluations=tuple(evaluator.seen[key] for key in sorted(evaluator.seen)),
        binding=binding,
        is_by_seeds=len(traces) > 1,
        num_parts=evaluator.num_parts,
        of_parts=of_parts,
        requests_to_last=asks,
        is_too_short=is_too_short,
    )


def short_run_note(found: Capacity, num_requests: int) -> str | None:
    """Return the warning that a run is too short for queues to grow, None where it lasts long enough."""
    if not found.is_too_short:
        return None
    return (
        f"{num_requests:,} requests are too few: the run ends before queues have grown, and the capacity comes out too "
        f"high. --num-requests {found.requests_to_last} is better"
    )


def _requests_to_last(evaluator: Evaluator, found: _Found) -> int:
    """Return how many requests make a run long enough: for ``LASTING`` stays, and for a search that could tell."""
    if found.low is None:
        return 0
    is_full = found.broken is not None and found.broken.worst(evaluator.limits) == THROUGHPUT
    at = (
        found.idle if is_full else evaluator.at(found.low)
    )  # where only the load ends it, a stay is mostly its queue
    stay_s = at.curve_us["e2e"][0] * 1e-6
    asked = 0.0 if math.isnan(stay_s) else LASTING * stay_s * found.low
    if found.broken is not None and found.broken.is_too_short:
        asked = max(asked, MORE * len(evaluator.loads[0].requests))
    return math.ceil(asked / 100) * 100


def highest_above(
    trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], *, least: float
) -> float | None:
    """Return the capacity for one draw, requests/s; None where there is none, or where it is not above ``least``.

    Where it is not above, one simulation has said so.
    """
    evaluator = Evaluator(loads=[load_of(trace, twin)], limits=limits)
    if least > 0 and not evaluator.at(least).meets(limits):
        return None
    return _highest(evaluator, least=least).low


def ceiling_of(evaluator: Evaluator, *, above: float | None = None) -> float | None:
    """Return the most that is answered, requests/s, whatever the latencies; None where runs are too short to tell.

    By bisection the lowest rate that is not followed, and of that one what was answered; where too few have left by
    then to say, of twice as much. ``above``: a rate that is followed.
    """

    def is_followed(rate: float) -> bool:
        return not evaluator.at(rate).is_behind

    start = above if above is not None else _scale(evaluator)
    ends = _bracket(is_followed, start) if start > 0 else None
    if ends is None:
        return None
    broken = [
        evaluator.at(rate) for rate in (bisect(is_followed, *ends, tolerance=CEILING_TOLERANCE)[1], ends[1])
    ]
    settled = [each.served_per_s for each in broken if each.is_settled]
    return max(settled[0], above or 0.0) if settled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The highest rate that meets the limits, None: none does; what breaks just above it; an idle server."""

    low: float | None
    broken: Evaluation | None
    idle: Evaluation


def _scale(evaluator: Evaluator) -> float:
    """Return a rate of the right size, requests/s; 0 where nothing is answered at all."""
    return float(np.mean([load.scale_per_s() for load in evaluator.loads]))


def _highest(evaluator: Evaluator, *, least: float = 0.0) -> _Found:
    """Return the highest rate that meets the limits; ``least``: a rate that does."""
    limits = evaluator.limits
    start = least if least > 0 else _scale(evaluator)
    idle = evaluator.at(start * IDLE if start > 0 else 1.0)
    if start <= 0 or (least <= 0 and not idle.meets(limits)):
        return _Found(low=None, broken=idle, idle=idle)

    def is_met(rate: float) -> bool:
        return evaluator.at(rate).meets(limits)

    ends = _bracket(is_met, start, least=idle.rate_per_s)
    if ends is None:
        return _Found(low=None, broken=idle, idle=idle)
    low, high = bisect(is_met, *ends, tolerance=TOLERANCE)
    return _Found(low=low, broken=evaluator.at(high), idle=idle)


def _bracket(
    holds: Callable[[float], bool], start: float, *, least: float | None = None
) -> tuple[float, float] | None:
    """Return (a rate at which it holds, one at which it does not), a factor of two apart; None: there are none.

    ``least``: a rate at which it is known to hold.
    """
    rate = start
    if holds(rate):
        for _ in range(MOST_DOUBLINGS):
            if not holds(2 * rate):
                return rate, 2 * rate
            rate *= 2
        return None
    for _ in range(MOST_DOUBLINGS):
        if least is not None and rate / 2 <= least:
            return least, rate
        if holds(rate / 2):
            return rate / 2, rate
        rate /= 2
    return None


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


def reach_of(logarithms: NDArray[np.float64]) -> float:
    """Return half the width of the 90 % t interval of the mean of a value per seed, or stretch."""
    from scipy.stats import t

    number = len(logarithms)
    quantile = float(t.ppf((1 + LEVEL) / 2, number - 1))
    return quantile * float(logarithms.std(ddof=1)) / math.sqrt(number)


def _of_parts(evaluator: Evaluator, found: _Found) -> tuple[float, ...]:
    """Return the capacities of single seeds, or stretches; none where one of them has none."""
    if found.low is None or found.broken is None:
        return ()
    is_by_throughput = found.broken.worst(evaluator.limits) == THROUGHPUT
    if is_by_throughput and len(evaluator.loads) == 1:
        return ()
    own = [
        _of_part(evaluator, part, is_by_throughput=is_by_throughput) for part in range(evaluator.num_parts)
    ]
    return tuple(own) if all(0 < each < math.inf for each in own) else ()


def _of_part(evaluator: Evaluator, part: int, *, is_by_throughput: bool) -> float:
    """Return one seed's capacity: between simulated rates, where its worst limit crosses; 0 where none is met."""
    found = [evaluator.seen[key] for key in sorted(evaluator.seen)]
    ratios = [
        _ratio_of_part(each, part, evaluator.limits, is_by_throughput=is_by_throughput) for each in found
    ]
    broken = next((i for i, ratio in enumerate(ratios) if ratio > 1), None)
    if broken is None or broken == 0:
        return math.inf if broken is None else 0.0
    below, above = found[broken - 1].rate_per_s, found[broken].rate_per_s
    if math.isinf(ratios[broken]):
        return below
    share = (1 - ratios[broken - 1]) / (ratios[broken] - ratios[broken - 1])
    return below + share * (above - below)


def _ratio_of_part(
    each: Evaluation, part: int, limits: Sequence[RunLimit], *, is_by_throughput: bool
) -> float:
    """Return the largest value over what is allowed of one seed; where throughput breaks first, also what piles up."""
    ratio = each.worst_of_part(part, limits)
    return max(ratio, each.growths[part] / GROWN) if is_by_throughput else ratio


# -- what binds -----------------------------------------------------------------------------------------------


def binding_of(trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit]) -> Binding:
    """Return what holds the capacity down, by simulating the same requests with twice as much of each resource."""
    base = _of_one(trace, twin, limits, around=None)
    with_twice = {}
    for resource, settings in RESOURCES.items():
        more = _with_twice(twin, settings)
        if more is not None:
            with_twice[str(resource)] = _of_one(trace, more, limits, around=base)
    gains = {name: rate / base - 1 if base > 0 else 0.0 for name, rate in with_twice.items()}
    alone = {name: gain for name, gain in gains.items() if name != "all"}
    best = max(alone, key=lambda name: alone[name], default="all")
    bound = [name for name in (best, "all") if gains.get(name, 0.0) > GAIN]
    return Binding(resource=bound[0] if bound else STEP_TIME, with_twice=with_twice, base_per_s=base)


def _of_one(trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], *, around: float | None) -> float:
    """Return the capacity for one draw, requests/s, 0 where there is none; ``around``: what it is at least."""
    if around is None:
        return highest_above(trace, twin, limits, least=0.0) or 0.0
    return highest_above(trace, twin, limits, least=around * (1 + GAIN / 2)) or around


def _with_twice(twin: TwinConfig, settings: tuple[str, ...]) -> TwinConfig | None:
    """Return the twin with twice as much of some settings, on every server; None where that is not possible."""
    try:
        engine = _doubled(twin.engine, settings)
        if twin.cluster is None:
            return None if engine is None else replace(twin, engine=engine)
        pools = tuple(
            replace(pool, engine=_doubled(pool.engine, settings) or pool.engine)
            for pool in twin.cluster.pools
        )
        if pools == twin.cluster.pools:
            return None
        return replace(twin, engine=pools[0].engine, cluster=replace(twin.cluster, pools=pools))
    except InvalidConfig:
        return None


def _doubled(engine: EngineConfig, settings: tuple[str, ...]) -> EngineConfig | None:
    """Return an engine with twice as much of these; None where all of them are without a bound."""
    values = {name: getattr(engine, name) for name in settings}
    grown = {
        name: 2 * value
        for name, value in values.items()
        if not (name == "num_gpu_blocks" and value == UNBOUNDED)
    }
    return replace(engine, **grown) if grown else None
