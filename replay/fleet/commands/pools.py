"""``vtwin fleet reserve``, and fleets of several pools. What is heavy is imported by the command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.fleet.commands.options import (
    ArrivalOption,
    AvailabilityOption,
    BurstinessOption,
    CapOption,
    ContextOption,
    FailuresOption,
    JsonOption,
    MeasureOption,
    OutputFracOption,
    PricesOption,
    ProfileOption,
    RateOption,
    SloOption,
    SpillOption,
    WorkloadOption,
    arrival_notes,
    arrivals_of,
    asked_of,
    check_of,
    compile_once,
    infeasible,
    misfit_notes,
    objective_of,
    share_up,
    sources_of,
    tell_notes,
    workload_of,
)
from replay.fleet.inputs import OUTPUT_FRAC, SPILL_PER_ENGINE
from replay.twin.own.own_code import with_code_option
from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from replay.fleet.inputs.pools import PoolSpec
    from replay.fleet.pools import PoolsPlan
    from sim.fleet import Lengths


@with_code_option
def reserve(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    diurnal: Annotated[
        str,
        typer.Option(
            metavar="PEAK:TROUGH|FILE",
            help="Requests per second over the day: a cosine from trough to peak (at hour 14), or a file of 24 "
            "hourly rates.",
        ),
    ],
    slo: SloOption,
    profile: ProfileOption,
    burst_price: Annotated[
        str,
        typer.Option(
            metavar="PRICE|FACTORx",
            help="Price of an engine that is paid by the hour; 1.8x: 1.8 times the reserved price.",
        ),
    ],
    prices: PricesOption = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify",
            help="Simulate every hour and take the fewest engines that meet the SLO in simulation.",
        ),
    ] = False,
    num_requests: Annotated[
        int,
        typer.Option(
            min=1000, max=1_000_000, metavar="N", help="Smallest number of requests per simulation."
        ),
    ] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed for arrivals and lengths.")] = 1,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Also write a page with the day.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find how many engines to reserve over a day, the others paid by the hour, by formula or simulated.

    The profile's price, or that of --prices, is the reserved one. Exit code 1 where --verify finds no number of engines
    for an hour.
    """
    from replay.fleet.reserve import (
        burst_price_of,
        document_text,
        plan_day,
        rates_of,
        reserve_lines,
        write_reserve_page,
    )
    from replay.progress import working

    lengths, longest, notes = workload_of(workload, context, output_frac)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    source = sources_of(profile, lengths, longest, prices=prices)[0]
    check = check_of(verify=verify, num_requests=num_requests, seed=seed)
    with infeasible(), working("sizing the hours"):
        plan = plan_day(
            source,
            lengths,
            rates_of(diurnal),
            objective,
            context=longest,
            burst_price=burst_price_of(burst_price, source.profile.cost_per_hour),
            check=check,
        )
    tell_notes([*notes, *of_nodes, *misfit_notes([source])])
    if as_json:
        say_text(document_text(plan))
    else:
        say(*reserve_lines(plan))
    if report is not None:
        write_reserve_page(report, plan)
        tell(f"wrote {report}")
    if plan.broken_hours:
        raise typer.Exit(1)


