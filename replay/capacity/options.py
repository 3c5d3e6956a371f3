"""The options of ``vtwin capacity``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay.console.twins import AnywayOption
from replay.search.seeds import DEFAULT_SEEDS, MOST_SEEDS
from traces import parse_seconds
from traces.console.options import AnswerForm, ConfigOption, DefaultsOption
from traces.strict.option_table import option_table

PricesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PRICES.yaml",
        help="Prices per GPU and hour, one per line (H100: 2.5; DRAM: 0.004 per GiB): also the requests for one unit "
        "of the price.",
    ),
]


@option_table
class CapacityOptions:
    """Twin, limits, search and output."""

    config: ConfigOption
    slo: Annotated[
        str,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits over the run: ttft, tpot, itl or e2e with _p99 (any percentile) or _mean, as in "
            "ttft_p99=500ms,tpot_p99=50ms.",
        ),
    ]
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=50,
            help="How many times to draw the workload. The interval comes from them; --trace needs none.",
            show_default=f"{DEFAULT_SEEDS}, up to {MOST_SEEDS} where the interval is wide",
        ),
    ] = None
    sessions: Annotated[
        bool,
        typer.Option(
            "--sessions",
            help="Find the highest number of sessions at once instead of a rate; the limits are on their rounds. With "
            "--trace or --rounds.",
        ),
    ] = False
    max_think_time: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            parser=parse_seconds,
            help="With --sessions: cut pauses between rounds to this (60s, 5m).",
        ),
    ] = None
    no_binding: Annotated[
        bool, typer.Option("--no-binding", help="Do not look for the resource that limits the capacity.")
    ] = False
    instances: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, metavar="N", help="Simulate N such servers behind a router."),
    ] = None
    routing: Annotated[
        str | None, typer.Option(metavar="POLICY", help="How the router chooses, as in run.")
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of TWIN.yaml in place of the file's, as in run; several values give a table of capacities.",
        ),
    ] = None
    base: Annotated[
        bool,
        typer.Option(
            "--base", help="With --set: also the capacity of TWIN.yaml as it is, in the first column."
        ),
    ] = False
    prices: PricesOption = None
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page with the curves.")
    ] = None
    anyway: AnywayOption = False
    defaults: DefaultsOption = None
    answer: AnswerForm = AnswerForm()
