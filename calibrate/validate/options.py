"""The options of ``vtwin demo`` and ``vtwin validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from traces.strict.option_table import option_table
from traces.strict.swapped import check_twin_file


@option_table
class DemoOptions:
    """All options of ``vtwin demo``."""

    output: Annotated[Path, typer.Option(help="Folder for the traces, the fitted twin and the report.")] = (
        Path("vtwin-demo")
    )


@option_table
class ValidateOptions:
    """The options of ``vtwin validate`` that are its own; all others go to ``vtwin observe``."""

    url: Annotated[str, typer.Option(help="The server: http://HOST:PORT, with or without /v1.")]
    output: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for traces, twin and report. Finished runs in it are reused; runs of another load are "
            "refused (exit 2) without --overwrite.",
        ),
    ]
    gpu: Annotated[
        str | None, typer.Option(help="The server's GPU (H100, A100-80 …), which no server reports.")
    ] = None
    model_config: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG.json",
            help="The model's config.json, or the name of a model that ships with vtwin. Default: the name that the "
            "server gives its model, if it ships.",
        ),
    ] = None
    tp: Annotated[
        int | None, typer.Option(min=1, max=65_536, help="GPUs that share each layer. Default: 1.")
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="R",
            help="Highest rate of interest, requests/s. Default: 80 % of the throughput with 32 users.",
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="TWIN.yaml",
            help="The server's configuration. Default: what the server reports.",
            callback=check_twin_file,
        ),
    ] = None
    serve: Annotated[
        str | None, typer.Option(metavar="'vllm serve …'", help="The command line that started the server.")
    ] = None
    infer_async: Annotated[
        bool,
        typer.Option("--infer-async", help="Fit with and without async scheduling and take the better fit."),
    ] = False
    latency_model: Annotated[
        Literal["auto", "blackbox", "extended", "physics"],
        typer.Option(help="Latency model to fit, as in calibrate; auto chooses on held-out requests."),
    ] = "auto"
    thresholds: Annotated[
        Path | None,
        typer.Option(metavar="GATE.yaml", help="Error limits: exit 1 if one is exceeded, 5 if inconclusive."),
    ] = None
