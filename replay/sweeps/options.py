"""The options of ``vtwin sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from replay.numbers.argument_ranges import JOBS
from traces.console.options import AnswerForm
from traces.strict.option_table import option_table

MACHINES = "Many machines"


@option_table
class SweepOptions:
    """What is swept, where the table goes, which front is shown, and what runs it."""

    grid: Annotated[
        Path,
        typer.Argument(
            metavar="GRID.yaml", help="Configurations, workloads and seeds (docs/how-to/sweep.md)."
        ),
    ]
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE.parquet",
            help="The table, one row per run. Runs that are already in it are not simulated again. Default: the grid's "
            "name with .parquet, in this folder.",
        ),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option(
            min=JOBS.least, max=JOBS.most, metavar="N", help="Processes of this machine. Default: its cores."
        ),
    ] = None
    x: Annotated[
        str | None,
        typer.Option(
            "--x",
            metavar="COLUMN",
            help="The front's first figure. Default: price_per_million_tokens with prices, else "
            "output_token_throughput.",
        ),
    ] = None
    y: Annotated[
        str | None,
        typer.Option("--y", metavar="COLUMN", help="The front's second figure. Default: e2e_us.p99."),
    ] = None
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page with the Pareto front.")
    ] = None
    backend: Annotated[
        Literal["processes", "dask", "ray"],
        typer.Option(help="What runs the simulations; dask and ray are extras.", rich_help_panel=MACHINES),
    ] = "processes"
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The running Dask or Ray cluster; it must see the same files. Default: one on this machine.",
            rich_help_panel=MACHINES,
        ),
    ] = None
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Only every N-th run, from the I-th: one job's share of the grid (Slurm arrays).",
            rich_help_panel=MACHINES,
        ),
    ] = None
    merge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE.parquet",
            help="Take the finished runs of this table, too, or of all that a pattern names ('grid.shard-*.parquet').",
            rich_help_panel=MACHINES,
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many runs there are, and how many are done.")
    ] = False
    answer: AnswerForm = AnswerForm()
