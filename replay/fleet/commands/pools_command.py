"""``vtwin fleet reserve``, and ``fleet size --layout pools``. What is heavy is imported by the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from replay.fleet.commands.asking import (
    asked_of,
    check_of,
    compile_once,
    infeasible,
    misfit_notes,
    numbers_of,
    objective_of,
    say_with_notes,
    share_up,
    simulated_of,
    source_of,
)
from replay.fleet.commands.layouts import rates_of, sized_for
from replay.fleet.commands.options import ReserveOptions, SizeOptions
from replay.fleet.inputs import SPILL_PER_ENGINE
from replay.twin.own.own_code import with_code_option
from traces import ExitCode
from traces.facts import say_answer
from traces.strict.option_table import with_option_tables
from traces.strict.tell import tell

if TYPE_CHECKING:
    from replay.fleet.check.steady import RunLength
    from replay.fleet.inputs.outside_fit import EngineLoad
    from replay.fleet.inputs.pools_file import PoolSpec
    from replay.fleet.inputs.profiles import ProfileSource
    from replay.fleet.pools import Asking, PoolsPlan
    from replay.fleet.reserve import DayPlan
    from sim.fleet import Lengths
    from traces.console.options import AnswerForm


@with_code_option
@with_option_tables
def reserve(asked: ReserveOptions) -> None:
    """Find how many engines to reserve over a day, the others paid by the hour, by formula or simulated.

    The profile's price, or that of --prices, is the reserved one. Exit code 1 where --verify finds no number of engines
    for an hour.
    """
    from replay.console.progress import working
    from replay.fleet.inputs.outside_fit import outside_loads
    from replay.fleet.reserve import (
        burst_price_of,
        plan_day,
        rates_of,
        reserve_document,
        reserve_parts,
        write_reserve_page,
    )

    question = sized_for(asked)
    source = question.sources[0]
    runs = asked_of(asked.runs.num_requests, None, whole=question.whole)
    check = check_of(runs, verify=asked.verify, seed=asked.runs.seed)
    with infeasible(), working("sizing the hours"):
        plan = plan_day(
            source,
            question.lengths,
            rates_of(asked.diurnal),
            question.objective,
            context=question.context,
            burst_price=burst_price_of(asked.burst_price, source.profile.cost_per_hour),
            check=check,
        )
    say_with_notes(
        [*question.notes, *outside_loads(_of_hours(plan, source)), *misfit_notes([source])],
        lambda: reserve_document(plan),
        lambda: reserve_parts(plan),
        asked.answer,
    )
    if asked.report is not None:
        write_reserve_page(asked.report, plan)
        tell(f"wrote {asked.report}")
    if plan.broken_hours:
        raise typer.Exit(ExitCode.NEGATIVE)


def _of_hours(plan: DayPlan, source: ProfileSource) -> list[EngineLoad]:
    """Return an engine's load in the busiest hour: with the fewest engines for its requests."""
    from replay.fleet.inputs.outside_fit import EngineLoad

    if plan.simulated:
        loads = [each.load for each in plan.simulated]
    else:
        loads = [
            EngineLoad.of_size(source, size, rate) for size, rate in zip(plan.sizes, plan.rates, strict=True)
        ]
    return [max(loads, key=lambda each: each.active)]


def pools(asked: SizeOptions) -> None:
    """Size a fleet of several pools, of different GPUs and models, behind one router.

    Verified with the token-level engine: pool by pool where the router does not look at load (length, compress, random,
    model, semantic), all pools together for spillover and least-loaded. Exit code 1 if the SLO is not kept.
    """
    plan, lengths = _planned(asked)
    _show_pools(plan, lengths, report=asked.report, how=asked.answer)


