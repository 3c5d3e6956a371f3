"""The highest rate within an SLO, how sure that is, which limit breaks first, and what would have to grow.

Every rate is simulated with the same draws, so that one rate is better than another for its load and not by chance.
Bisection then finds where the first limit breaks. Above the rate that a server with work at all times serves, the
queue grows without end: no rate beyond it is taken, whatever the limits say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from replay.plan.evaluation import FAILED, Evaluation, Evaluator
from replay.plan.load import Load, load_of
from sim.config import UNBOUNDED, EngineConfig, InvalidConfig
from traces.run_slo import RunLimit

if TYPE_CHECKING:
    from replay.twin.config import TwinConfig
    from traces import Trace

TOLERANCE = 0.005
"""Bisection ends when the rate is known to this share of itself."""
IDLE = 1e-3
"""At this share of the most that the server serves, requests hardly ever meet."""
THROUGHPUT = "throughput"
"""What limits where no latency limit breaks before the server is full."""
LEVEL = 0.90
T_95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761)
"""Student's t at 95 %, by degrees of freedom from 1; beyond, the last of them."""
GAIN = 0.02
"""Twice of a resource that gives less than this much more rate does not bind."""
LASTING = 50
"""A run that lasts less than so many times a request ends before queues have grown: in runs of 30 times, capacities
came out 7 % too high, of 80 times within 1.5 % (docs/how-to/tune-the-flags.md)."""
FILLING = 10
"""A run of fewer requests than so many times the seats may not show a full server."""
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
    ``limiting``: the limit that breaks first, or ``throughput``. ``ceiling_per_s``: what a server with work at all
    times serves. ``curve``: rates around it, ascending. ``evaluations``: all rates simulated, ascending. ``of_parts``:
    the capacity of each seed or stretch, of the same requests in every search; empty where one has none.
    """

    rate_per_s: float | None
    low: float | None
    high: float | None
    limiting: str
    ceiling_per_s: float
    idle: Evaluation
    curve: tuple[Evaluation, ...]
    evaluations: tuple[Evaluation, ...]
    binding: Binding | None
    is_by_seeds: bool
    num_parts: int
    of_parts: tuple[float, ...]

    @property
    def at_capacity(self) -> Evaluation:
        """What the capacity comes to; of an idle server where there is none."""
        return next((each for each in self.evaluations if each.rate_per_s == self.rate_per_s), self.idle)

    def is_met(self, evaluation: Evaluation, limits: Sequence[RunLimit]) -> bool:
        """Say whether a rate is within the limits and not above what the server serves."""
        return evaluation.rate_per_s <= self.ceiling_per_s and evaluation.meets(limits)


def find_capacity(
    traces: Sequence[Trace], twin: TwinConfig, limits: Sequence[RunLimit], *, with_binding: bool = True
) -> Capacity:
    """Return the capacity of a twin for a workload, given as several draws of it, or as one recorded load.

    Raises ConfigError where the workload has no times to scale.
    """
    evaluator = Evaluator(loads=[load_of(trace, twin) for trace in traces], limits=limits)
    ceiling = _ceiling(evaluator.loads)
    idle = evaluator.at(ceiling * IDLE)
    rate, limiting = _highest(evaluator, ceiling)
    of_parts = () if rate is None else _of_parts(evaluator, ceiling)
    low = high = None
    if rate is not None and of_parts:
        reach = reach_of(np.log(of_parts))
        low, high = rate * math.exp(-reach), rate * math.exp(reach)
    curve = [] if rate is None else [evaluator.at(share * rate) for share in AROUND]
    binding = _binding(traces[0], twin, limits) if with_binding and rate is not None else None
    return Capacity(
        rate_per_s=rate,
        low=low,
        high=high,
        limiting=limiting,
        ceiling_per_s=ceiling,
        idle=idle,
        curve=tuple(curve),
        evaluations=tuple(evaluator.seen[key] for key in sorted(evaluator.seen)),
        binding=binding,
        is_by_seeds=len(traces) > 1,
        num_parts=evaluator.num_parts,
        of_parts=of_parts,
    )


def short_run_note(found: Capacity, num_requests: int, *, num_seats: int = 0) -> str | None:
    """Return the warning that a run is too short for queues to grow or seats to fill, None where it lasts long enough.

    It asks for one number of requests, enough for both.
    """
    seats_ask = FILLING * num_seats
    asks = requests_to_last(found)
    better = math.ceil(max(asks, seats_ask) / 100) * 100
    if num_requests < asks:
        in_flight = asks / LASTING
        return (
            f"{num_requests:,} requests take only {num_requests / in_flight:.0f} times as long as one of them: the run "
            f"ends before queues have grown, and the capacity comes out too high. --num-requests {better} is better"
        )
    if num_requests < seats_ask:
        return (
            f"{num_requests:,} requests are few for {num_seats:,} seats: a full server may not show within a run. "
            f"--num-requests {better} is better"
        )
    return None


def requests_to_last(found: Capacity) -> float:
    """Return how many requests make a run at the capacity long enough for queues to grow; 0 without a capacity."""
    if found.rate_per_s is None:
        return 0.0
    asked = LASTING * found.at_capacity.curve_us["e2e"][0] * 1e-6 * found.rate_per_s
    return 0.0 if math.isnan(asked) else asked


def highest_above(
    trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit], *, least: float
) -> float | None:
    """Return the capacity for one draw, requests/s; None where there is none, or where it is not above ``least``.

    Where it is not above, one or two simulations have said so.
    """
    evaluator = Evaluator(loads=[load_of(trace, twin)], limits=limits)
    if least > 0 and not evaluator.at(least).meets(limits):
        return None
    ceiling = _ceiling(evaluator.loads)
    if ceiling <= least:
        return None
    if evaluator.at(ceiling).meets(limits):
        return ceiling
    if least > 0:
        return _between(evaluator, least, ceiling)[0]
    return _highest(evaluator, ceiling)[0]


def _ceiling(loads: Sequence[Load]) -> float:
    return float(np.mean([load.most_per_s() for load in loads]))


def _highest(evaluator: Evaluator, ceiling: float) -> tuple[float | None, str]:
    """Return the highest rate that meets the limits, and the limit that breaks just above it."""
    limits = evaluator.limits
    if ceiling <= 0:
        return None, FAILED
    if not evaluator.at(ceiling * IDLE).meets(limits):
        return None, evaluator.at(ceiling * IDLE).worst(limits)
    if evaluator.at(ceiling).meets(limits):
        return ceiling, THROUGHPUT
    low, high = _between(evaluator, ceiling * IDLE, ceiling)
    return low, evaluator.at(high).worst(limits)


def _between(evaluator: Evaluator, low: float, high: float) -> tuple[float, float]:
    """Return a rate within the limits and one not, close together, between one within and one that is not."""
    return bisect(lambda rate: evaluator.at(rate).meets(evaluator.limits), low, high, tolerance=TOLERANCE)


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
    number = len(logarithms)
    return T_95[min(number - 1, len(T_95)) - 1] * float(logarithms.std(ddof=1)) / math.sqrt(number)


def _of_parts(evaluator: Evaluator, ceiling: float) -> tuple[float, ...]:
    """Return the capacities of single seeds, or stretches; none where one of them has none."""
    own = [_of_part(evaluator, part, ceiling) for part in range(evaluator.num_parts)]
    return tuple(own) if all(0 < each < math.inf for each in own) else ()


def _of_part(evaluator: Evaluator, part: int, ceiling: float) -> float:
    """Return one seed's capacity: between simulated rates, where its worst limit crosses; 0 where none is met."""
    found = [evaluator.seen[key] for key in sorted(evaluator.seen)]
    ratios = [each.worst_of_part(part, evaluator.limits) for each in found]
    broken = next((i for i, ratio in enumerate(ratios) if ratio > 1), None)
    if broken is None:
        return evaluator.loads[part].most_per_s() if len(evaluator.loads) > 1 else ceiling
    if broken == 0:
        return 0.0
    below, above = found[broken - 1].rate_per_s, found[broken].rate_per_s
    if math.isinf(ratios[broken]):
        return below
    share = (1 - ratios[broken - 1]) / (ratios[broken] - ratios[broken - 1])
    return below + share * (above - below)


# -- what binds -----------------------------------------------------------------------------------------------


def _binding(trace: Trace, twin: TwinConfig, limits: Sequence[RunLimit]) -> Binding:
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
