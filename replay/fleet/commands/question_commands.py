"""``vtwin fleet routers`` and ``flex``, and layouts of ``fleet size``. What is heavy is imported by the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from replay.fleet.commands.asking import (
    Question,
    asked_of,
    check_of,
    compile_once,
    infeasible,
    misfit_notes,
    numbers_of,
    question_of,
    say_with_notes,
    simulated_of,
)
from replay.fleet.commands.layouts import rates_of, sized_for
from replay.fleet.commands.options import (
    DemandOptions,
    DisaggOptions,
    FlexOptions,
    LengthOptions,
    NodeOptions,
    RouterOptions,
    SizeOptions,
)
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.strict.option_table import with_option_tables

if TYPE_CHECKING:
    from replay.fleet.beside import FleetsCompared
    from replay.fleet.disagg import DisaggPlan
    from replay.fleet.inputs.outside_fit import EngineLoad
    from sim.cluster import Disaggregation
    from sim.fleet.disaggregated import Transfer
    from sim.fleet.split import Splits


def thresholds(asked: SizeOptions) -> None:
    """Compare splits into a pool for short and one for long requests: every threshold by formula."""
    from replay.fleet.inputs.outside_fit import outside_loads
    from replay.fleet.questions import split_document, split_parts, splits_of

    question = sized_for(asked)
    with infeasible():
        found = splits_of(
            question.sources,
            question.lengths,
            rates_of(asked)[0],
            question.objective,
            context=question.context,
            factors=numbers_of("1" if asked.split.compress is None else asked.split.compress, "--compress"),
        )
        loads = _of_splits(found, question, rates_of(asked)[0])
    say_with_notes(
        [*question.notes, *outside_loads(loads), *misfit_notes(question.sources)],
        lambda: split_document(found),
        lambda: [*split_parts(found), *question.rate_lines],
        asked.answer,
    )


def _of_splits(found: Splits, question: Question, rate_per_s: float) -> list[EngineLoad]:
    """Return the loads of the engines of the cheapest split, or of one pool where there is none."""
    from replay.fleet.inputs.outside_fit import EngineLoad

    best, sources = found.cheapest, question.sources
    if best is None:
        return [EngineLoad.of_size(sources[-1], found.one, rate_per_s)]
    pools = ((sources[0], best.short, best.share), (sources[-1], best.long, 1 - best.share))
    return [EngineLoad.of_size(each, size, rate_per_s * share) for each, size, share in pools if size]


@with_code_option
@with_option_tables
def routers(asked: RouterOptions) -> None:
    """Compare routers between a short and a long pool, both sized by formula.

    Simulated at the level of seats and by the token-level engine.
    """
    from replay.console.progress import working
    from replay.fleet.inputs.outside_fit import outside_loads
    from replay.fleet.router_comparison import (
        Comparison,
        routed_document,
        routed_loads,
        routed_of,
        routed_parts,
    )

    question = _with_all_up(asked.demand, asked.lengths, asked.utilization_cap)
    on = Comparison(
        threshold=asked.split,
        context=question.context,
        spill=asked.spill,
        factor=asked.compress,
        seed=asked.runs.seed,
        asked=asked_of(asked.runs.num_requests, asked.measure, whole=question.whole),
        with_engines=asked.verify,
    )
    if asked.verify:
        compile_once()
    with infeasible(), working("simulating the routers"):
        found = routed_of(question.sources, question.lengths, asked.demand.rate, question.objective, on=on)
        loads = routed_loads(found, question.sources, question.lengths, asked.demand.rate, on=on)
    say_with_notes(
        [*question.notes, *outside_loads(loads), *misfit_notes(question.sources)],
        lambda: routed_document(found),
        lambda: routed_parts(found),
        asked.answer,
    )


def _with_all_up(demand: DemandOptions, lengths: LengthOptions, utilization_cap: float) -> Question:
    """Return what is sized where no node fails."""
    nodes = NodeOptions(utilization_cap=utilization_cap)
    return question_of(demand.workload, demand.slo, demand.profile, lengths=lengths, nodes=nodes)


def disagg(asked: SizeOptions) -> None:
    """Size prefill and decode pools beside one pool: the Pareto set over how many of each, the cheapest simulated.

    Two profiles: of prefill and of decode. One pool has the cheaper of them. Where the simulation does not meet the
    SLO, both pools grow until it does. Exit code 1 if none does.
    """
    from replay.fleet.beside import beside_document, beside_parts
    from replay.fleet.disagg import disagg_document, disagg_parts

    question = sized_for(asked)
    plan, both, notes = _disaggregated(asked, question)
    say_with_notes(
        notes,
        lambda: disagg_document(plan) | {"beside": None if both is None else beside_document(both)},
        lambda: [
            *([] if both is None else [*beside_parts(both), ""]),
            *disagg_parts(plan),
            *question.rate_lines,
        ],
        asked.answer,
    )
    if not plan.fleets or plan.is_met is False:
        raise typer.Exit(ExitCode.NEGATIVE)


def _disaggregated(
    asked: SizeOptions, question: Question
) -> tuple[DisaggPlan, FleetsCompared | None, list[str]]:
    """Return prefill and decode pools, one pool beside them where it is asked for, and notes on what they rest on."""
    from replay.console.progress import working
    from replay.fleet.beside import beside
    from replay.fleet.disagg import KV_BYTES_70B, disagg_loads, plan_disagg, transfer_note
    from replay.fleet.inputs.outside_fit import outside_loads

    (rate,) = rates_of(asked)
    sources = (question.sources[0], question.sources[-1])
    lengths, runs, arrivals = simulated_of(
        question.lengths, question.whole, asked.arrivals, num_requests=asked.num_requests or 0
    )
    known = asked.disagg.kv_bytes_per_token
    known = sources[-1].kv_bytes_per_token if known is None else known
    objective, context = question.objective, question.context
    check = check_of(runs, verify=asked.verify, seed=asked.seed or 0)
    moves = _links(asked.disagg, KV_BYTES_70B if known is None else known)
    with infeasible(), working("sizing and simulating the fleet"):
        plan = plan_disagg(
            sources, lengths, rate, objective, context=context, check=check,
            by_formula=_by_formula(asked.disagg, moves), transfer=moves,
        )  # fmt: skip
        both = (
            beside(plan, sources, lengths, rate, objective, context=context, check=check)
            if asked.disagg.beside is not False
            else None
        )
    has_steps = not sources[-1].profile.reserves_context
    note = transfer_note(plan.transfer, assumed=known is None, has_steps=has_steps)
    links = [note] if asked.verify or has_steps else []
    beyond = outside_loads(disagg_loads(plan, sources, rate))
    return plan, both, [*question.notes, *arrivals, *links, *beyond, *misfit_notes(question.sources)]


def _by_formula(asked: DisaggOptions, links: Disaggregation) -> Transfer:
    from sim.fleet.disaggregated import Transfer
    from sim.fleet.step_pools import KVMoves

    return Transfer(
        alpha_prefill=asked.alpha_prefill,
        alpha_decode=asked.alpha_decode,
        beta_ttft=asked.beta_ttft,
        links=KVMoves(
            base_s=links.kv_base_latency_us / 1e6,
            token_s=(links.kv_bytes_per_token or 0) / links.kv_bandwidth_gbps / 1e9,
        ),
    )


def _links(asked: DisaggOptions, kv_bytes_per_token: int) -> Disaggregation:
    from sim.cluster import Disaggregation

    return Disaggregation(kv_bandwidth_gbps=asked.kv_bandwidth or 25.0, kv_bytes_per_token=kv_bytes_per_token)


def compare(asked: SizeOptions) -> None:
    """Compare rates and GPU types, by formula or simulated: GPUs, cost per year, power, tokens per joule.

    Exit code 1 where nothing that is compared meets the SLO.
    """
    from replay.console.progress import working
    from replay.fleet.inputs.outside_fit import EngineLoad, outside_loads
    from replay.fleet.questions import whatif_document, whatif_of, whatif_parts

    question = sized_for(asked, most=None)
    runs = asked_of(asked.num_requests or 0, None, whole=question.whole)
    check = check_of(runs, verify=asked.verify, seed=asked.seed or 0)
    with infeasible(), working("sizing the fleets"):
        found = whatif_of(
            question.sources,
            question.lengths,
            rates_of(asked),
            question.objective,
            context=question.context,
            check=check,
        )
    by_name = {each.name: each for each in question.sources}
    loads = [
        each.simulated.load
        if each.simulated is not None
        else EngineLoad.of_size(by_name[each.profile], each.size, each.rate_per_s)
        for each in found
        if each.size is not None
    ]
    say_with_notes(
        [*question.notes, *outside_loads(loads), *misfit_notes(question.sources, power=True)],
        lambda: whatif_document(found),
        lambda: [*whatif_parts(found), *question.rate_lines],
        asked.answer,
    )
    if all(each.size is None for each in found):
        raise typer.Exit(ExitCode.NEGATIVE)


@with_code_option
@with_option_tables
def flex(asked: FlexOptions) -> None:
    """Say how much power a fleet can shed, and for how long, within its SLO."""
    from replay.console.progress import working
    from replay.fleet.flex import cuts_of, flex_document, flex_parts
    from replay.fleet.inputs.outside_fit import EngineLoad, outside_loads
    from replay.fleet.size import plan_pool

    question = _with_all_up(asked.demand, asked.lengths, asked.utilization_cap)
    source, lengths, rate = question.sources[0], question.lengths, asked.demand.rate
    objective, longest = question.objective, question.context
    runs = asked_of(asked.runs.num_requests, None, whole=question.whole)
    check = check_of(runs, verify=asked.verify, seed=asked.runs.seed)
    with infeasible(), working("shedding power"):
        number = (
            asked.engines or plan_pool(source, lengths, rate, objective, context=longest, check=check).engines
        )
        cuts = cuts_of(source, lengths, rate, objective, context=longest, engines=number, check=check)
        load = EngineLoad.of_engines(source, lengths, rate, engines=number, context=longest)
    say_with_notes(
        [*question.notes, *outside_loads([load]), *misfit_notes([source], power=True)],
        lambda: flex_document(cuts, engines=number),
        lambda: flex_parts(cuts, engines=number),
        asked.answer,
    )
