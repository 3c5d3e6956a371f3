"""Brute force beside every optimiser of fleets: what each finds, and the best of everything there is to find.

Ten random cases of each. ``found`` and ``best`` are what the answer takes (engines, or cost per hour or year).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from replay.fleet.check.disagg_check import verify_handoff
from replay.fleet.check.fewest_engines import terms
from replay.fleet.check.pool import verify
from replay.fleet.check.slo_limits import keeps
from replay.fleet.check.steady import RunLength
from replay.fleet.inputs.fleet_workload import fitting_context
from replay.fleet.inputs.need import Need
from replay.fleet.inputs.pools_file import PoolRouter, PoolSpec, assigned
from replay.fleet.inputs.profiles import ProfileSource, from_profile, of_context, shipped_profiles
from replay.fleet.plans.disagg import KV_BYTES_70B, plan_disagg
from replay.fleet.plans.length_splits import splits_of
from replay.fleet.plans.pools import SHARED, Asking, plan_pools, simulated_together
from replay.fleet.plans.size import SizeCheck, plan_pool
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.fleet import Lengths
from sim.fleet.disaggregated import Transfer, disaggregated_at, keeps_by_formula, sweep_disaggregated
from sim.fleet.reserved import cheapest_reserved, cost_with
from sim.fleet.sizing import Infeasible, Objective, broken, pool_at, size_pool
from sim.fleet.split import sweep_thresholds

NUM_CASES = 10
CONTEXT = 8192
NAMES = ("A100", "H100")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an optimiser found, the best that brute force found, and how much that tried."""

    found: float
    best: float
    tried: int

    @property
    def excess(self) -> float:
        """How much more than the best it takes; below 0: it breaks a limit."""
        return self.found / self.best - 1


def _lengths(rng: np.random.Generator, *, number: int = 200) -> Lengths:
    return Lengths(
        input_tokens=np.ceil(rng.lognormal(rng.uniform(5.5, 6.8), 0.8, number)).clip(1, 7000),
        output_tokens=np.ceil(rng.lognormal(rng.uniform(3.5, 4.8), 0.7, number)).clip(1, 1000),
    )


def _brief(rng: np.random.Generator) -> Lengths:
    """Return lengths of requests that stay for a second or two, so that every fleet of a few engines can be tried."""
    return Lengths(
        input_tokens=np.ceil(rng.lognormal(rng.uniform(5.0, 6.3), 0.7, 200)).clip(1, 2000),
        output_tokens=np.ceil(rng.lognormal(rng.uniform(2.3, 3.3), 0.5, 200)).clip(1, 100),
    )


def _source(rng: np.random.Generator) -> ProfileSource:
    name = str(rng.choice(NAMES))
    return from_profile(name, shipped_profiles()[name], context=CONTEXT)


def by_formula(number: int) -> Answer:
    """``fleet size --no-verify``: every number of engines from one on, until one meets the objective."""
    rng = np.random.default_rng(number)
    lengths, profile, rate = _lengths(rng), _source(rng).profile, float(rng.uniform(20, 3000))
    alone = pool_at(profile, lengths, 1e-6, context=CONTEXT, engines=1)
    objective = Objective(
        ttft_p99_s=alone.ttft_p99_s * float(rng.uniform(1.05, 4)),
        tpot_p99_s=alone.tpot_s * float(rng.uniform(1.1, 3)) if number % 2 else None,
        utilization_cap=float(rng.uniform(0.5, 0.95)),
    )
    found = size_pool(profile, lengths, rate, objective, context=CONTEXT).engines
    for engines in itertools.count(1):
        if broken(pool_at(profile, lengths, rate, context=CONTEXT, engines=engines), objective) is None:
            return Answer(found=found, best=engines, tried=engines)
    raise AssertionError


