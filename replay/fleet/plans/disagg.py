"""Prefill and decode pools: sized by formula, the cheapest simulated and made larger until it meets the objective."""

from __future__ import annotations

import math
from lazy_dataclasses import dataclass, replace

from replay.fleet.check.disagg_check import HandoffCheck, verify_handoff
from replay.fleet.check.engine_search import EngineSearch
from replay.fleet.check.fewest_engines import Counts, FleetRuns, is_long, terms
from replay.fleet.check.pool import Verification
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.outside_fit import EngineLoad
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.inputs.shared_prefixes import known_to
from replay.fleet.plans.size import SizeCheck
from sim.cluster import Disaggregation
from sim.fleet.disaggregated import Disaggregated, Transfer, disaggregated_at, sweep_disaggregated
from sim.fleet.sizing import Objective
from sim.fleet.step_pools import StepTimes

KV_BYTES_70B = 80 * 8 * 128 * 2 * 2
"""KV bytes of a token in a 70B-class model, as in the table: 80 layers, 8 KV heads of 128, K and V, 16 bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A number of engines, by formula and simulated. ``run``: 0; 1 where a number is confirmed; -1: its glance."""

    analytic: Disaggregated
    check: HandoffCheck
    run: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DisaggPlan:
    """Fleets that meet the objective by formula, cheapest first, and simulations from the cheapest on upwards.

    ``best``: the (prefill, decode) engines that keep it in simulation; None: none that was tried, or none was.
    ``prices_per_hour``: of a prefill and of a decode engine, 0 where there is none, in ``currency``.
    """

    fleets: tuple[Disaggregated, ...]
    objective: Objective
    transfer: Disaggregation
    tried: tuple[Tried, ...] = ()
    best: tuple[int, int] | None = None
    prices_per_hour: tuple[float, float] = (0.0, 0.0)
    currency: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether two simulations of one number met the objective; None: nothing was simulated."""
        return self.best is not None if self.tried else None

    @property
    def recommended(self) -> Disaggregated | None:
        """The recommended fleet, by formula; without simulations the cheapest; None: there is none."""
        if not self.tried:
            return self.fleets[0] if self.fleets else None
        return next(
            (
                each.analytic
                for each in self.tried
                if (each.analytic.prefill, each.analytic.decode) == self.best
            ),
            None,
        )


def plan_disagg(
    sources: tuple[ProfileSource, ProfileSource],
    need: Need,
    *,
    by_formula: Transfer,
    transfer: Disaggregation,
    check: SizeCheck | None,
) -> DisaggPlan:
    """Return the fleets by formula, and, with ``check``, simulations from the cheapest on.

    Both pools are made larger until the simulation meets the objective, then each in turn as small as that allows
    (``EngineSearch``), and the result is confirmed with another seed at slightly more load. ``by_formula``: what
    transfers cost in the formulas; ``transfer``: the links of the simulation. Raises InvalidConfig.
    """
    profiles = (sources[0].profile, sources[1].profile)
    need = replace(need, lengths=known_to(need.lengths, sources))
    fleets = sweep_disaggregated(
        profiles,
        need.lengths,
        need.rate_per_s,
        need.objective,
        context=need.context,
        transfer=by_formula,
        steps=steps_of(sources),
    )
    plan = DisaggPlan(
        fleets=tuple(fleets),
        objective=need.objective,
        transfer=transfer,
        prices_per_hour=(profiles[0].cost_per_hour, profiles[1].cost_per_hour),
        currency=sources[0].currency if sources[0].currency == sources[1].currency else "",
    )
    if check is None or not fleets:
        return plan
    return _checked(plan, sources, need, by_formula=by_formula, check=check)


def steps_of(sources: tuple[ProfileSource, ProfileSource]) -> tuple[StepTimes, StepTimes] | None:
    """Return the steps of both twins; None where either is a profile alone."""
    prefill, decode = sources[0].steps, sources[1].steps
    return None if prefill is None or decode is None else (prefill, decode)


def _checked(
    plan: DisaggPlan,
    sources: tuple[ProfileSource, ProfileSource],
    need: Need,
    *,
    by_formula: Transfer,
    check: SizeCheck,
) -> DisaggPlan:
    """Return the plan with the simulations of the cheapest fleet and of those that were tried after it."""
    profiles, cheapest = (sources[0].profile, sources[1].profile), plan.fleets[0]
    lengths, at = need.lengths, need.at(profiles[1], cheapest.decode)
    stay, tried = check.asked.stay_s(lengths, at.service_s), list[Tried]()

    def tried_at(counts: Counts, run: int) -> Verification:
        engines = (counts[0], counts[1])
        rate, seed, asked = terms(need.rate_per_s, check.seed, check.asked, run=run, stay_s=stay)
        found = verify_handoff(
            sources,
            lengths,
            rate,
            engines=engines,
            transfer=plan.transfer,
            stay_s=stay,
            seed=seed,
            asked=asked,
        )
        analytic = disaggregated_at(
            profiles,
            lengths,
            rate,
            engines=engines,
            context=need.context,
            transfer=by_formula,
            steps=steps_of(sources),
        )
        tried.append(Tried(analytic=analytic, check=found, run=run))
        return found.whole

    long = is_long(need.rate_per_s, check.asked, stay_s=stay)
    search = EngineSearch(
        runs=FleetRuns(tried_at=tried_at, objective=plan.objective, has_glances=long),
        prices=plan.prices_per_hour,
        is_smallest=check.smallest,
    )
    best = search.found((cheapest.prefill, cheapest.decode))
    return replace(plan, tried=tuple(tried), best=None if best is None else (best[0], best[1]))


def disagg_loads(
    plan: DisaggPlan, sources: tuple[ProfileSource, ProfileSource], rate_per_s: float
) -> list[EngineLoad]:
    """Return the loads of an engine of each recommended pool; empty where none is recommended."""
    best = plan.recommended
    if best is None:
        return []
    seen = next((each.check for each in plan.tried if each.analytic == best), None)
    active = (0.0, best.decode_active) if seen is None else (seen.prefill_active, seen.decode_active)
    counts = (best.prefill, best.decode)
    return [
        EngineLoad(source=each, rate_per_s=rate_per_s / number, active=at_once, slots=math.inf)
        for each, number, at_once in zip(sources, counts, active, strict=True)
    ]
