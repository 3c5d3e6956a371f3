"""The first lines of a fleet: how many engines the simulation needs, how many the formula asks for, and why."""

from __future__ import annotations

import math

from replay.fleet.check.fewest_engines import MORE
from replay.fleet.check.slo_limits import limits_of
from replay.fleet.inputs.whole_requests import in_words
from replay.fleet.plans.costs import year_text
from replay.fleet.plans.size import FleetPlan, PoolPlan
from sim.fleet.sizing import Objective
from traces import shown_time

SHORTER = 0.97
"""A request that stays at most this share of the formula's time stays clearly shorter."""


def headlines(plan: FleetPlan) -> list[str]:
    """Return what each pool needs in simulation, and what the formula asks for and why, a sentence per pool.

    Of a pool that never met the objective: that none was enough, and what the last broke.
    """
    if plan.together is not None:
        return []
    named = [(pool, f"{pool.name}: " if len(plan.pools) > 1 else "") for pool in plan.pools]
    return [
        _headline(pool, name, plan.objective)
        if pool.is_met(plan.objective)
        else _none_enough(pool, name, plan.objective)
        for pool, name in named
        if pool.checks
    ]


def _none_enough(pool: PoolPlan, name: str, objective: Objective) -> str:
    broken = (each.text for check in pool.checks for each in limits_of(check, objective) if not each.is_kept)
    return (
        f"{name}no number that was tried meets the SLO in simulation; the last: {' and '.join(broken)} with "
        f"{_engines(pool.engines)}"
    )


def _headline(pool: PoolPlan, name: str, objective: Objective) -> str:
    asked, found = pool.analytic.engines, pool.engines
    enough = "is enough: in simulation it meets" if found == 1 else "are enough: in simulation they meet"
    met = f"{name}{_engines(found)} {enough} the SLO, with another seed and {MORE} more load, too"
    if found == asked:
        fewer = "" if pool.is_smallest else "; fewer were not tried (--smallest)"
        return f"{met}. The formula asks for as many{fewer}"
    why = why_more(pool) if asked > found else why_fewer(pool, objective)
    return f"{met}. The formula asks for {asked:,}{_paid_for(pool)}{f': {why}' if why else ''}"


def _engines(number: int) -> str:
    return f"{number:,} engine{'' if number == 1 else 's'}"


def _paid_for(pool: PoolPlan) -> str:
    """Return what the formula's number and the simulation's cost a year; nothing without a price."""
    price, currency = pool.source.profile.cost_per_hour, pool.source.currency
    asked, found = (
        year_text(each * price, currency) for each in (pool.analytic.provisioned, pool.provisioned)
    )
    return f" ({asked}, not {found})" if price else ""


def why_more(pool: PoolPlan) -> str:
    """Return why the formula asks for more than the simulation needs: its cap where that matters, and what is left."""
    because = []
    if pool.uncapped < pool.analytic.engines:
        slots = f"({pool.at.slots:,} seats an engine)"
        because.append(
            f"--utilization-cap lets the rate be {pool.cap:.0%} of what full engines serve {slots}; "
            f"without that cap {pool.uncapped:,}"
        )
    if pool.uncapped > pool.engines:
        because.append(_why_beyond_the_cap(pool))
    return "; ".join(because)


def _why_beyond_the_cap(pool: PoolPlan) -> str:
    """Return what formula and simulation say differently of the engines that the simulation needs."""
    at, seen = pool.at, pool.verified
    stays = math.nan if seen is None else seen.active * seen.engines / max(seen.rate_per_s, 1e-9)
    if stays < SHORTER * at.service_s:
        full = f"every engine for full ({at.slots:,} seats), where a request stays {shown_time(at.service_s * 1e6)}"
        return f"it takes {full}; in simulation it stays {shown_time(stays * 1e6)}"
    ttft = "no end" if math.isinf(at.ttft_p99_s) else shown_time(at.ttft_p99_s * 1e6)
    measured = "" if seen is None else f", {shown_time(seen.ttft_p99.value * 1e6)} in simulation"
    return f"with {pool.engines:,} it expects a TTFT p99 of {ttft}{measured}"


def why_fewer(pool: PoolPlan, objective: Objective) -> str:
    """Return which limits the formula's number breaks in simulation, and what of the requests no formula knows."""
    seen = pool.of_formula
    broken = [] if seen is None else [each.text for each in limits_of(seen, objective) if not each.is_kept]
    because = [f"with {pool.analytic.engines:,}, {in_words(broken)} in simulation"] if broken else []
    if pool.unknown:
        because.append(f"it does not know {in_words(pool.unknown)}")
    return "; ".join(because)