def simulated(number: int) -> Answer:
    """``fleet size``: both simulations of every number of engines, from one up to two more than were found."""
    rng = np.random.default_rng(100 + number)
    lengths, source = _lengths(rng), _source(rng)
    one = pool_at(source.profile, lengths, 1.0, context=CONTEXT, engines=1)
    rate = float(rng.uniform(1.5, 5)) * one.throughput
    objective = Objective(ttft_p99_s=one.ttft_p99_s * float(rng.uniform(2, 6)), utilization_cap=0.7)
    check = SizeCheck(asked=RunLength(num_requests=5000), seed=number)
    plan = plan_pool(
        source, Need(lengths=lengths, rate_per_s=rate, objective=objective, context=CONTEXT), check=check
    )

    def is_kept(engines: int, run: int) -> bool:
        service = plan.analytic.service_s
        stay = RunLength(num_requests=1).stay_s(lengths, service)
        load, seed, asked = terms(rate, check.seed, check.asked, run=run, stay_s=stay)
        seen = verify(source, lengths, load, engines=engines, service_s=service, seed=seed, asked=asked)
        return keeps(seen, objective)

    numbers = range(1, plan.engines + 3)
    kept = [engines for engines in numbers if is_kept(engines, 0) and is_kept(engines, 1)]
    return Answer(found=plan.engines, best=kept[0], tried=len(numbers))


def pools(number: int) -> Answer:
    """``--layout pools``: every combination of engines in three pools, up to two more of each than were found."""
    rng = np.random.default_rng(200 + number)
    lengths, rate = _lengths(rng), float(rng.uniform(50, 400))
    limits = sorted(
        int(each) for each in np.quantile(lengths.total_tokens, rng.uniform([0.2, 0.6], [0.5, 0.9]))
    )
    specs = [
        PoolSpec(
            name=f"pool {place}",
            profile=str(rng.choice(NAMES)),
            up_to=limit,
            takes=(),
            share=None,
            price=None,
        )
        for place, limit in enumerate([*limits, None])
    ]
    objective = Objective(ttft_p99_s=float(rng.uniform(1.5, 4)))
    pool_of = assigned(specs, "length", lengths, labels=None, seed=1)
    asking = Asking(
        source_of=lambda spec, _, context: of_context(
            from_profile(spec.profile, shipped_profiles()[spec.profile], context=context), context
        ),
        context_of=fitting_context,
        spill_per_engine=64.0,
        check=None,
    )
    plan = plan_pools(specs, "length", lengths, rate, objective, pool_of=pool_of, asking=asking).fleet

    def is_kept(counts: tuple[int, ...]) -> bool:
        return all(
            broken(
                each.need.at(each.source.profile, count),
                objective,
            )
            is None
            for each, count in zip(plan.pools, counts, strict=True)
        )

    prices = [each.source.profile.cost_per_hour for each in plan.pools]
    every = [tuple(range(1, each.engines + 3)) for each in plan.pools]
    singles = [  # a pool's limits hang on its own number alone
        [n for n in numbers if is_kept(tuple(n if i == place else 10_000 for i in range(len(every))))]
        for place, numbers in enumerate(every)
    ]
    costs = [float(np.dot(prices, counts)) for counts in itertools.product(*singles)]
    return Answer(
        found=float(np.dot(prices, [each.engines for each in plan.pools])),
        best=min(costs),
        tried=int(np.prod([len(each) for each in every])),
    )


def split(number: int) -> Answer:
    """``--layout split``: every length at which the workload can be parted."""
    rng = np.random.default_rng(300 + number)
    lengths, source, rate = _lengths(rng, number=2000), _source(rng), float(rng.uniform(50, 2000))
    objective = Objective(ttft_p99_s=float(rng.uniform(1.5, 4)))
    found = splits_of(
        [source], Need(lengths=lengths, rate_per_s=rate, objective=objective, context=CONTEXT), factors=(1.0,)
    )
    profiles = (source.profile, source.profile)
    thresholds = [int(each) for each in np.unique(lengths.total_tokens)][:-1]
    every = sweep_thresholds(profiles, lengths, rate, objective, thresholds=thresholds, context=CONTEXT)
    return Answer(
        found=min(found.amount(each) for each in found.splits),
        best=min(found.amount(each) for each in every),
        tried=len(thresholds),
    )


