"""Profiles and rates side by side: every profile at every rate, by formula or simulated."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace

from replay.fleet.inputs.fleet_ranges import RATES, in_range
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.plans.costs import per_year
from replay.fleet.plans.size import PoolPlan, SizeCheck, plan_pool
from sim.fleet.energy import Energy
from sim.fleet.sizing import Infeasible, PoolSize


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """One profile at one rate. ``size``: by formula; None: ``reason`` says why there is none.

    ``simulated``: the pool as simulation sizes it, whose engines the others are of; None: they are the formula's.
    ``currency``: of the costs, where it is known.
    """

    profile: str
    rate_per_s: float
    size: PoolSize | None = None
    reason: str = ""
    gpus: int = 0
    cost_per_hour: float | None = None
    cost_per_year: float | None = None
    energy: Energy | None = None
    power_between_w: tuple[float, float] | None = None
    simulated: PoolPlan | None = None
    currency: str = ""


def whatif_of(
    sources: Sequence[ProfileSource], needs: Sequence[Need], *, check: SizeCheck | None = None
) -> list[WhatIf]:
    """Return every profile at every rate, by formula, or with ``check`` with as many engines as simulation asks for."""
    for need in needs:
        in_range("--rate", need.rate_per_s, RATES)
    return [_whatif(source, need, check) for source in sources for need in needs]


def _whatif(source: ProfileSource, need: Need, check: SizeCheck | None) -> WhatIf:
    none = WhatIf(profile=source.name, rate_per_s=need.rate_per_s, currency=source.currency)
    try:
        plan = plan_pool(source, need, check=check)
    except Infeasible as error:
        return replace(none, reason=str(error))
    if plan.is_met(need.objective) is False:
        return replace(none, reason="no number of engines that was tried meets the SLO in simulation")
    cost = plan.provisioned * source.profile.cost_per_hour or None
    return replace(
        none,
        size=plan.analytic,
        gpus=plan.gpus,
        cost_per_hour=cost,
        cost_per_year=per_year(cost),
        energy=plan.energy if plan.energy.power_w > 0 else None,
        power_between_w=plan.power_between_w,
        simulated=plan if plan.verified is not None else None,
    )
