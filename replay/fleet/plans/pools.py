"""A fleet of any number of pools, of different GPUs and models: how large each is, and their check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from lazy_dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from replay.fleet.check.engine_search import EngineSearch
from replay.fleet.check.fewest_engines import Counts, FleetRuns, is_long, terms
from replay.fleet.check.pool import Verification
from replay.fleet.check.routed import EnginePool, RoutedCheck, verify_routed
from replay.fleet.check.slo_limits import keeps
from replay.fleet.inputs.failures import availability_with
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.pools_file import BY_LABEL, Ints, PoolRouter, PoolSpec
from replay.fleet.inputs.profiles import ProfileSource
from replay.fleet.inputs.shared_prefixes import with_hits
from replay.fleet.inputs.whole_requests import WholeRequests
from replay.fleet.plans.size import FleetPlan, PoolPlan, SizeCheck, plan_pool
from sim.fleet import Lengths, provisioned
from sim.fleet.routers import FleetRouter, RouterName
from sim.fleet.sizing import Infeasible, Objective
from traces import ConfigError

SHARED = ("spillover", "least-loaded")
"""Routers that look at the load of several pools: no pool can be simulated alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """Pools behind one router, simulated together. ``run``: 0, 1 where a number is confirmed, -1: its short glance."""

    engines: tuple[int, ...]
    check: RoutedCheck
    run: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsPlan:
    """A fleet behind a router. ``tried``: simulations of all pools together; empty: each by itself.

    ``best``: the engines that meet the objective in both runs; None: none that was tried, or each by itself.
    """

    fleet: FleetPlan
    router: PoolRouter
    tried: tuple[Together, ...] = ()
    best: Counts | None = None

    @property
    def level(self) -> str | None:
        """What simulated it: ``engines``; None: nothing did."""
        return None if self.fleet.is_met is None else "engines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How pools are sized. ``source_of``, ``context_of``: the profile and longest request of a pool's requests.

    ``spill_per_engine``: requests per engine from which spillover sends on. ``check`` None: by formulas alone.
    ``whole``: the workload's requests, where it is a trace.
    """

    source_of: Callable[[PoolSpec, Lengths, int], ProfileSource]
    context_of: Callable[[Lengths], int]
    spill_per_engine: float
    check: SizeCheck | None
    whole: WholeRequests | None = None


def compressed(specs: Sequence[PoolSpec], lengths: Lengths, *, factor: float) -> Lengths:
    """Return the requests with prompts up to ``factor`` times too long cut to fit ``up_to``, the shortest's first."""
    for spec in specs:
        if spec.up_to is not None:
            lengths = lengths.compressed(spec.up_to, factor=factor)
    return lengths


def plan_pools(
    specs: Sequence[PoolSpec],
    router: PoolRouter,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    pool_of: Ints,
    asking: Asking,
) -> PoolsPlan:
    """Return all pools sized for their requests, and simulated by the token-level engine.

    Where the router needs no pool's load, each pool is simulated alone, with Poisson arrivals. Otherwise all are
    simulated together behind the router, made larger until the objective is met, and then each as small as that allows.
    A pool with failures of its own has its own availability. Raises Infeasible where no size meets the objective,
    ConfigError where no request is sent to a pool.
    """
    plans = [
        _pool(spec, router, lengths, rate_per_s, objective, mine=pool_of == number, asking=asking)
        for number, spec in enumerate(specs)
    ]
    fleet = FleetPlan(pools=tuple(plans), objective=objective, rate_per_s=rate_per_s)
    if asking.check is None or router not in SHARED:
        return PoolsPlan(fleet=fleet, router=router)
    return _shared(fleet, router, lengths.where(pool_of >= 0), check=asking.check, asking=asking)


