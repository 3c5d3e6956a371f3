"""``vtwin selfcheck``. What is heavy is imported by the command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from observe.selfcheck.report import Report

EXIT_NEGATIVE = 1


def selfcheck(
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter runs: half a minute, not a whole one.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Measure so many processes together, too.")
    ] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a bar was missed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Run the load generator against a server of known response times; say what it does on this machine."""
    from observe.event_loop import run_on_fastest_loop

    report = run_on_fastest_loop(lambda: _examined(quick=quick, processes=processes))
    typer.echo(report.table(), err=as_json)
    if as_json:
        typer.echo(json.dumps(report.document(), indent=2))
    if strict and not report.all_met:
        raise typer.Exit(EXIT_NEGATIVE)


async def _examined(*, quick: bool, processes: int) -> Report:
    from observe.selfcheck.measure import start_reference_server
    from observe.selfcheck.report import examine

    async with start_reference_server() as server:
        return await examine(
            server,
            quick=quick,
            processes=processes,
            tell=lambda line: typer.echo(f"selfcheck: {line}", err=True),
        )
