"""The options of ``vtwin config from-serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traces.strict.option_table import option_table


@option_table
class StartOptions:
    """What is known of the server."""

    command: Annotated[
        str | None,
        typer.Argument(
            metavar="'vllm serve MODEL …'",
            show_default=False,
            help="What starts the server, in quotes, or a file of it: vllm serve or docker run, a manifest of "
            "Kubernetes, a compose file, values of a Helm chart.",
        ),
    ] = None
    from_trace: Annotated[
        Path | None,
        typer.Option(
            metavar="STEM",
            help="Use what this trace's header says about its server; with a command line, only what that leaves open.",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            help="The server's GPU: take vLLM's own defaults for it, and the latency by the model, else from the "
            "defaults on record."
        ),
    ] = None
    model_config: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG.json",
            help="With --gpu: the model's config.json, or the name of a model that ships with vtwin. Default: the "
            "server's model, if it ships.",
        ),
    ] = None
    vllm_version: Annotated[
        str | None,
        typer.Option(
            help="Whose rules and defaults. Default: what the trace's header or the container's tag says, else the "
            "newest known."
        ),
    ] = None
    tp: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_536,
            help="With --gpu: GPUs that share each layer. Default: what the server says, else 1.",
        ),
    ] = None
