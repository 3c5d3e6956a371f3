"""The questions of ``vtwin fleet`` as functions; the commands read options, call these, and print the answers.

Each takes what the fleet is sized for (``fleet_demand``), and how it is simulated (``FleetCheck``). Notes that concern
limits go to stderr here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path

from replay.fleet.answers import FleetAnswer, SizedFleet
from replay.fleet.demand import (
    BY_FORMULA,
    CHECKED,
    FEWER,
    FleetCheck,
    FleetDemand,
    compile_once,
    fleet_demand,
    infeasible,
    misfit_notes,
)
from replay.fleet.inputs import SPILL_PER_ENGINE
from replay.fleet.inputs.outside_fit import EngineLoad, outside_loads
from replay.fleet.plans.beside import FleetsCompared, beside
from replay.fleet.plans.disagg import KV_BYTES_70B, DisaggPlan, disagg_loads, plan_disagg
from replay.fleet.plans.flex import PowerCut, cuts_of
from replay.fleet.plans.length_splits import splits_of
from replay.fleet.plans.memory_notes import memory_notes
from replay.fleet.plans.rates_compared import WhatIf, whatif_of
from replay.fleet.plans.reserve import DayPlan, burst_price_of, plan_day, rates_of
from replay.fleet.plans.router_comparison import Comparison, Routed, routed_loads, routed_of
from replay.fleet.plans.size import NUM_REQUESTS, SizeCheck, plan_pool, sized_fleet
from replay.fleet.told.beside_text import beside_document, beside_parts
from replay.fleet.told.disagg_text import disagg_document, disagg_parts, transfer_note
from replay.fleet.told.flex_text import flex_document, flex_parts
from replay.fleet.told.rates_text import whatif_document, whatif_parts
from replay.fleet.told.reserve_text import reserve_document, reserve_parts
from replay.fleet.told.routers_text import routed_document, routed_parts
from replay.fleet.told.split_text import split_document, split_parts
from replay.numbers.argument_ranges import FLEET_REQUESTS, RATE, TOKENS
from sim.cluster import Disaggregation
from sim.fleet import Lengths
from sim.fleet.disaggregated import Transfer
from sim.fleet.split import Splits
from sim.fleet.step_pools import KVMoves
from traces import Trace
from traces.facts import AnswerPart
from traces.strict.arguments import SEED, TEXT, Number, OfClass, takes

DEMAND = OfClass(("FleetDemand",), "what fleet_demand returns")
LINKS_GBPS = 25.0
"""An engine's link, in each direction, where nobody says another."""


@takes(demand=DEMAND, rate_per_s=RATE, split=TOKENS)
def size_fleet(
    demand: FleetDemand, rate_per_s: float, *, split: int | None = None, check: FleetCheck = CHECKED
) -> SizedFleet:
    """Return the smallest fleet that serves ``rate_per_s`` requests/s within the limits.

    ``split``: two pools, of requests of up to so many tokens, and of longer ones. Raises ConfigError where there is
    no such fleet.
    """
    lengths, sized, arrivals = _arriving(demand, check)
    with infeasible():
        plan = sized_fleet(
            demand.sources, replace(demand.need(rate_per_s), lengths=lengths), split=split, check=sized
        )
    beyond = outside_loads(each.load for each in plan.pools if each.engines)
    misfits = misfit_notes(demand.sources, power=True)
    notes = (*demand.notes, *arrivals, *beyond, *memory_notes(plan), *misfits)
    return SizedFleet(plan=replace(plan, notes=notes), lengths=lengths)


@takes(num_requests=FLEET_REQUESTS, seed=SEED)
def plan_fleet(  # noqa: PLR0913 - what a fleet can be asked for
    workload: Trace | Lengths | Path | str,
    rate_per_s: float,
    slo: str,
    profiles: str | Path | Sequence[str | Path],
    *,
    split: int | None = None,
    context: int | None = None,
    availability: float = 1.0,
    prices: Path | None = None,
    verify: bool = True,
    num_requests: int = NUM_REQUESTS,
    seed: int = 1,
) -> SizedFleet:
    """Return the smallest fleet for a workload and a rate: ``size_fleet`` of ``fleet_demand``, in one call.

    ``verify``: simulate ``num_requests`` or more, and find the smallest fleet that keeps the limits; else by formula.
    """
    demand = fleet_demand(workload, slo, profiles, context=context, availability=availability, prices=prices)
    check = FleetCheck(verify=verify, num_requests=num_requests, seed=seed)
    return size_fleet(demand, rate_per_s, split=split, check=check)