def _shared(
    fleet: FleetPlan, router: PoolRouter, lengths: Lengths, *, check: SizeCheck, asking: Asking
) -> PoolsPlan:
    """Return the fleet with each pool as small as a simulation of all of them behind the router allows."""
    plans, objective, tried = fleet.pools, fleet.objective, list[Together]()
    stay = max(check.asked.stay_s(plan.need.lengths, plan.analytic.service_s) for plan in plans)

    def tried_at(engines: Counts, run: int) -> Verification:
        found = simulated_together(
            plans, engines, router, lengths, stay=stay, check=check, asking=asking, run=run
        )
        tried.append(found)
        return found.check.whole

    rate = sum(plan.need.rate_per_s for plan in plans)
    search = EngineSearch(
        runs=FleetRuns(
            tried_at=tried_at, objective=objective, has_glances=is_long(rate, check.asked, stay_s=stay)
        ),
        prices=[plan.source.profile.cost_per_hour for plan in plans],
        is_smallest=check.smallest,
    )
    best = search.found(tuple(plan.analytic.engines for plan in plans))
    last = (
        next(each for each in reversed(tried) if not keeps(each.check.whole, objective))
        if best is None
        else next(each for each in tried if (each.engines, each.run) == (best, 0))
    )
    sized = tuple(
        replace(plan, engines=number, provisioned=provisioned(number, plan.availability), tried=(verified,))
        for plan, number, verified in zip(plans, last.engines, last.check.pools, strict=True)
    )
    return PoolsPlan(
        fleet=replace(fleet, pools=sized, together=last.check.whole),
        router=router,
        tried=tuple(tried),
        best=best,
    )


def _pool(
    spec: PoolSpec,
    router: PoolRouter,
    lengths: Lengths,
    rate_per_s: float,
    objective: Objective,
    *,
    mine: NDArray[np.bool_],
    asking: Asking,
) -> PoolPlan:
    """Return one pool, sized, and simulated where the router needs no other's load."""
    if not mine.any():
        raise ConfigError(f"pool {spec.name}: got no requests, expected some")
    part, share = lengths.where(mine), float(mine.mean())
    context = spec.up_to or asking.context_of(part)
    source = asking.source_of(spec, part, context)
    if spec.price is not None:
        cost = spec.price * source.profile.num_gpus
        source = replace(source, profile=replace(source.profile, cost_per_hour=cost))
    if spec.failures:
        objective = replace(objective, availability=availability_with(spec.failures))
    try:
        return plan_pool(
            source,
            Need(
                lengths=with_hits(part, asking.whole, source.engine),
                rate_per_s=rate_per_s * share,
                objective=objective,
                context=context,
            ),
            check=None if router in SHARED else asking.check,
            name=spec.name,
            share=share,
        )
    except Infeasible as error:
        raise Infeasible(f"pool {spec.name}: {error}") from error


def simulated_together(
    plans: Sequence[PoolPlan],
    engines: Counts,
    router: PoolRouter,
    lengths: Lengths,
    *,
    stay: float,
    check: SizeCheck,
    asking: Asking,
    run: int,
) -> Together:
    """Simulate this many engines of each pool behind the router."""
    rate, seed, asked = terms(
        sum(plan.need.rate_per_s for plan in plans), check.seed, check.asked, run=run, stay_s=stay
    )
    order = sorted(range(len(plans)), key=lambda i: plans[i].need.context)
    found = verify_routed(
        [
            EnginePool(
                source=plans[i].source,
                context=plans[i].need.context,
                engines=engines[i],
                slots=plans[i].analytic.slots,
                share=plans[i].share,
            )
            for i in order
        ],
        FleetRouter(name=cast("RouterName", router), spill_per_gpu=asking.spill_per_engine),
        lengths,
        rate,
        stay_s=stay,
        seed=seed,
        asked=asked,
    )
    place = [order.index(i) for i in range(len(plans))]
    found = replace(
        found,
        pools=tuple(found.pools[i] for i in place),
        shares=tuple(found.shares[i] for i in place),
    )
    return Together(engines=engines, check=found, run=run)


def sizing_note(router: PoolRouter, *, has_labels: bool) -> str:
    """Return how the requests of a pool were chosen, and how the fleet is simulated."""
    how: Mapping[str, str] = {
        "length": "each pool is sized for the requests that fit into no shorter pool",
        "compress": "each pool is sized for the requests that fit into no shorter pool, prompts cut",
        "spillover": "each pool is sized as by length; what spills over is in the simulation alone",
        "least-loaded": "each pool is sized for its share of the requests that it holds",
        "random": "each pool is sized for its share of the requests that it holds",
        "model": "each pool is sized for the models that it takes",
        "semantic": "each pool is sized for the labels that it takes",
    }
    drawn = "; labels are drawn by the pools' shares" if router in BY_LABEL and not has_labels else ""
    level = (
        "all pools together behind the router"
        if router in SHARED
        else "each pool alone: the router does not look at load"
    )
    return f"router {router}: {how[router]}{drawn}; simulated by the token-level engine, {level}"
