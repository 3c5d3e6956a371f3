"""``vtwin predictor``: a latency model out of measured operators."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from calibrate.predictor.tables import ComponentTable, StepTables
    from replay.twin import StepTableFile

PATIENCE_S = 2.0
"""What takes longer than this says how far it is."""

predictor_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="A latency model from measured operators."
)


@predictor_app.callback()
def _predictor() -> None:
    """Make a latency model from measured operators."""


@predictor_app.command(
    epilog="Example: vtwin predictor train --profile h100 --model-config Qwen/Qwen3-14B --gpu H100 --output steps.json"
)
def train(  # noqa: PLR0913, PLR0917 - a command's options are its parameters
    profile: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR",
            help="Measured operators, a file or all below a folder: CSVs in Vidur's columns, Parquet tables of vLLM "
            "kernels. May be given again: an operator that several have is taken from the first.",
        ),
    ],
    model_config: Annotated[
        str,
        typer.Option(
            metavar="CONFIG.json", help="A Hugging Face config.json, or a model that ships by its name."
        ),
    ],
    gpu: Annotated[str, typer.Option(metavar="NAME", help="A GPU that vtwin knows: H100, A100-80, A40, …")],
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="The table of step times, JSON, for `latency.table`.")
    ],
    tp: Annotated[int, typer.Option(metavar="N", min=1, max=65_536, help="GPUs that share each layer.")] = 1,
    pp: Annotated[
        int, typer.Option(metavar="N", min=1, max=65_536, help="Pipeline stages that a batch passes.")
    ] = 1,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With more GPUs than that (tp x pp), stages send over the network between nodes, where the profile "
            "measured it. Default: all in one node.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The served model, as the profile of CPU costs names it."),
    ] = None,
    vllm_version: Annotated[
        str | None,
        typer.Option(
            metavar="V", help="Kernel tables of this version, else the next older; default: the newest."
        ),
    ] = None,
    estimator: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Regressions to try: grid, polynomial, forest, spline, isotonic. Default: all.",
        ),
    ] = None,
    step_overhead_us: Annotated[
        float | None,
        typer.Option(metavar="US", min=0.0, help="Time between steps, in place of the five CPU costs."),
    ] = None,
    kv_cache_dtype: Annotated[str, typer.Option(help="As vLLM's flag: auto or fp8.")] = "auto",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a profile that lacks a projection or attention.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Train again and do not use the cache.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Learn how long each operator of a model takes, and write a table of step times.

    Per operator, several regressions are tried with grid search and k-fold validation; the one that predicts unseen
    points best is used, and its error on points held out is reported. Components that no profile has are listed
    with what stands in for them. `latency: {model: profiled, table: FILE}` in TWIN.yaml then simulates with it.
    """
    from calibrate.predictor import need_sklearn

    need_sklearn()
    from calibrate.predictor.build import train as train_table
    from calibrate.predictor.cache import default_cache
    from calibrate.predictor.estimators import check_names
    from calibrate.predictor.measured import Wanted
    from replay.model import find_gpu, read_model_config
    from replay.twin import write_step_tables

    started = time.monotonic()
    wanted = Wanted(
        shape=read_model_config(model_config, kv_cache_dtype=kv_cache_dtype),
        gpu=gpu,
        tp=tp,
        pp=pp,
        gpus_per_node=gpus_per_node,
        served_model=model,
        vllm_version=vllm_version,
    )
    file, made = train_table(
        profile,
        wanted,
        find_gpu(gpu),
        names=check_names(estimator or ()),
        cache=None if no_cache else default_cache(),
        step_overhead_us=step_overhead_us,
        strict=strict,
        tell=_Narrator(started),
    )
    write_step_tables(output, file)
    if as_json:
        say_text(json.dumps(_document(file, output=output, seconds=time.monotonic() - started)))
    else:
        _print(file, made, output)


class _Narrator:
    """Says on stderr which operator is being learned, once that takes long enough to be wondered about."""

    def __init__(self, started: float) -> None:
        self.started = started

    def __call__(self, name: str, number: int, total: int) -> None:
        """Say which operator comes now."""
        if time.monotonic() - self.started > PATIENCE_S:
            tell(f"{number + 1}/{total} {name}")


def _document(file: StepTableFile, *, output: Path, seconds: float) -> dict[str, object]:
    """Return what --json prints: the file without its tables, and what it cost."""
    components = file.about["components"]
    assert isinstance(components, list), "made by build.train"  # noqa: S101 - our own document
    slim = [{k: v for k, v in each.items() if k != "time_us"} for each in components]
    return {
        "schema_version": 1,
        "output": str(output),
        "output_bytes": output.stat().st_size,
        "wall_s": round(seconds, 3),
        **file.about,
        "components": slim,
        "domain": dict(file.domain),
        "step_us": file.step_us,
    }


def _print(file: StepTableFile, made: StepTables, output: Path) -> None:
    """Print a line per component, the warnings, and how to use the table."""
    say(f"{file.about['model']} on {made_on(file)}")
    say(f"{'component':<24}{'runs':>6}  {'regression':<14}{'points':>7}  {'error on unseen points'}")
    for each in made.components:
        say(_line(each))
    for note in sorted({note for each in made.components if each.report for note in each.report.notes}):
        say(f"note: {note}")
    for warning in file.about["warnings"]:  # type: ignore[attr-defined]  # a list, made by build.train
        say(f"note: {warning}")
    edges = ", ".join(f"{name} {value:,.0f}" for name, value in file.domain.items())
    say(f"measured up to: {edges}; beyond, times grow with the work")
    say(
        f"{output}: {output.stat().st_size / 1e6:.1f} MB; in TWIN.yaml: latency: {{model: profiled, table: {output}}}"
    )


def made_on(file: StepTableFile) -> str:
    """Return the GPUs of a table as a person says them."""
    pipeline = f", pp {file.about['pp']}" if file.about["pp"] != 1 else ""
    return f"{file.about['gpu']}, tp {file.about['tp']}{pipeline}"


def _line(made: ComponentTable) -> str:
    name, report = made.component.name, made.report
    if report is None:
        return f"{name:<24}{made.count:>6g}  {'stand-in':<14}"
    score = report.score
    unseen = f"{score.num_points} held out" if score.is_held_out else "k-fold"
    kept = ", cached" if made.was_cached else ""
    errors = f"{score.mape:6.1%} mean {score.median:6.1%} median {score.p90:6.1%} p90"
    return (
        f"{name:<24}{made.count:>6g}  {report.estimator:<14}{report.num_points:>7}  {errors} ({unseen}{kept})"
    )