@with_code_option
def pools(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    pools_file: Annotated[
        Path,
        typer.Argument(
            metavar="POOLS.yaml",
            help="router, failures, and pools: each with profile, and name, up_to (tokens), takes (labels), share, "
            "price, failures.",
        ),
    ],
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    router: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="length, spillover, compress, least-loaded, random, model or semantic. Default: the file's, else "
            "length.",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="For semantic: request_id and label of each request, as your classifier says.",
            show_default=False,
        ),
    ] = None,
    spill: SpillOption = SPILL_PER_ENGINE,
    compress: Annotated[
        float,
        typer.Option(
            min=1.0, max=1000.0, help="For compress: cut prompts that are up to this many times too long."
        ),
    ] = 1.5,
    output_frac: OutputFracOption = OUTPUT_FRAC,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate the fleet with the token-level engine.")
    ] = True,
    num_requests: Annotated[
        int,
        typer.Option(
            min=1000, max=1_000_000, metavar="N", help="Smallest number of requests per simulation."
        ),
    ] = 20_000,
    measure: MeasureOption = None,
    arrival: ArrivalOption = None,
    burstiness: BurstinessOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for arrivals, lengths and drawn labels.")] = 1,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Also write a page: cost over load, sensitivity.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Size a fleet of several pools, of different GPUs and models, behind one router.

    Verified with the token-level engine: pool by pool where the router does not look at load (length, compress, random,
    model, semantic), all pools together for spillover and least-loaded. Exit code 1 if the SLO is not kept.
    """
    from replay.fleet.commands.options import source_of
    from replay.fleet.inputs.pools import assigned, read_labels, read_pools, router_of
    from replay.fleet.inputs.workload import fitting_context, read_lengths
    from replay.fleet.pools import Asking, compressed, plan_pools
    from replay.fleet.size import Check
    from replay.progress import working
    from replay.search.prices import read_prices

    named, specs = read_pools(pools_file)
    chosen = router_of(router or named or "length")
    lengths = read_lengths(workload, output_frac=output_frac)
    labelled = read_labels(workload, labels, router=chosen)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    arrivals = arrivals_of(arrival, burstiness, lengths)
    lengths = arrivals.of(lengths)
    asked = asked_of(num_requests, measure, arrivals)
    costs = None if prices is None else read_prices(prices)
    if chosen == "compress":
        lengths = compressed(specs, lengths, factor=compress)
    pool_of = assigned(specs, chosen, lengths, labels=labelled, seed=seed)
    if verify:
        compile_once()
    with infeasible(), working("sizing and simulating the fleet"):
        plan = plan_pools(
            specs,
            chosen,
            lengths,
            rate,
            objective,
            pool_of=pool_of,
            asking=Asking(
                source_of=lambda spec, part, context: source_of(spec.profile, part, context, prices=costs),
                context_of=fitting_context,
                spill_per_engine=spill,
                check=Check(asked=asked, seed=seed) if verify else None,
            ),
        )
    left_out = float((pool_of < 0).mean())
    notes = _pools_notes(plan, specs, left_out=left_out, has_labels=labelled is not None)
    plan = replace(
        plan,
        fleet=replace(
            plan.fleet, notes=(*notes[:1], *of_nodes, *arrival_notes(arrivals, lengths), *notes[1:])
        ),
    )
    _show_pools(plan, lengths, report=report, as_json=as_json)


def _pools_notes(
    plan: PoolsPlan, specs: Sequence[PoolSpec], *, left_out: float, has_labels: bool
) -> list[str]:
    """Return notes: which requests are left out, how pools were sized, how many nodes are up, what profiles are."""
    from replay.fleet.inputs.failures import availability_note
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
    return [*notes, *misfit_notes(sources, power=True)]


def _show_pools(plan: PoolsPlan, lengths: Lengths, *, report: Path | None, as_json: bool) -> None:
    """Print the plan, write its page, and leave with 1 where the SLO is not met."""
    import json

    from replay.fleet.text import pools_document, pools_lines
    from replay.progress import working
    from traces import terminal_width, tool_version

    if as_json:
        told = pools_document(plan, tool_version=tool_version())
        say_text(json.dumps(told, indent=2, allow_nan=False))
    else:
        say(*pools_lines(plan, width=terminal_width()))
    if report is not None:
        from replay.fleet.page import write_page

        sources = [each.source for each in plan.fleet.pools]
        with infeasible(), working("drawing the page"):
            write_page(report, plan.fleet, sources, lengths, context=plan.fleet.pools[-1].context, split=0)
        tell(f"wrote {report}")
    if plan.fleet.is_met is False:
        raise typer.Exit(1)
