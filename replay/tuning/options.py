"""The options of ``vtwin tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from replay.capacity.options import PricesOption
from replay.console.twins import AnywayOption
from replay.numbers.argument_ranges import BEST, SEEDS
from replay.search.seeds import DEFAULT_SEEDS
from traces.console.options import AnswerForm, ConfigOption, DefaultsOption
from traces.strict.option_table import option_table

TRIED = "What to try: values with commas between"
LIVE = "On a live server"


@option_table
class TuningTwinOptions:
    """What is tuned, and within which limits."""

    config: ConfigOption
    slo: Annotated[
        str,
        typer.Option(
            metavar="LIMITS",
            help="Latency limits over the run, as in capacity: ttft_p99=500ms,tpot_p99=50ms.",
        ),
    ]


@option_table
class TriedOptions:
    """What is tried, and how many of the best are measured."""

    max_num_seqs: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES", help="Default: 1/4 to 4 times the server's own.", rich_help_panel=TRIED
        ),
    ] = None
    max_num_batched_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES", help="Default: 1/4 to 4 times the server's own.", rich_help_panel=TRIED
        ),
    ] = None
    chunked_prefill: Annotated[
        str | None, typer.Option(metavar="VALUES", help="true, false. Default: both.", rich_help_panel=TRIED)
    ] = None
    tp: Annotated[
        str | None,
        typer.Option(
            "--tp",
            metavar="VALUES",
            help="GPUs that share each layer; needs hardware and its latency models in TWIN.yaml. Requests/s per GPU "
            "then decide.",
            rich_help_panel=TRIED,
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUES",
            help="Values to try of any other key of TWIN.yaml; a single value is set in all servers. Repeatable.",
            rich_help_panel=TRIED,
        ),
    ] = None
    prices: PricesOption = None
    top: Annotated[int, typer.Option(min=BEST.least, max=BEST.most, help="How many of the best to show.")] = 3
    seeds: Annotated[
        int,
        typer.Option(
            min=SEEDS.least, max=SEEDS.most, help="How many times to draw the workload for the best few."
        ),
    ] = DEFAULT_SEEDS


@option_table
class LiveOptions:
    """The live server that confirms the best."""

    serve: Annotated[
        str | None,
        typer.Option(
            metavar="'vllm serve …'",
            help="Confirm the best on a real server: this command starts it, with the flags added.",
            rich_help_panel=LIVE,
        ),
    ] = None
    url: Annotated[str, typer.Option(help="Where that server answers.", rich_help_panel=LIVE)] = (
        "http://127.0.0.1:8000"
    )
    confirm: Annotated[
        int, typer.Option(min=1, help="How many of the best to confirm.", rich_help_panel=LIVE)
    ] = 1
    confirm_duration: Annotated[
        float, typer.Option(min=1, metavar="S", help="How long each load lasts.", rich_help_panel=LIVE)
    ] = 120.0
    start_timeout: Annotated[
        float,
        typer.Option(min=1, metavar="S", help="How long the server may take to start.", rich_help_panel=LIVE),
    ] = 900.0
    output: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder for that server's traces and logs.", rich_help_panel=LIVE),
    ] = Path("vtwin-tune")


@option_table
class ResultOptions:
    """Which twins are refused, and what is printed."""

    anyway: AnywayOption = False
    defaults: DefaultsOption = None
    answer: AnswerForm = AnswerForm()


@option_table
class TuneOptions:
    """Twin, values to try and output."""

    twin: TuningTwinOptions
    tried: TriedOptions
    live: LiveOptions
    result: ResultOptions