def _planned(asked: SizeOptions) -> tuple[PoolsPlan, Lengths]:
    """Return the fleet that is asked for, with notes, and the lengths that it is sized for."""
    from replay.console.progress import working
    from replay.fleet.inputs.fleet_workload import read_workload
    from replay.fleet.inputs.pools_file import assigned, read_labels, read_pools, router_of
    from replay.fleet.pools import compressed, plan_pools

    assert asked.pools_file is not None  # noqa: S101 - form_of has looked
    (rate,), seed = rates_of(asked), asked.seed or 0
    named, specs = read_pools(asked.pools_file)
    chosen = router_of(asked.pools.router or named or "length")
    found = read_workload(
        asked.workload,
        output_frac=asked.lengths.output_frac,
        total_tokens_max=asked.lengths.total_tokens_max,
    )
    labelled = read_labels(found.whole, asked.pools.labels, router=chosen, name=str(asked.workload))
    up, of_nodes = share_up(asked.nodes.availability, asked.nodes.failures)
    objective = objective_of(asked.slo, utilization_cap=asked.nodes.utilization_cap, availability=up)
    lengths, runs, arrivals = simulated_of(
        found.lengths, found.whole, asked.arrivals, num_requests=asked.num_requests or 0
    )
    asking = replace(_asking(asked, runs), whole=found.whole)
    if chosen == "compress":
        lengths = compressed(specs, lengths, factor=_factor(asked))
    pool_of = assigned(specs, chosen, lengths, labels=labelled, seed=seed)
    if asked.verify:
        compile_once()
    with infeasible(), working("sizing and simulating the fleet"):
        plan = plan_pools(specs, chosen, lengths, rate, objective, pool_of=pool_of, asking=asking)
    left_out = float((pool_of < 0).mean())
    notes = _pools_notes(plan, specs, left_out=left_out, has_labels=labelled is not None)
    told = (*found.notes, *notes[:1], *of_nodes, *arrivals, *notes[1:])
    return replace(plan, fleet=replace(plan.fleet, notes=told)), lengths


def _factor(asked: SizeOptions) -> float:
    """Return how many times too long a prompt may be that is cut. Raises ConfigError."""
    from replay.fleet.inputs.fleet_ranges import FACTORS, in_range
    from traces import ConfigError

    found = numbers_of("1.5" if asked.split.compress is None else asked.split.compress, "--compress")
    if len(found) > 1:
        raise ConfigError(f"--compress: got {len(found)} numbers with --layout pools, expected one")
    return in_range("--compress", found[0], FACTORS)


def _asking(asked: SizeOptions, runs: RunLength) -> Asking:
    """Return where the pools' profiles come from, and how they are simulated. Raises ConfigError."""
    from replay.fleet.inputs.fleet_workload import fitting_context
    from replay.fleet.pools import Asking
    from replay.fleet.size import SizeCheck
    from replay.model.prices import read_prices

    costs = None if asked.prices is None else read_prices(asked.prices)
    return Asking(
        source_of=lambda spec, part, context: source_of(spec.profile, part, context, prices=costs),
        context_of=fitting_context,
        spill_per_engine=asked.pools.spill or SPILL_PER_ENGINE,
        check=SizeCheck(asked=runs, seed=asked.seed or 0) if asked.verify else None,
    )


def _pools_notes(
    plan: PoolsPlan, specs: Sequence[PoolSpec], *, left_out: float, has_labels: bool
) -> list[str]:
    """Return notes: which requests are left out, how pools were sized, how many nodes are up, what profiles are."""
    from replay.fleet.inputs.failures import availability_note
    from replay.fleet.inputs.outside_fit import outside_loads, outside_notes
    from replay.fleet.pools import sizing_note

    sources = list({each.source.name: each.source for each in plan.fleet.pools}.values())
    notes = [sizing_note(plan.router, has_labels=has_labels)]
    if left_out:
        notes.insert(
            0, f"{left_out:.2%} of the requests fit into no pool, or none takes them: they are left out"
        )
    if specs[0].failures and all(each.failures == specs[0].failures for each in specs):
        notes.append(availability_note(specs[0].failures))
    else:
        notes += [availability_note(each.failures, of=each.name) for each in specs if each.failures]
    pools = [each for each in plan.fleet.pools if each.engines]
    beyond = [
        *dict.fromkeys(note for each in pools for note in outside_notes([each.source], each.lengths)),
        *outside_loads(each.load for each in pools),
    ]
    return [*notes, *beyond, *misfit_notes(sources, power=True)]


def _show_pools(plan: PoolsPlan, lengths: Lengths, *, report: Path | None, how: AnswerForm) -> None:
    """Print the plan, write its page, and leave with 1 where the SLO is not met."""
    from replay.console.progress import working
    from replay.fleet.text import pools_document, pools_parts

    say_answer(lambda: pools_document(plan), lambda: pools_parts(plan), how)
    if report is not None:
        from replay.fleet.page import write_page

        sources = [each.source for each in plan.fleet.pools]
        with infeasible(), working("drawing the page"):
            write_page(report, plan.fleet, sources, lengths, context=plan.fleet.pools[-1].context, split=0)
        tell(f"wrote {report}")
    if plan.fleet.is_met is False:
        raise typer.Exit(ExitCode.NEGATIVE)
