"""``vtwin fleet size`` and ``profile``. What is heavy is imported by the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replay.plan.fleet.options import (
    AvailabilityOption,
    CapOption,
    ContextOption,
    JsonOption,
    OutputFracOption,
    PricesOption,
    ProfileOption,
    RateOption,
    SloOption,
    WorkloadOption,
    compile_once,
    infeasible,
    misfit_notes,
    objective_of,
    sources_of,
    workload_of,
)
from replay.twin.own.own_code import with_code_option

if TYPE_CHECKING:
    from replay.plan.fleet.size import FleetPlan


@with_code_option
def size(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    workload: WorkloadOption,
    rate: RateOption,
    slo: SloOption,
    profile: ProfileOption,
    split: Annotated[
        int | None,
        typer.Option(
            min=16,
            metavar="TOKENS",
            help="Two pools: requests up to so long, and the others.",
            show_default=False,
        ),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    availability: AvailabilityOption = 1.0,
    utilization_cap: CapOption = 0.85,
    prices: PricesOption = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Simulate the fleet with the token-level engine.")
    ] = True,
    smallest: Annotated[
        bool,
        typer.Option("--smallest", help="Also look for fewer engines that keep the SLO in simulation."),
    ] = False,
    num_requests: Annotated[
        int, typer.Option(min=1000, metavar="N", help="Requests of a simulation, at least.")
    ] = 50_000,
    seed: Annotated[int, typer.Option(min=0, help="Of arrivals and lengths.")] = 1,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Also write a page: cost over load, sensitivity.", show_default=False
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find the smallest fleet that keeps a TTFT objective, and simulate it.

    Formulas (Erlang C, Kimura) give the number of engines; the token-level engine then serves the same workload, and
    more engines are added until it keeps the objective. Exit code 1 if none does.
    """
    from replay.plan.fleet.size import Check, plan_fleet
    from replay.simulation_command import working

    lengths, longest, notes = workload_of(workload, context, output_frac)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=availability)
    sources = sources_of(profile, lengths, longest, prices=prices)
    check = Check(smallest=smallest, num_requests=num_requests, seed=seed) if verify else None
    if check is not None:
        compile_once()
    with infeasible(), working("sizing and simulating the fleet"):
        plan = plan_fleet(sources, lengths, rate, objective, context=longest, split=split, check=check)
    _show(plan, [*notes, *misfit_notes(sources, power=True)], as_json=as_json)
    if report is not None:
        from replay.plan.fleet.page import write_page

        with infeasible(), working("drawing the page"):
            write_page(report, plan, sources, lengths, context=longest, split=split)
        typer.echo(f"wrote {report}", err=True)
    if plan.is_met is False:
        raise typer.Exit(1)


@with_code_option
def show_profile(
    source: Annotated[
        str, typer.Option("--from", metavar="TWIN.yaml|NAME", help="A twin, or a profile of the table.")
    ],
    workload: Annotated[
        Path | None,
        typer.Option(
            metavar="CDF.json|STEM", help="Lengths to derive it for. Default: 1,000 and 250 tokens."
        ),
    ] = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    prices: PricesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print a GPU's profile: W, H and the rest, derived from any latency model, with its misfit."""
    from dataclasses import asdict

    import numpy as np

    from replay.plan.fleet.profiles import profile_yaml
    from sim.fleet import Lengths

    if workload is None:
        lengths, longest = (
            Lengths(input_tokens=np.array([1000.0]), output_tokens=np.array([250.0])),
            context or 8192,
        )
    else:
        lengths, longest, _ = workload_of(workload, context, output_frac)
    (found,) = sources_of(source, lengths, longest, prices=prices)[:1]
    if as_json:
        misfit = None if found.misfit is None else asdict(found.misfit)
        typer.echo(
            json.dumps({"name": found.name, "profile": asdict(found.profile), "misfit": misfit}, indent=2)
        )
    else:
        typer.echo(profile_yaml(found), nl=False)


def _show(plan: FleetPlan, notes: list[str], *, as_json: bool) -> None:
    from dataclasses import replace

    from replay.plan.fleet.text import document, lines
    from replay.plan.side_by_side import terminal_width
    from traces.files.write import tool_version

    plan = replace(plan, notes=tuple(notes))
    if as_json:
        typer.echo(json.dumps(document(plan, tool_version=tool_version()), indent=2, allow_nan=False))
        return
    typer.echo("\n".join(lines(plan, width=terminal_width())))