def disagg(number: int) -> Answer:
    """``--layout disagg --no-verify``: every pair of prefill and decode engines no dearer than the found one."""
    rng = np.random.default_rng(400 + number)
    lengths, rate = _lengths(rng), float(rng.uniform(50, 500))
    profiles = (_source(rng).profile, _source(rng).profile)
    idle = disaggregated_at(profiles, lengths, 1e-6, engines=(1, 1), context=CONTEXT)
    objective = Objective(
        ttft_p99_s=idle.ttft_p99_s * float(rng.uniform(1.01, 2)),
        tpot_p99_s=idle.tpot_s * float(rng.uniform(1.1, 3)) if number % 2 else None,
    )
    found = sweep_disaggregated(profiles, lengths, rate, objective, context=CONTEXT)[0]
    costs = [each.cost_per_hour for each in profiles]
    most = [int(found.cost_per_hour / cost) + 1 for cost in costs]
    best, tried = found.cost_per_hour, 0
    for pair in itertools.product(range(1, most[0] + 1), range(1, most[1] + 1)):
        cost = pair[0] * costs[0] + pair[1] * costs[1]
        if cost >= best - 1e-9:
            continue
        tried += 1
        if keeps_by_formula(
            disaggregated_at(profiles, lengths, rate, engines=pair, context=CONTEXT), objective
        ):
            best = cost
    return Answer(found=found.cost_per_hour, best=best, tried=tried)


def disagg_simulated(number: int) -> Answer:
    """``--layout disagg``: both simulations of every pair of engines that costs no more than the one found."""
    rng = np.random.default_rng(600 + number)
    lengths, source = _brief(rng), _source(rng)
    alone = disaggregated_at((source.profile,) * 2, lengths, 1e-6, engines=(1, 1), context=CONTEXT)
    rate = float(rng.uniform(1.2, 4)) * alone.rate_per_s
    links = Disaggregation(kv_bandwidth_gbps=float(rng.uniform(100, 400)), kv_bytes_per_token=KV_BYTES_70B)
    objective = Objective(ttft_p99_s=alone.ttft_p99_s * float(rng.uniform(1.5, 4)))
    check = SizeCheck(asked=RunLength(num_requests=4000), seed=number)
    plan = plan_disagg(
        (source, source),
        Need(lengths=lengths, rate_per_s=rate, objective=objective, context=CONTEXT),
        by_formula=Transfer(),
        transfer=links,
        check=check,
    )
    if plan.best is None:
        raise Infeasible("no number that was tried meets the objective")
    stay = plan.tried[0].check.whole.window.stay_s

    def is_kept(pair: tuple[int, ...], run: int) -> bool:
        load, seed, asked = terms(rate, check.seed, check.asked, run=run, stay_s=stay)
        engines = (pair[0], pair[1])
        seen = verify_handoff(
            (source, source),
            lengths,
            load,
            engines=engines,
            transfer=links,
            stay_s=stay,
            seed=seed,
            asked=asked,
        )
        return keeps(seen.whole, objective)

    return _cheapest(plan.best, (1.0, 1.0), is_kept)


