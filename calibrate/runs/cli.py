"""``vtwin compare``: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traces import terminal_width
from traces.console.options import FormatOption, JsonOption
from traces.facts import refuse_two_forms, say_json, say_pasted
from traces.strict.swapped import check_twin_file
from traces.strict.tell import say_text, tell


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A run: a trace's stem, header or table.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another run.")],
    twin: Annotated[
        Path | None,
        typer.Option(
            metavar="TWIN.yaml",
            callback=check_twin_file,
            help="The server's twin: splits each change into load, server and chance.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 42,
    as_json: JsonOption = False,
    form: FormatOption = None,
) -> None:
    """Compare two runs, measured or simulated. Neither is the reference.

    Shows what was asked of each, what each served, and by how much B's latencies differ from A's with 90 % intervals.
    `calibrate` compares a server with its twin. With --twin it says whether the load changed or the server.
    """
    from calibrate.runs.question import compare_files

    refuse_two_forms(as_json=as_json, form=form)
    found = compare_files(a, b, twin=twin, seed=seed)
    for note in found.notes:
        tell(f"note: {note}")
    if as_json:
        say_json(found.document())
    elif form is not None:
        say_pasted(form, found.parts, found.rows)
    else:
        say_text(found.text(width=terminal_width()))
