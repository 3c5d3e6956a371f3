"""``vtwin predictor``: a latency model out of measured operators, and the tables that ship."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from calibrate.predictor.options import TrainOptions
from traces.console.options import AnswerForm
from traces.facts import AlignedRows, AnswerPart, say_answer
from traces.strict.option_table import with_option_tables
from traces.strict.tell import say, say_text, tell

if TYPE_CHECKING:
    from calibrate.predictor.component_tables import ComponentTable, StepTables
    from replay.twin import ShippedTable, StepTableFile

LIST_HEAD = ("model", "GPU", "tp", "quantization", "KV cache", "measured", "TTFT", "TPOT", "latency.table")
PATIENCE_S = 2.0
"""Training that takes longer than this shows its progress."""

predictor_app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="A latency model from measured operators."
)


@predictor_app.callback()
def _predictor() -> None:
    """Make a latency model from measured operators."""


@predictor_app.command("list", epilog="Example: vtwin predictor list --json")
@with_option_tables
def list_tables(asked: AnswerForm) -> None:
    """List the servers whose tables ship; `latency: {model: profiled}` takes them without training.

    TTFT and TPOT: medians of the absolute errors on so many measured loads of that very server.
    """
    from replay.twin import shipped_tables

    found = shipped_tables()
    say_answer(
        lambda: {
            "schema_version": 1,
            "tables": [each.document() for each in found],
        },
        lambda: _list_parts(found),
        asked,
    )


def _list_parts(tables: Sequence[ShippedTable]) -> list[AnswerPart]:
    """Return the table, a row per server."""

    def percent(error: float | None) -> str:
        return "-" if error is None else f"{error:.0%}"

    rows = [LIST_HEAD]
    for each in tables:
        flags = (each.quantization, each.kv_cache_dtype)
        errors = (percent(each.ttft_error), percent(each.tpot_error))
        rows.append((each.model, each.gpu, str(each.tp), *flags, str(each.points or "-"), *errors, each.name))
    widths = [-max(map(len, column)) - 2 for column in zip(*rows, strict=True)]
    return [AlignedRows(rows, [*widths[:-1], 0])]


@predictor_app.command(
    epilog="Example: vtwin predictor train --profile h100 --model-config Qwen/Qwen3-14B --gpu H100 --output steps.json"
)
@with_option_tables
def train(asked: TrainOptions) -> None:
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
    from calibrate.predictor.measured import ProfileQuery
    from replay.model import find_gpu, read_model_config
    from replay.twin import write_step_tables

    started = time.monotonic()
    wanted = ProfileQuery(
        shape=read_model_config(asked.model_config, kv_cache_dtype=asked.kv_cache_dtype),
        gpu=asked.gpu,
        tp=asked.tp,
        pp=asked.pp,
        gpus_per_node=asked.gpus_per_node,
        served_model=asked.model,
        vllm_version=asked.vllm_version,
        has_whole_experts=asked.enable_expert_parallel,
    )
    trained = train_table(
        asked.profile,
        wanted,
        find_gpu(asked.gpu),
        names=check_names(asked.estimator or ()),
        cache=None if asked.no_cache else default_cache(),
        step_overhead_us=asked.step_overhead_us,
        strict=asked.strict,
        tell=_Narrator(started),
    )
    write_step_tables(asked.output, trained.file)
    if asked.as_json:
        cost = {
            "schema_version": 1,
            "output": str(asked.output),
            "output_bytes": asked.output.stat().st_size,
            "wall_s": round(time.monotonic() - started, 3),
        }
        say_text(json.dumps({**cost, **trained.document()}))
    else:
        _print(trained.file, trained.made, asked.output)


class _Narrator:
    """Prints on stderr which operator is being learned, once that takes long."""

    def __init__(self, started: float) -> None:
        self.started = started

    def __call__(self, name: str, number: int, total: int) -> None:
        """Print which operator comes next."""
        if time.monotonic() - self.started > PATIENCE_S:
            tell(f"{number + 1}/{total} {name}")


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
    """Return the GPUs of a table in words."""
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
