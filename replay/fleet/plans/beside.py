"""Prefill and decode pools beside one pool for the whole of each request: the same demand, GPUs, cost and latencies."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace

from replay.fleet.check.pool import Verification, verify
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.plans.disagg import DisaggPlan
from replay.fleet.plans.size import PoolPlan, SizeCheck, plan_pool
from sim.fleet import provisioned
from sim.fleet.sizing import Infeasible


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedFleet:
    """One of the two fleets. ``seen``: its simulation; None: by formula alone. ``cost_per_hour``: 0 without prices.

    ``ttft_p99_s``, ``tpot_s``: by formula, of the same engines.
    """

    name: str
    engines: str
    gpus: int
    cost_per_hour: float
    ttft_p99_s: float
    tpot_s: float
    seen: Verification | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetsCompared:
    """One pool and prefill and decode pools; None: none that was tried meets the SLO. ``reason``: why not one pool.

    ``currency``: of the costs, where it is known.

    ``equal``: one pool with as many GPUs as the split, where it needs fewer; None: it has as many, or is not simulated.
    """

    one: ComparedFleet | None
    split: ComparedFleet | None
    equal: ComparedFleet | None = None
    reason: str = ""
    currency: str = ""


def beside(
    plan: DisaggPlan,
    sources: tuple[ProfileSource, ProfileSource],
    need: Need,
    *,
    check: SizeCheck | None,
) -> FleetsCompared:
    """Return a disaggregated fleet beside the cheapest single pool of either profile, sized as ``fleet size`` does."""
    found, reasons = list[PoolPlan](), list[str]()
    for source in {each.name: each for each in sources}.values():
        try:
            pool = plan_pool(source, need, check=check)
        except Infeasible as error:
            reasons.append(str(error))
            continue
        if pool.is_met(need.objective) is False:
            reasons.append("no number of engines that was tried meets the SLO in simulation")
        else:
            found.append(pool)
    one = min(found, key=lambda pool: (pool.cost_per_year, pool.gpus), default=None)
    split = _of_split(plan, sources)
    return FleetsCompared(
        one=None if one is None else _of_pool(one),
        split=split,
        equal=None if one is None or split is None else _equal(one, split, check),
        reason="" if one is not None else reasons[0],
        currency=plan.currency,
    )


def _equal(one: PoolPlan, split: ComparedFleet, check: SizeCheck | None) -> ComparedFleet | None:
    """Return the pool with as many GPUs as the split has, simulated; None where that is no larger pool."""
    engines = split.gpus // one.source.profile.num_gpus
    if check is None or engines <= one.provisioned:
        return None
    larger = replace(one, engines=engines, provisioned=engines)
    seen = verify(
        one.source,
        one.need.lengths,
        one.need.rate_per_s,
        engines=engines,
        service_s=one.analytic.service_s,
        seed=check.seed,
        asked=check.asked,
    )
    return replace(_of_pool(larger), name="one pool, as many", seen=seen)


def _of_pool(pool: PoolPlan) -> ComparedFleet:
    at = pool.at
    return ComparedFleet(
        name="one pool",
        engines=f"{pool.provisioned:,}",
        gpus=pool.gpus,
        cost_per_hour=pool.provisioned * pool.source.profile.cost_per_hour,
        ttft_p99_s=at.ttft_p99_s,
        tpot_s=at.tpot_s,
        seen=pool.verified,
    )


def _of_split(plan: DisaggPlan, sources: tuple[ProfileSource, ProfileSource]) -> ComparedFleet | None:
    best = plan.recommended
    if best is None:
        return None
    counts = [provisioned(number, plan.objective.availability) for number in (best.prefill, best.decode)]
    profiles = [each.profile for each in sources]
    costs = [number * each.cost_per_hour for number, each in zip(counts, profiles, strict=True)]
    first = [each for each in plan.tried if (each.analytic.prefill, each.analytic.decode) == plan.best]
    return ComparedFleet(
        name="prefill + decode",
        engines=f"{counts[0]:,} + {counts[1]:,}",
        gpus=sum(number * each.num_gpus for number, each in zip(counts, profiles, strict=True)),
        cost_per_hour=sum(costs) if all(costs) else 0.0,
        ttft_p99_s=best.ttft_p99_s,
        tpot_s=best.tpot_s,
        seen=next((each.check.whole for each in first if each.run == 0), None),
    )