@takes(demand=DEMAND)
def compare_fleets(
    demand: FleetDemand, rates_per_s: Sequence[float], *, check: FleetCheck = BY_FORMULA
) -> FleetAnswer[Sequence[WhatIf]]:
    """Return every profile at every rate: GPUs, cost per year, power, tokens per joule, one pool each."""
    sized = _check_of(check, demand)
    with infeasible():
        found = whatif_of(demand.sources, [demand.need(rate) for rate in rates_per_s], check=sized)
    by_name = {each.name: each for each in demand.sources}
    loads = [
        each.simulated.load
        if each.simulated is not None
        else EngineLoad.of_size(by_name[each.profile], each.size, each.rate_per_s)
        for each in found
        if each.size is not None
    ]
    return FleetAnswer(
        found=found,
        notes=(*demand.notes, *outside_loads(loads), *misfit_notes(demand.sources, power=True)),
        is_met=any(each.size is not None for each in found),
        told=whatif_document,
        shown=lambda found: [*whatif_parts(found), *demand.rate_lines],
    )


@takes(demand=DEMAND, rate_per_s=RATE)
def split_fleet(
    demand: FleetDemand, rate_per_s: float, *, factors: Sequence[float] = (1.0,)
) -> FleetAnswer[Splits]:
    """Return every threshold between a pool for short and one for long requests, by formula.

    ``factors``: prompts that are up to so many times too long for the short pool are cut.
    """
    with infeasible():
        found = splits_of(demand.sources, demand.need(rate_per_s), factors=factors)
        loads = _of_splits(found, demand, rate_per_s)
    return FleetAnswer(
        found=found,
        notes=(*demand.notes, *outside_loads(loads), *misfit_notes(demand.sources)),
        told=split_document,
        shown=lambda found: [*split_parts(found), *demand.rate_lines],
    )


def _of_splits(found: Splits, demand: FleetDemand, rate_per_s: float) -> list[EngineLoad]:
    """Return the loads of the engines of the cheapest split, or of one pool where there is none."""
    best, sources = found.cheapest, demand.sources
    if best is None:
        return [EngineLoad.of_size(sources[-1], found.one, rate_per_s)]
    pools = ((sources[0], best.short, best.share), (sources[-1], best.long, 1 - best.share))
    return [EngineLoad.of_size(each, size, rate_per_s * share) for each, size, share in pools if size]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffLinks:
    """What moving the KV cache from prefill to decode costs.

    ``gb_per_s``: each engine's link, in each direction; ``kv_bytes_per_token``: in all layers, None: the model's.
    Of the formulas alone, None: of a table's profile its constants, of a twin 1: ``alpha_prefill`` and
    ``alpha_decode``, the shares of throughput that transfers leave, and ``beta_ttft``, the factor on TTFT.
    """

    gb_per_s: float = LINKS_GBPS
    kv_bytes_per_token: int | None = None
    alpha_prefill: float | None = None
    alpha_decode: float | None = None
    beta_ttft: float | None = None


LINKS = HandoffLinks()
SplitUp = tuple[DisaggPlan, FleetsCompared | None]
"""Prefill and decode pools, and one pool beside them where it was asked for."""


@takes(demand=DEMAND, rate_per_s=RATE)
def disaggregate_fleet(
    demand: FleetDemand,
    rate_per_s: float,
    *,
    links: HandoffLinks = LINKS,
    with_one_pool: bool = True,
    check: FleetCheck = CHECKED,
) -> FleetAnswer[SplitUp]:
    """Return prefill and decode pools: the Pareto set by formula, the cheapest simulated and made larger until it fits.

    Of two profiles the first is of prefill. ``with_one_pool``: also one pool for the same demand, of the cheaper
    profile.
    """
    sources = (demand.sources[0], demand.sources[-1])
    lengths, sized, arrivals = _arriving(demand, check)
    known = sources[-1].kv_bytes_per_token if links.kv_bytes_per_token is None else links.kv_bytes_per_token
    moves = Disaggregation(
        kv_bandwidth_gbps=links.gb_per_s, kv_bytes_per_token=KV_BYTES_70B if known is None else known
    )
    need = replace(demand.need(rate_per_s), lengths=lengths)
    with infeasible():
        plan = plan_disagg(sources, need, by_formula=_by_formula(links, moves), transfer=moves, check=sized)
        both = beside(plan, sources, need, check=sized) if with_one_pool else None
    has_steps = not sources[-1].profile.reserves_context
    note = transfer_note(plan.transfer, assumed=known is None, has_steps=has_steps)
    moved = [note] if check.verify or has_steps else []
    beyond = outside_loads(disagg_loads(plan, sources, rate_per_s))
    return FleetAnswer(
        found=(plan, both),
        notes=(*demand.notes, *arrivals, *moved, *beyond, *misfit_notes(demand.sources)),
        is_met=plan.is_met if plan.fleets else False,
        told=_handoff_document,
        shown=lambda found: [*_handoff_parts(found), *demand.rate_lines],
    )


def _handoff_document(found: SplitUp) -> dict[str, object]:
    plan, both = found
    return disagg_document(plan) | {"beside": None if both is None else beside_document(both)}


