"""``vtwin report``: measured traces as a page."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from traces.console.slo_gate import SloGate
from traces.strict.option_table import option_table, with_option_tables
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


@option_table
class TrackingOptions:
    """Tools that keep experiments, to which the runs are logged."""

    mlflow: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="Log each run, its files and the page to MLflow: a server or a folder (vtwin[mlflow]).",
        ),
    ] = None
    wandb: Annotated[
        str | None,
        typer.Option(
            metavar="PROJECT",
            help="Log each run, its files and the page to Weights & Biases; WANDB_MODE=offline: to the folder wandb "
            "(vtwin[wandb]).",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse a place without a name, at once."""
        from traces import ConfigError

        for option, value in (("--mlflow", self.mlflow), ("--wandb", self.wandb)):
            if value is not None and not value.strip("/ "):
                raise ConfigError(f"{option}: got {value!r}, expected the name of a place")


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
    tracking: TrackingOptions,
    gate: SloGate,
) -> None:
    """Show measured traces as a page: latencies, throughput, requests in flight, over time and over the load."""
    from observe.measured.question import report_runs
    from traces import ConfigError, parse_slo, write_text
    from traces.console.slo_gate import NO_LIMITS
    from traces.strict.tell import tell_note

    found = report_runs(traces, slo_us={} if slo is None else parse_slo(slo, tell=tell_note))
    if gate.least is not None and all(each.goodput is None for each in found.loads):
        raise ConfigError(NO_LIMITS)
    page = output or (traces[0] / "report.html" if traces[0].is_dir() else _beside(traces[0]))
    write_text(page, found.html(redact_command(["vtwin", *sys.argv[1:]], os.environ)), option="--output")
    for line in found.notes:
        tell(f"note: {line}")
    for line in found.warnings:
        tell(f"warning: {line}")
    say(str(page))
    for tool, runs in found.log(page, mlflow=tracking.mlflow, wandb=tracking.wandb).items():
        tell(f"logged to {tool}: {', '.join(runs)}")
    tell(f"report: {found.answer}")
    named = {"" if len(found.loads) == 1 else each.name: each.goodput for each in found.loads}
    gate.check(named)


def _beside(path: Path) -> Path:
    from traces import stem_of

    stem = stem_of(path)
    return stem.with_name(f"{stem.name}.report.html")