def pools_together(number: int) -> Answer:
    """``--layout pools`` behind spillover or least-loaded: both simulations of each pair no dearer."""
    rng = np.random.default_rng(700 + number)
    lengths, router = _brief(rng), cast("PoolRouter", SHARED[number % len(SHARED)])
    limit = int(np.quantile(lengths.total_tokens, rng.uniform(0.4, 0.8)))
    specs = [
        PoolSpec(name=name, profile=str(rng.choice(NAMES)), up_to=up_to, takes=(), share=None, price=None)
        for name, up_to in (("short", limit), ("long", int(lengths.total_tokens.max())))
    ]
    check = SizeCheck(asked=RunLength(num_requests=4000), seed=number)
    profiles = {
        name: replace(shipped_profiles()[name], max_slots=16, reserves_context=False) for name in NAMES
    }
    asking = Asking(
        source_of=lambda spec, _, context: of_context(
            from_profile(spec.profile, profiles[spec.profile], context=context), context
        ),
        context_of=fitting_context,
        spill_per_engine=8.0,
        check=None,
    )
    alone = pool_at(profiles["A100"], lengths, 1e-6, context=CONTEXT, engines=1)
    rate = float(rng.uniform(5, 15)) * alone.throughput
    objective = Objective(ttft_p99_s=alone.ttft_p99_s * float(rng.uniform(1.5, 4)))
    pool_of = assigned(specs, router, lengths, labels=None, seed=1)
    formula = plan_pools(specs, router, lengths, rate, objective, pool_of=pool_of, asking=asking).fleet
    plan = plan_pools(
        specs, router, lengths, rate, objective, pool_of=pool_of, asking=replace(asking, check=check)
    )
    if plan.best is None:
        raise Infeasible("no number that was tried meets the objective")
    stay = plan.tried[0].check.whole.window.stay_s

    def is_kept(pair: tuple[int, ...], run: int) -> bool:
        seen = simulated_together(
            formula.pools, pair, router, lengths, stay=stay, check=check, asking=asking, run=run
        )
        return keeps(seen.check.whole, objective)

    prices = [each.source.profile.cost_per_hour for each in formula.pools]
    return _cheapest(plan.best, prices, is_kept)


def _cheapest(
    found: tuple[int, ...], prices: Sequence[float], is_kept: Callable[[tuple[int, ...], int], bool]
) -> Answer:
    """Return what a pair of engines costs, beside the cheapest of all pairs that keeps both runs; all are simulated."""
    cost = float(np.dot(found, prices))
    most = [int(cost / price) for price in prices]
    pairs = [
        pair
        for pair in itertools.product(range(1, most[0] + 1), range(1, most[1] + 1))
        if np.dot(pair, prices) <= cost + 1e-9
    ]
    pairs.sort(key=lambda pair: (float(np.dot(pair, prices)), pair))
    best = next(pair for pair in pairs if is_kept(pair, 0) and is_kept(pair, 1))
    return Answer(found=cost, best=float(np.dot(best, prices)), tried=pairs.index(best) + 1)


def reserve(number: int) -> Answer:
    """``fleet reserve``: every number of reserved engines from none to the day's most."""
    rng = np.random.default_rng(500 + number)
    needed = [int(each) for each in rng.integers(0, int(rng.integers(2, 400)), 24)]
    prices = {"reserved_price": float(rng.uniform(0.5, 5)), "burst_price": float(rng.uniform(0.5, 12))}
    every = [cost_with(each, needed, **prices).cost for each in range(max(needed) + 1)]
    return Answer(found=cheapest_reserved(needed, **prices).cost, best=min(every), tried=len(every))


OPTIMISERS: Mapping[str, Callable[[int], Answer]] = {
    "size, by formula": by_formula,
    "size, simulated": simulated,
    "pools": pools,
    "split": split,
    "disagg, by formula": disagg,
    "disagg, simulated": disagg_simulated,
    "pools that share, simulated": pools_together,
    "reserve": reserve,
}


def answers(name: str) -> list[Answer]:
    """Return an optimiser's answers to the first cases that some fleet can keep."""
    found = []
    for number in itertools.count():
        try:
            found.append(OPTIMISERS[name](number))
        except Infeasible:
            continue
        if len(found) == NUM_CASES:
            return found
    raise AssertionError


def table() -> str:
    """Return the Markdown table."""
    lines = [
        "| optimiser | cases | the best found | largest excess | tried by brute force |",
        "|---|---|---|---|---|",
    ]
    for name in OPTIMISERS:
        seen = answers(name)
        excess = [each.excess for each in seen]
        lines.append(
            f"| {name} | {len(seen)} | {sum(abs(each) < 1e-9 for each in excess)} | {max(excess):.1%} | "
            f"{sum(each.tried for each in seen):,} |"
        )
    return "\n".join(lines)