def _handoff_parts(found: SplitUp) -> list[AnswerPart]:
    plan, both = found
    return [*([] if both is None else [*beside_parts(both), ""]), *disagg_parts(plan)]


def _by_formula(links: HandoffLinks, moves: Disaggregation) -> Transfer:
    return Transfer(
        alpha_prefill=links.alpha_prefill,
        alpha_decode=links.alpha_decode,
        beta_ttft=links.beta_ttft,
        links=KVMoves(
            base_s=moves.kv_base_latency_us / 1e6,
            token_s=(moves.kv_bytes_per_token or 0) / moves.kv_bandwidth_gbps / 1e9,
        ),
    )


@takes(demand=DEMAND, rate_per_s=RATE, split=TOKENS, spill=Number(0.001, 1e6), factor=Number(1.0, 1000.0))
def compare_routers(
    demand: FleetDemand,
    rate_per_s: float,
    *,
    split: int,
    spill: float = SPILL_PER_ENGINE,
    factor: float = 1.5,
    check: FleetCheck = FEWER,
) -> FleetAnswer[Sequence[Routed]]:
    """Return routers between a pool for requests of up to ``split`` tokens and one for longer ones, sized by formula.

    Simulated at the level of seats, and by the token-level engine, too. ``spill``: requests per engine
    from which spillover sends on; ``factor``: prompts that are up to so many times too long are cut.
    """
    on = Comparison(
        threshold=split,
        spill=spill,
        factor=factor,
        seed=check.seed,
        asked=check.run_length(demand.whole),
        with_engines=check.verify,
    )
    if check.verify:
        compile_once()
    with infeasible():
        found = routed_of(demand.sources, demand.need(rate_per_s), on=on)
        loads = routed_loads(found, demand.sources, demand.need(rate_per_s), on=on)
    return FleetAnswer(
        found=found,
        notes=(*demand.notes, *outside_loads(loads), *misfit_notes(demand.sources)),
        told=routed_document,
        shown=routed_parts,
    )


@takes(demand=DEMAND, rate_per_s=RATE)
def shed_power(
    demand: FleetDemand, rate_per_s: float, *, engines: int | None = None, check: FleetCheck = BY_FORMULA
) -> FleetAnswer[Sequence[PowerCut]]:
    """Return how much power a fleet of ``engines`` can shed, and for how long, within its limits; None: as it needs."""
    source, need, sized = demand.sources[0], demand.need(rate_per_s), _check_of(check, demand)
    with infeasible():
        number = engines or plan_pool(source, need, check=sized).engines
        cuts = cuts_of(source, need, engines=number, check=sized)
        load = EngineLoad.of_engines(source, need, engines=number)
    return FleetAnswer(
        found=cuts,
        notes=(*demand.notes, *outside_loads([load]), *misfit_notes([source], power=True)),
        told=lambda found: flex_document(found, engines=number),
        shown=lambda found: flex_parts(found, engines=number),
    )


@takes(demand=DEMAND, diurnal=TEXT, burst_price=TEXT)
def reserve_fleet(
    demand: FleetDemand, diurnal: str, burst_price: str, *, check: FleetCheck = BY_FORMULA
) -> FleetAnswer[DayPlan]:
    """Return how many engines to reserve over a day, the others paid by the hour.

    ``diurnal``: ``"PEAK:TROUGH"`` in requests/s, a cosine, or a file of 24 hourly rates. ``burst_price``: of an engine
    and hour, or ``"1.8x"`` the profile's price, which is the reserved one.
    """
    source, sized = demand.sources[0], _check_of(check, demand)
    with infeasible():
        plan = plan_day(
            source,
            [demand.need(rate) for rate in rates_of(diurnal)],
            burst_price=burst_price_of(burst_price, source.profile.cost_per_hour),
            check=sized,
        )
    loads = [each.load for each in plan.simulated] or [
        EngineLoad.of_size(source, size, rate) for size, rate in zip(plan.sizes, plan.rates, strict=True)
    ]
    busiest = max(loads, key=lambda each: each.active)  # with the fewest engines for its requests
    return FleetAnswer(
        found=plan,
        notes=(*demand.notes, *outside_loads([busiest]), *misfit_notes([source])),
        is_met=not plan.broken_hours if plan.simulated else None,
        told=reserve_document,
        shown=reserve_parts,
    )


def _arriving(demand: FleetDemand, check: FleetCheck) -> tuple[Lengths, SizeCheck | None, list[str]]:
    """Return the lengths with the arrivals that are asked for, how they are simulated, and notes on both."""
    lengths, runs, notes = check.arriving(demand.lengths, demand.whole)
    return lengths, check.of_runs(runs), notes


def _check_of(check: FleetCheck, demand: FleetDemand) -> SizeCheck | None:
    """Return how Poisson arrivals are simulated; None: by formula alone."""
    return check.of_runs(check.run_length(demand.whole))
