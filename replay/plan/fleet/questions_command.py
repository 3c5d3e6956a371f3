"""The commands of ``vtwin fleet`` that formulas answer alone, or slots. What is heavy is imported by the command."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from replay.plan.fleet.options import (
    AvailabilityOption,
    CapOption,
    ContextOption,
    FailuresOption,
    JsonOption,
    OutputFracOption,
    PricesOption,
    ProfileOption,
    RateOption,
    SloOption,
    WorkloadOption,
    infeasible,
    misfit_notes,
    numbers_of,
    objective_of,
    share_up,
    sources_of,
    tell,
    workload_of,
)
from replay.twin.own.own_code import with_code_option


@with_code_option
def split(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    compress: Annotated[
        str, typer.Option(metavar="FACTORS", help="Also cut prompts up to so many times too long: 1,1.5,2.")
    ] = "1",
    as_json: JsonOption = False,
) -> None:
    """Compare where to part short from long requests: every threshold by formula, with the Pareto front."""
    from replay.plan.fleet.questions import split_document, split_lines, splits_of

    lengths, longest, notes = workload_of(workload, context, output_frac)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    sources = sources_of(profile, lengths, longest, prices=prices)
    with infeasible():
        one, found = splits_of(
            sources, lengths, rate, objective, context=longest, factors=numbers_of(compress, "--compress")
        )
    tell([*notes, *of_nodes, *misfit_notes(sources)])
    if as_json:
        typer.echo(json.dumps(split_document(one, found), indent=2))
    else:
        typer.echo("\n".join(split_lines(one, found)))


@with_code_option
def routers(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    split: Annotated[
        int, typer.Option(min=16, metavar="TOKENS", help="Two pools: up to so long, and the others.")
    ],
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    utilization_cap: CapOption = 0.85,
    spill: Annotated[float, typer.Option(help="Requests per GPU from which spillover sends on.")] = 2.0,
    compress: Annotated[float, typer.Option(help="Prompts up to so many times too long are cut.")] = 1.5,
    num_requests: Annotated[int, typer.Option(min=1000, metavar="N", help="Requests simulated.")] = 20_000,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and lengths.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Compare routers between a short and a long pool, both sized by formula, simulated at the level of slots."""
    from dataclasses import asdict

    from replay.plan.fleet.questions import routed_lines, routed_of
    from replay.simulation_command import working

    lengths, longest, notes = workload_of(workload, context, output_frac)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = sources_of(profile, lengths, longest)
    with infeasible(), working("simulating slots"):
        found = routed_of(
            sources,
            lengths,
            rate,
            objective,
            threshold=split,
            context=longest,
            settings=(spill, compress),
            draw=(num_requests, seed),
        )
    tell([*notes, *misfit_notes(sources)])
    if as_json:
        told = {"schema_version": 1, "method": "slots simulated", "routers": [asdict(each) for each in found]}
        typer.echo(json.dumps(told, indent=2))
    else:
        typer.echo("\n".join(routed_lines(found)))


@with_code_option
def disagg(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.25,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    alpha_prefill: Annotated[
        float, typer.Option(help="Share of prefill throughput left beside transfers.")
    ] = 0.90,
    alpha_decode: Annotated[float, typer.Option(help="Share of decode throughput left.")] = 0.92,
    beta_ttft: Annotated[float, typer.Option(help="Factor on TTFT for moving the KV cache.")] = 1.80,
    as_json: JsonOption = False,
) -> None:
    """Size prefill and decode pools: the Pareto set over how many of each. Two profiles: of prefill and of decode."""
    from replay.plan.fleet.questions import disagg_document, disagg_lines
    from sim.fleet.disaggregated import Transfer, sweep_disaggregated

    lengths, longest, notes = workload_of(workload, context, output_frac)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = sources_of(profile, lengths, longest, prices=prices)
    transfer = Transfer(alpha_prefill=alpha_prefill, alpha_decode=alpha_decode, beta_ttft=beta_ttft)
    with infeasible():
        found = sweep_disaggregated(
            (sources[0].profile, sources[-1].profile),
            lengths,
            rate,
            objective,
            context=longest,
            transfer=transfer,
        )
    tell([*notes, *misfit_notes(sources)])
    if as_json:
        typer.echo(json.dumps(disagg_document(found), indent=2))
    else:
        typer.echo("\n".join(disagg_lines(found)))
    if not found:
        raise typer.Exit(1)


@with_code_option
def whatif(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rates: Annotated[str, typer.Option(metavar="R,R,…", help="Requests per second, several.")],
    slo: SloOption,
    profiles: Annotated[str, typer.Option(metavar="NAME,NAME,…", help="Profiles or twins, one column each.")],
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    availability: AvailabilityOption = 1.0,
    failures: FailuresOption = None,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare rates and GPU types by formula: GPUs, cost per year, power, tokens per joule."""
    from replay.plan.fleet.questions import whatif_document, whatif_lines, whatif_of

    lengths, longest, notes = workload_of(workload, context, output_frac)
    up, of_nodes = share_up(availability, failures)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=up)
    sources = sources_of(profiles, lengths, longest, prices=prices, most=None)
    found = whatif_of(sources, lengths, numbers_of(rates, "--rates"), objective, context=longest)
    tell([*notes, *of_nodes, *misfit_notes(sources, power=True)])
    if as_json:
        typer.echo(json.dumps(whatif_document(found), indent=2))
    else:
        typer.echo("\n".join(whatif_lines(found)))


@with_code_option
def flex(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    engines: Annotated[
        int | None,
        typer.Option(min=1, help="Engines of the fleet. Default: as many as it needs.", show_default=False),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    utilization_cap: CapOption = 0.85,
    as_json: JsonOption = False,
) -> None:
    """Say how much power a fleet can shed, and for how long, within its SLO."""
    from replay.plan.fleet.questions import flex_document, flex_lines
    from sim.fleet.energy import curtail
    from sim.fleet.sizing import size_pool

    lengths, longest, notes = workload_of(workload, context, output_frac)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=1.0)
    sources = sources_of(profile, lengths, longest)[:1]
    source = sources[0]
    with infeasible():
        number = engines or size_pool(source.profile, lengths, rate, objective, context=longest).engines
        shares = [each / 20 for each in range(15)]
        cuts = curtail(
            source.profile, lengths, rate, objective, context=longest, engines=number, shares=shares
        )
    tell([*notes, *misfit_notes(sources, power=True)])
    if as_json:
        typer.echo(json.dumps(flex_document(cuts, engines=number), indent=2))
    else:
        typer.echo("\n".join(flex_lines(cuts, engines=number)))
