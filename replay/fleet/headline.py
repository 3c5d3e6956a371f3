"""The first lines of a fleet: how many engines the simulation needs, how many the formula asks for, and why."""

from __future__ import annotations

from replay.fleet.check.fewest_engines import MORE
from replay.fleet.size import FleetPlan, PoolPlan
from sim.fleet.energy import HOURS_PER_YEAR


def headlines(plan: FleetPlan) -> list[str]:
    """Return what each pool needs in simulation, and what the formula asks for and why, a sentence per pool."""
    return [
        _headline(pool, f"{pool.name}: " if len(plan.pools) > 1 else "")
        for pool in plan.pools
        if plan.together is None and pool.is_met(plan.objective)
    ]


def _headline(pool: PoolPlan, name: str) -> str:
    asked, found = pool.analytic.engines, pool.engines
    verb = "meets" if found == 1 else "meet"
    met = f"{name}{_engines(found)} {verb} the SLO in simulation, with another seed at {MORE} more load, too"
    if found == asked:
        fewer = "" if pool.is_smallest else "; fewer were not tried (--smallest)"
        return f"{met}; the formula asks for as many{fewer}"
    return f"{met}; the formula asks for {asked:,}{_paid_for(pool)}{f': {why_more(pool)}' if asked > found else ''}"


def _engines(number: int) -> str:
    return f"{number:,} engine{'' if number == 1 else 's'}"


def _paid_for(pool: PoolPlan) -> str:
    """Return what the formula's number and the simulation's cost a year; nothing without a price."""
    price = pool.source.profile.cost_per_hour
    costs = [number * price * HOURS_PER_YEAR for number in (pool.analytic.provisioned, pool.provisioned)]
    return f" ({costs[0]:,.0f} a year, not {costs[1]:,.0f})" if price else ""


def why_more(pool: PoolPlan) -> str:
    """Return which limit made the formula's number what it is, and what it asks for without its cap on the slots."""
    slots = f"as if every engine were full ({pool.at.slots:,} seats an engine)"
    if pool.analytic.binding != "utilization":
        return f"its {pool.analytic.binding.upper()} asks for them, {slots}"
    return f"--utilization-cap lets {pool.cap:.0%} of the seats be taken, {slots}; without that cap {pool.uncapped:,}"
