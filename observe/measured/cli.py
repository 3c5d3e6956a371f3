"""``vtwin report``: measured traces as a page."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from traces.console.slo_gate import SloGate
from traces.strict.option_table import with_option_tables
from traces.strict.secrets import redact_command
from traces.strict.tell import say, tell

SloOption = Annotated[
    str | None,
    typer.Option(
        metavar="LIMITS",
        help="Latency limits of each request, ttft=500ms,tpot=30ms,e2e=10s: drawn in, and the requests within all of "
        "them counted. Without it the trace's own targets count.",
    ),
]


@with_option_tables
def report(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="STEM...",
            help="Traces of one server: one is shown in detail, several side by side over their load. A folder stands "
            "for all traces in it. Files of vllm bench, guidellm and aiperf are taken as they are: of several "
            "runs in one, all (FILE#N: one).",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.html", help="Where to write it. Default: beside the first trace."),
    ] = None,
    slo: SloOption = None,
    *,
    gate: SloGate,
) -> None:
    """Show measured traces as a page: latencies, throughput, requests in flight, over time and over the load."""
    from observe.measured.page import page_of
    from observe.measured.served_load import read_load
    from traces import ConfigError, parse_slo, parts_at, write_text
    from traces.console.slo_gate import NO_LIMITS
    from traces.strict.tell import tell_note

    slo_us = parse_slo(slo, tell=tell_note) if slo else {}
    paths = [part for each in traces for path in _in_folder(each) for part in parts_at(path)]
    names = _names(paths)
    loads = [read_load(path, name=name, slo_us=slo_us) for path, name in zip(paths, names, strict=True)]
    if gate.least is not None and all(each.goodput is None for each in loads):
        raise ConfigError(NO_LIMITS)
    loads.sort(key=lambda each: each.place or 0.0)
    page = output or (traces[0] / "report.html" if traces[0].is_dir() else _beside(traces[0]))
    text = page_of(loads, slo_us=slo_us, command=redact_command(["vtwin", *sys.argv[1:]], os.environ))
    write_text(page, text, option="--output")
    for each in loads:
        for line in each.warnings():
            tell(f"warning: {line}")
    say(str(page))
    named = {"" if len(loads) == 1 else each.name: each.goodput for each in loads}
    gate.check(named)


def _in_folder(path: Path) -> list[Path]:
    """Return the traces of a folder, by name; the path itself where it is none. Raises TraceError for an empty one."""
    from traces import TraceError, companion_file

    if not path.is_dir():
        return [path]
    found = [
        header.with_suffix("")
        for header in sorted(path.glob("*.yaml"))
        if any(companion_file(header.with_suffix(""), end).is_file() for end in (".csv", ".parquet"))
    ]
    if not found:
        raise TraceError(
            f"{path}: got a folder without a trace, expected STEM.yaml with STEM.csv or STEM.parquet in it"
        )
    return found


def _beside(path: Path) -> Path:
    from traces import stem_of

    stem = stem_of(path)
    return stem.with_name(f"{stem.name}.report.html")


def _names(paths: list[Path]) -> list[str]:
    """Return the paths' stems, with their folders where stems are alike."""
    from traces import stem_of

    stems = [stem_of(path) for path in paths]
    names = [stem.name for stem in stems]
    return [str(stem) if names.count(name) > 1 else name for stem, name in zip(stems, names, strict=True)]
