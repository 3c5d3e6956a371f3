"""A fleet sized by formulas and checked by simulated engines: pools, recommendation, cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from lazy_dataclasses import dataclass, field, replace
from typing import Literal

from replay.fleet.check.engine_search import EngineSearch
from replay.fleet.check.fewest_engines import Counts, FleetRuns, is_long, terms
from replay.fleet.check.pool import Verification, verify
from replay.fleet.check.slo_limits import keeps
from replay.fleet.check.steady import RunLength
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.outside_fit import EngineLoad
from replay.fleet.inputs.profiles import ProfileSource, of_context
from replay.fleet.inputs.shared_prefixes import known_to
from sim.fleet import GpuProfile, Lengths, provisioned, provisioned_for, share_enough
from sim.fleet.energy import HOURS_PER_YEAR, Energy, energy
from sim.fleet.sizing import UTILIZATION_CAP, Infeasible, Objective, PoolSize

NO_CAP = 0.999
"""The share of the seats that may be taken where the formulas leave out the cap."""
NUM_REQUESTS = 50_000
"""The least of a simulation; a run whose batches need more takes more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One pool of a fleet. ``analytic``: as the formulas size it; ``tried``: simulations with the first seed, or short.

    ``confirmed``: those with the second one, longer and at a slightly higher rate. ``engines``: recommended, those in
    repair not counted; ``provisioned``: counted, enough on average. ``share``: of all requests. ``availability``: share
    of its nodes that is up. ``cap``: on the share of seats taken, by formula; ``uncapped``: engines by formula without
    it. ``is_smallest``: fewer were tried, too. ``unknown``: what its requests have that no formula knows, in words.
    """

    name: str
    source: ProfileSource
    need: Need
    share: float
    analytic: PoolSize
    engines: int
    provisioned: int
    availability: float = 1.0
    tried: tuple[Verification, ...] = ()
    confirmed: tuple[Verification, ...] = ()
    cap: float = UTILIZATION_CAP
    uncapped: int = 0
    is_smallest: bool = False
    unknown: tuple[str, ...] = ()

    @property
    def at(self) -> PoolSize:
        """What the formulas say of the recommended number."""
        return self.need.at(self.source.profile, self.engines)

    @property
    def seats_bound_by(self) -> Literal["kv_cache", "max_num_seqs", "bandwidth"]:
        """What the number of seats of an engine follows from; ``bandwidth``: of a profile that reserves the context."""
        profile, slots = self.source.profile, self.at.slots
        if not profile.reserves_context:
            return "kv_cache" if slots < profile.max_slots else "max_num_seqs"
        return "kv_cache" if slots == profile.kv_limit(self.need.context) else "bandwidth"

    @property
    def verified(self) -> Verification | None:
        """The simulation of the recommended number; None where none was asked for."""
        return next((each for each in self.tried if each.engines == self.engines), None)

    @property
    def of_formula(self) -> Verification | None:
        """The simulation of the formula's number; None where that was not tried."""
        return next((each for each in self.tried if each.engines == self.analytic.engines), None)

    @property
    def second(self) -> Verification | None:
        """The simulation that confirms it; None where none was asked for, or the first one broke already."""
        return next((each for each in self.confirmed if each.engines == self.engines), None)

    @property
    def checks(self) -> tuple[Verification, ...]:
        """All simulations of the recommended number."""
        return tuple(each for each in (self.verified, self.second) if each is not None)

    def is_met(self, objective: Objective) -> bool | None:
        """Whether the recommended number met the objective in all its simulations; None: it has none."""
        return all(keeps(each, objective) for each in self.checks) if self.checks else None

    @property
    def enough_frac(self) -> float:
        """The share of the time in which enough of the provisioned engines are up."""
        return share_enough(self.provisioned, self.engines, self.availability)

    @property
    def provisioned_99(self) -> int:
        """How many are needed so that enough are up for 99 % of the time."""
        return provisioned_for(self.engines, self.availability)

    @property
    def gpus(self) -> int:
        """GPUs of all provisioned engines."""
        return self.provisioned * self.source.profile.num_gpus

    @property
    def cost_per_year(self) -> float:
        """What all provisioned engines cost in a year, in the prices' currency."""
        return self.provisioned * self.source.profile.cost_per_hour * HOURS_PER_YEAR

    @property
    def power_between_w(self) -> tuple[float, float] | None:
        """The power with the least and the most idle power that the profile may have; None where that is not asked."""
        if self.source.idle_between_w is None:
            return None
        low, high = (
            self._energy(replace(self.source.profile, idle_w=each)) for each in self.source.idle_between_w
        )
        return low.power_w, high.power_w

    @property
    def load(self) -> EngineLoad:
        """What one of its engines has: as simulated, where it was."""
        load = EngineLoad.of_size(self.source, self.at, self.need.rate_per_s)
        return load if self.verified is None else replace(load, active=self.verified.active)

    @property
    def energy(self) -> Energy:
        """What it draws by the power curve; zero watts where the profile has none."""
        return self._energy(self.source.profile)

    def _energy(self, profile: GpuProfile) -> Energy:
        need = self.need
        return energy(profile, need.lengths, need.rate_per_s, context=need.context, engines=self.engines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """All pools of a fleet, their objective, and notes for the reader.

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
        """Whether every pool, or all together, met the objective in simulation; None where none was asked for."""
        if self.together is not None:
            return keeps(self.together, self.objective)
        checks = [pool.is_met(self.objective) for pool in self.pools]
        return None if None in checks else all(checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCheck:
    """How to check a size. ``smallest``: also look for fewer engines; ``asked``: of each simulation."""

    smallest: bool = True
    seed: int = 1
    asked: RunLength = field(default_factory=lambda: RunLength(num_requests=NUM_REQUESTS))

    def unknown(self, lengths: Lengths) -> tuple[str, ...]:
        """Return what requests of these lengths have that no formula knows, in words."""
        requests = self.asked.whole(lengths)
        return () if requests is None else tuple(requests.beyond_lengths())


def plan_pool(
    source: ProfileSource, need: Need, *, check: SizeCheck | None, name: str = "all", share: float = 1.0
) -> PoolPlan:
    """Return a pool: sized by formulas, and simulated until the number is found that meets the objective.

    ``check`` None: by formulas alone. The arrivals of the lengths are those that ``check`` simulates. Raises Infeasible
    where the formulas find no size.
    """
    check_length(source, need.lengths)
    need, objective = replace(need, lengths=known_to(need.lengths, [source])), need.objective
    analytic = need.size(source.profile)
    without = replace(objective, utilization_cap=max(objective.utilization_cap, NO_CAP))
    uncapped = replace(need, objective=without).size(source.profile).engines
    engines, runs = analytic.engines, None
    if check is not None:
        runs = _runs(source, need, service_s=analytic.service_s, check=check, share=share)
        search = EngineSearch(runs=runs, is_smallest=check.smallest)
        (engines,) = search.found((analytic.engines,), guess=uncapped) or runs.last
    seen = {} if runs is None else runs.seen
    return PoolPlan(
        name=name,
        source=source,
        need=need,
        share=share,
        analytic=analytic,
        engines=engines,
        provisioned=provisioned(engines, objective.availability),
        availability=objective.availability,
        tried=() if runs is None else runs.tried,
        confirmed=tuple(found for (_, run), found in seen.items() if run == 1),
        cap=objective.utilization_cap,
        uncapped=uncapped,
        is_smallest=check is not None and check.smallest,
        unknown=() if check is None else check.unknown(need.lengths),
    )


def _runs(
    source: ProfileSource, need: Need, *, service_s: float, check: SizeCheck, share: float
) -> FleetRuns:
    """Return the simulations of a pool; the second run has its own seed, more load and more requests."""
    lengths, stay = need.lengths, check.asked.stay_s(need.lengths, service_s)

    def tried_at(fleet: Counts, run: int) -> Verification:
        rate, seed, asked = terms(need.rate_per_s, check.seed, check.asked, run=run, stay_s=stay)
        return verify(
            source, lengths, rate, engines=fleet[0], service_s=service_s, seed=seed, asked=asked, share=share
        )

    long = is_long(need.rate_per_s, check.asked, stay_s=stay)
    return FleetRuns(tried_at=tried_at, objective=need.objective, has_glances=long)


def check_length(source: ProfileSource, lengths: Lengths) -> None:
    """Raise Infeasible where some requests are longer than the engine takes: it would refuse them, however many."""
    longest, most = int(lengths.total_tokens.max()), source.engine.max_model_len
    if longest > most:
        raise Infeasible(
            f"got requests of up to {longest:,} tokens, expected at most {most:,}, the max_model_len of {source.name} "
            f"(--context {most}, or up_to: {most} of a pool, leaves longer ones out)"
        )


def sized_fleet(
    sources: Sequence[ProfileSource], need: Need, *, split: int | None, check: SizeCheck | None
) -> FleetPlan:
    """Return a fleet of one pool, or of two for short and long requests; ``sources``: one, or one for each."""
    parts = [("all", 1.0, need)] if split is None else list(_parts(need, split))
    pools = [
        plan_pool(
            of_context(sources[0] if name != "long" else sources[-1], part.context),
            part,
            check=check,
            name=name,
            share=share,
        )
        for name, share, part in parts
    ]
    return FleetPlan(pools=tuple(pools), objective=need.objective, rate_per_s=need.rate_per_s)


def _parts(need: Need, split: int) -> Iterator[tuple[str, float, Need]]:
    """Yield (name, share of all, need) of the pools for short and for long requests, empty ones not."""
    short, long, share = need.lengths.up_to(split)
    if short is not None:
        yield "short", share, replace(need, lengths=short, rate_per_s=need.rate_per_s * share, context=split)
    if long is not None:
        yield "long", 1 - share, replace(need, lengths=long, rate_per_s=need.rate_per_s * (1 - share))
