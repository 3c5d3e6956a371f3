"""``vtwin selfcheck``. What is heavy is imported by the command."""

from __future__ import annotations

from typing import Annotated

import typer

from traces import ExitCode
from traces.facts import say_json
from traces.strict.tell import say_text, tell


def selfcheck(
    quick: Annotated[
        bool, typer.Option("--quick", help="Shorter runs: half a minute instead of a minute.")
    ] = False,
    processes: Annotated[
        int, typer.Option(min=1, max=256, metavar="N", help="Also measure this many processes together.")
    ] = 1,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 if a target was missed.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON document on stdout.")
    ] = False,
) -> None:
    """Measure the load generator's speed and accuracy on this machine, against a server of known response times."""
    from observe.selfcheck.question import check_client

    report = check_client(quick=quick, processes=processes, tell=lambda line: tell(f"selfcheck: {line}"))
    say_text(report.table(), err=as_json)
    if as_json:
        say_json(report.document())
    if strict and not report.all_met:
        raise typer.Exit(ExitCode.NEGATIVE)
