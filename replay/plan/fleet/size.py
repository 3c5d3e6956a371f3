"""A fleet sized by formulas and checked by simulated engines: pools, recommendation, cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from replay.plan.fleet.check.pool import Verification, verify
from replay.plan.fleet.check.steady import Asked
from replay.plan.fleet.inputs.profiles import Source, of_context
from replay.units import shown_time
from sim.fleet import Lengths, provisioned
from sim.fleet.energy import HOURS_PER_YEAR, Energy, energy
from sim.fleet.sizing import Infeasible, Objective, PoolSize, pool_at, size_pool
from traces.slo import MOST_FAILED

MOST_TRIES = 14
STEP = 0.05
"""So much larger, at least, is the next fleet that is tried where one does not keep the SLO."""
NUM_REQUESTS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One pool of a fleet. ``analytic``: as the formulas size it; ``tried``: simulations, the last of which counts.

    ``engines``: recommended, those in repair not counted; ``provisioned``: counted. ``share``: of all requests.
    ``availability``: share of its nodes that is up.
    """

    name: str
    source: Source
    lengths: Lengths
    context: int
    rate_per_s: float
    share: float
    analytic: PoolSize
    engines: int
    provisioned: int
    availability: float = 1.0
    tried: tuple[Verification, ...] = ()

    @property
    def at(self) -> PoolSize:
        """What the formulas say of the recommended number."""
        return pool_at(
            self.source.profile, self.lengths, self.rate_per_s, context=self.context, engines=self.engines
        )

    @property
    def verified(self) -> Verification | None:
        """The simulation of the recommended number; None where none was asked for."""
        return next((each for each in self.tried if each.engines == self.engines), None)

    @property
    def gpus(self) -> int:
        """GPUs of all provisioned engines."""
        return self.provisioned * self.source.profile.num_gpus

    @property
    def cost_per_year(self) -> float:
        """Of all provisioned engines, in the prices' currency."""
        return self.provisioned * self.source.profile.cost_per_hour * HOURS_PER_YEAR

    @property
    def energy(self) -> Energy:
        """What it draws by the power curve; zero watts where the profile has none."""
        return energy(
            self.source.profile, self.lengths, self.rate_per_s, context=self.context, engines=self.engines
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """All pools of a fleet, what they must keep, and what a reader must know.

    ``together``: all requests, where a router deals by load, so that the pools were simulated together and none by
    itself.
    """

    pools: tuple[PoolPlan, ...]
    objective: Objective
    rate_per_s: float
    notes: tuple[str, ...] = ()
    together: Verification | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether every pool, or all together, kept the objective in simulation; None where none was asked for."""
        if self.together is not None:
            return keeps(self.together, self.objective)
        checks = [pool.verified for pool in self.pools]
        if None in checks:
            return None
        return all(keeps(each, self.objective) for each in checks if each is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How to check a size. ``smallest``: also look for fewer engines; ``asked``: of each simulation."""

    smallest: bool = False
    seed: int = 1
    asked: Asked = field(default_factory=lambda: Asked(num_requests=NUM_REQUESTS))


def plan_pool(
    source: Source,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    check: Check | None,
    name: str = "all",
    share: float = 1.0,
) -> PoolPlan:
    """Return a pool: sized by formulas, simulated, and made larger until the simulation keeps the objective.

    ``check`` None: by formulas alone. Raises Infeasible where they find no size.
    """
    check_length(source, lengths)
    analytic = size_pool(source.profile, lengths, rate_per_s, objective, context=context)

    def tried_at(engines: int) -> Verification:
        assert check is not None  # noqa: S101 - else nothing is simulated
        return verify(
            source,
            lengths,
            rate_per_s,
            engines=engines,
            service_s=analytic.service_s,
            seed=check.seed,
            asked=check.asked,
        )

    engines = analytic.engines
    tried: list[Verification] = []
    if check is not None:
        engines, tried = _search(tried_at, engines, objective, smallest=check.smallest)
    return PoolPlan(
        name=name,
        source=source,
        lengths=lengths,
        context=context,
        rate_per_s=rate_per_s,
        share=share,
        analytic=analytic,
        engines=engines,
        provisioned=provisioned(engines, objective.availability),
        availability=objective.availability,
        tried=tuple(tried),
    )


def check_length(source: Source, lengths: Lengths) -> None:
    """Raise Infeasible where some requests are longer than the engine takes: it would refuse them, however many."""
    longest, most = int(lengths.total_tokens.max()), source.engine.max_model_len
    if longest > most:
        raise Infeasible(
            f"got requests of up to {longest:,} tokens, expected at most {most:,}, the max_model_len of {source.name} "
            f"(--context {most}, or up_to: {most} of a pool, leaves longer ones out)"
        )


def _search(
    tried_at: Callable[[int], Verification], engines: int, objective: Objective, *, smallest: bool
) -> tuple[int, list[Verification]]:
    """Return the number of engines that keeps the objective in simulation, and all simulations on the way to it.

    Upwards in growing strides until one keeps it, then between that and the last that did not.
    """
    tried = [tried_at(engines)]
    low, high = (0, engines) if keeps(tried[0], objective) else (engines, 0)
    if high and not smallest:
        return engines, tried
    stride = STEP
    while not high and len(tried) < MOST_TRIES:
        more = max(low + 1, math.ceil(low * (1 + stride)))
        tried.append(tried_at(more))
        low, high = (low, more) if keeps(tried[-1], objective) else (more, 0)
        stride *= 2
    if not high:
        return low, tried
    while high - low > max(1, high // 50) and len(tried) < MOST_TRIES:
        middle = (low + high) // 2
        tried.append(tried_at(middle))
        if keeps(tried[-1], objective):
            high = middle
        else:
            low = middle
    return high, tried


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of an objective and what a simulation had there, seconds; of ``failed`` shares of the requests."""

    name: str
    value: float
    limit: float

    @property
    def is_kept(self) -> bool:
        """Whether the value is within the limit."""
        return self.value <= self.limit

    @property
    def text(self) -> str:
        """Return it in a sentence: TPOT p99 21.3 ms, limit 20 ms."""
        if self.name == "failed":
            return f"{self.value:.1%} of the requests not answered, limit {self.limit:.0%}"
        return f"{self.name} {shown_time(self.value * 1e6)}, limit {shown_time(self.limit * 1e6)}"


def limits_of(found: Verification, objective: Objective) -> tuple[Limit, ...]:
    """Return every limit of an objective with what a simulated pool had there; all but 1 % must be answered."""
    tpot = objective.tpot_p99_s
    return (
        Limit(name="TTFT p99", value=found.ttft_p99.value, limit=objective.ttft_p99_s),
        *(() if tpot is None else (Limit(name="TPOT p99", value=found.tpot_p99.value, limit=tpot),)),
        Limit(name="failed", value=found.failed_frac, limit=MOST_FAILED),
    )


def keeps(found: Verification, objective: Objective) -> bool:
    """Say whether a simulated pool keeps all limits of the objective."""
    return all(each.is_kept for each in limits_of(found, objective))


def plan_fleet(
    sources: Sequence[Source],
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    context: int,
    split: int | None,
    check: Check | None,
) -> FleetPlan:
    """Return a fleet of one pool, or of two for short and long requests; ``sources``: one, or one for each."""
    parts = [("all", lengths, 1.0, context)] if split is None else list(_parts(lengths, split, context))
    pools = [
        plan_pool(
            of_context(sources[0] if name != "long" else sources[-1], longest),
            part,
            rate_per_s * share,
            objective,
            context=longest,
            check=check,
            name=name,
            share=share,
        )
        for name, part, share, longest in parts
    ]
    return FleetPlan(pools=tuple(pools), objective=objective, rate_per_s=rate_per_s)


def _parts(lengths: Lengths, split: int, context: int) -> Iterator[tuple[str, Lengths, float, int]]:
    """Yield (name, requests, share of all, longest) of the pools for short and for long requests, empty ones not."""
    short, long, share = lengths.up_to(split)
    if short is not None:
        yield "short", short, share, split
    if long is not None:
        yield "long", long, 1 - share, context
