"""The options of ``vtwin predictor train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from traces.console.options import JsonOption, KvCacheDtypeOption, ModelConfigOption
from traces.strict.option_table import option_table


@option_table
class TrainOptions:
    """All options of ``vtwin predictor train``."""

    profile: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR",
            help="Measured operators, a file or all below a folder: CSVs in Vidur's columns, Parquet tables of vLLM "
            "kernels. May be given again: an operator that several have is taken from the first.",
        ),
    ]
    model_config: ModelConfigOption
    gpu: Annotated[str, typer.Option(metavar="NAME", help="A GPU that vtwin knows: H100, A100-80, A40, …")]
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The table of step times, JSON, for `latency.table`.")
    ]
    tp: Annotated[int, typer.Option(metavar="N", min=1, max=65_536, help="GPUs that share each layer.")] = 1
    pp: Annotated[
        int, typer.Option(metavar="N", min=1, max=65_536, help="Pipeline stages that a batch passes.")
    ] = 1
    enable_expert_parallel: Annotated[
        bool,
        typer.Option(
            "--enable-expert-parallel",
            help="Each GPU has whole experts, not a slice of all of them, as vLLM's flag.",
        ),
    ] = False
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With more GPUs than that (tp x pp), stages send over the network between nodes, where the profile "
            "measured it. Default: all in one node.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The served model, as the profile of CPU costs names it."),
    ] = None
    vllm_version: Annotated[
        str | None,
        typer.Option(
            metavar="V", help="Kernel tables of this version, else the next older; default: the newest."
        ),
    ] = None
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Regressions to try: grid, crossed, polynomial, forest, spline, isotonic. Default: all.",
        ),
    ] = None
    step_overhead_us: Annotated[
        float | None,
        typer.Option(metavar="US", min=0.0, help="Time between steps, in place of the five CPU costs."),
    ] = None
    kv_cache_dtype: KvCacheDtypeOption = "auto"
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a profile that lacks a projection or attention.")
    ] = False
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Train again and do not use the cache.")] = (
        False
    )
    as_json: JsonOption = False
