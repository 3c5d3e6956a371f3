"""``vtwin compare``: two runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traces import terminal_width
from traces.console.options import JsonOption
from traces.facts import say_json
from traces.strict.swapped import check_twin_file
from traces.strict.tell import say_text, tell

if TYPE_CHECKING:
    from calibrate.runs.split_change import SplitChange
    from replay import TwinConfig
    from traces import Trace


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
) -> None:
    """Compare two runs, measured or simulated. Neither is the reference.

    Shows what was asked of each, what each served, and by how much B's latencies differ from A's with 90 % intervals.
    `calibrate` compares a server with its twin. With --twin it says whether the load changed or the server.
    """
    from calibrate.distinct_runs import distinct_names
    from calibrate.runs.split_change_text import split_json, split_lines
    from calibrate.runs.text import document, table
    from calibrate.runs.two_runs import compare_runs
    from traces import TraceError, read_recorded, tool_version

    traces = read_recorded(a), read_recorded(b)
    names = distinct_names([a, b])
    for path, trace in zip((a, b), traces, strict=True):
        if len(trace) == 0 or trace.header.mode == "generated":
            raise TraceError(
                f"{path}: got a workload that was not run, expected a measured or simulated trace"
            )
    found = compare_runs((names[0], names[1]), traces, seed=seed)
    for note in found.notes:
        tell(f"note: {note}")
    config = None if twin is None else _loaded(twin)
    split = None if config is None else _split(config, (names[0], names[1]), traces, seed=seed)
    if as_json:
        doubts = [] if config is None else [*config.doubts]
        parts = {} if split is None else {"split": {**split_json(split), "warnings": doubts}}
        say_json({**document(found, tool_version=tool_version()), **parts})
        return
    if split is not None:
        say_text("\n".join([*split_lines(split), ""]))
    say_text(table(found, width=terminal_width()))


def _loaded(twin: Path) -> TwinConfig:
    """Return the twin; tell whether it is to be trusted."""
    from replay import load_config

    config = load_config(twin, allows_cluster=False)
    for doubt in config.doubts:
        tell(f"note: {doubt}")
    return config


def _split(
    config: TwinConfig, names: tuple[str, str], traces: tuple[Trace, Trace], *, seed: int
) -> SplitChange:
    from calibrate.runs.split_change import split_runs

    name = "" if config.source is None else config.source.name
    return split_runs(names, traces, config, twin=name, seed=seed)
