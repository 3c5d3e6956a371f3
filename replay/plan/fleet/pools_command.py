"""``vtwin fleet reserve``, and fleets of several pools. What is heavy is imported by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay.plan.fleet.options import (
    AvailabilityOption,
    CapOption,
    ContextOption,
    JsonOption,
    OutputFracOption,
    PricesOption,
    ProfileOption,
    SloOption,
    WorkloadOption,
    infeasible,
    misfit_notes,
    objective_of,
    sources_of,
    tell,
    workload_of,
)
from replay.twin.own.own_code import with_code_option


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
            help="What an engine costs an hour when it is paid by the hour; 1.8x: so many times the reserved price.",
        ),
    ],
    prices: PricesOption = None,
    context: ContextOption = None,
    output_frac: OutputFracOption = 0.2,
    availability: AvailabilityOption = 1.0,
    utilization_cap: CapOption = 0.85,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Also write a page with the day.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find how many engines to reserve over a day, the others paid by the hour, by formula.

    The profile's price, or that of --prices, is the reserved one.
    """
    from replay.plan.fleet.reserve import (
        burst_price_of,
        document_text,
        plan_day,
        rates_of,
        reserve_lines,
        write_reserve_page,
    )

    lengths, longest, notes = workload_of(workload, context, output_frac)
    objective = objective_of(slo, utilization_cap=utilization_cap, availability=availability)
    source = sources_of(profile, lengths, longest, prices=prices)[0]
    with infeasible():
        plan = plan_day(
            source,
            lengths,
            rates_of(diurnal),
            objective,
            context=longest,
            burst_price=burst_price_of(burst_price, source.profile.cost_per_hour),
        )
    tell([*notes, *misfit_notes([source])])
    typer.echo(document_text(plan) if as_json else "\n".join(reserve_lines(plan)))
    if report is not None:
        write_reserve_page(report, plan)
        typer.echo(f"wrote {report}", err=True)
