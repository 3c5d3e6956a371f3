"""One run of a sweep: from its settings to its row in the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeVar

import click
import typer
from typer.main import get_command

from replay.console.ready import prepare_engine
from replay.console.twins import check_starts
from replay.simulation.run_plan import RunSettings
from replay.simulation.variants.simulated import document
from replay.simulation.variants.variant import Variant, simulate_variant
from replay.sweeps.grid import SweepRun, Value, words_of
from replay.trace.measured_window import parse_measured
from replay.twin.config_read import load_config
from replay.twin.keys.overlay import Setting
from replay.twin.twin_config import TwinConfig
from traces import ConfigError, Trace, VtwinError, parse_slo
from traces.strict.option_table import with_option_tables
from traces.workload import WorkloadOptions, check_options, trace_from_options

NOT_FIGURES = (
    "schema_version",
    "tool_version",
    "name",
    "set",
    "unanswered",
    "groups",
    "num_by_reason",
    "pace_band",
    "engine_cpu_s",
)
"""Keys of the JSON document that are not figures of the whole run, or differ between equal runs."""

Row = dict[str, Value | None]
Asked = TypeVar("Asked")


def row_of(run: SweepRun) -> Row:
    """Return a run's row: its settings, and the figures of its JSON document; ``error``: why it has none.

    ``unanswered``: keys of its settings that its twin has no answer to, with commas between.
    """
    columns: Row = {"run": run.digest, **run.columns(), "error": None}
    try:
        figures = _simulated(run)
    except VtwinError as error:
        return {**columns, "error": str(error)}
    return {**columns, **figures}


def check_any_starts(runs: Sequence[SweepRun]) -> None:
    """Read one twin and one load of the runs. Raises the first ConfigError where no twin, or no load, can be read."""
    twins = dict.fromkeys((run.config, run.settings, run.config_digest) for run in runs)
    _check_any(twins, lambda twin: _twin(*twin))
    _check_any(dict.fromkeys(run.load for run in runs), lambda load: check_options(workload_of(load)))


def _check_any(several: Iterable[Asked], read: Callable[[Asked], object]) -> None:
    first = None
    for each in several:
        try:
            read(each)
        except ConfigError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _simulated(run: SweepRun) -> Row:
    """Simulate, and return the figures. Raises VtwinError."""
    twin = _twin(run.config, run.settings, run.config_digest)
    check_starts(twin)
    drawn = _drawn(run.load)
    prepare_engine(twin, trace=drawn)
    given = dict(run.settings)
    # Runs of a sweep are compared with each other, at one pace: a band of each would take three times as long.
    variant = Variant(settings=given, varied=given, twin=replace(twin, pace=None), trace=drawn)
    settings = RunSettings(
        at="arrival",
        measured=parse_measured(None, run.warmup_frac),
        slo_us=parse_slo(run.slo) if run.slo else {},
    )
    variants = document([simulate_variant(variant, settings)])["variants"]
    assert isinstance(variants, list)  # noqa: S101 - as document makes it
    figures = flat({key: value for key, value in variants[0].items() if key not in NOT_FIGURES})
    figures["unanswered"] = ", ".join(twin.unanswered_keys) or None
    return {**figures, **_cost(twin, dict(run.gpu_prices), figures)}


def _cost(twin: TwinConfig, prices: Mapping[str, float], figures: Mapping[str, Value | None]) -> Row:
    """Return the price of all GPUs per hour, and of a million output tokens at the run's throughput."""
    if not prices:
        return {}
    if not twin.num_gpus:
        raise ConfigError(
            f"prices: got some, expected hardware in {twin.source}, to know which GPUs there are"
        )
    missing = [name for name in twin.num_gpus if name not in prices]
    if missing:
        raise ConfigError(f"prices: got none of {missing[0]}, expected one")
    per_hour = sum(prices[name] * number for name, number in twin.num_gpus.items())
    tokens_per_s = figures.get("output_token_throughput")
    per_token = (
        per_hour / 3600 / tokens_per_s if isinstance(tokens_per_s, float) and tokens_per_s > 0 else None
    )
    return {
        "price_per_hour": per_hour,
        "price_per_million_tokens": None if per_token is None else per_token * 1e6,
    }


def flat(document: Mapping[str, Any], *, above: str = "") -> Row:
    """Return a document's numbers and texts with the path as name: ``ttft_us.p99``. Lists are left out."""
    row: Row = {}
    for key, value in document.items():
        if isinstance(value, dict):
            row |= flat(value, above=f"{above}{key}.")
        elif value is None or isinstance(value, str | int | float | bool):
            row[f"{above}{key}"] = value
    return row


@lru_cache(maxsize=1024)
def _twin(config: str, settings: tuple[tuple[str, str], ...], _digest: str) -> TwinConfig:
    """Return a configuration with settings, once for all workloads and seeds, while its files are what they are.

    Raises ConfigError.
    """
    return load_config(config, settings=[Setting(key, value) for key, value in settings])


@lru_cache(maxsize=4)
def _drawn(load: tuple[tuple[str, Value], ...]) -> Trace:
    """Return the requests of a workload's options. Raises ConfigError."""
    options = workload_of(load)
    check_options(options)
    return trace_from_options(options)


def workload_of(load: tuple[tuple[str, Value], ...]) -> WorkloadOptions:
    """Return a workload's options, read as the command line reads them. Raises ConfigError."""
    try:
        found = _command_line().main(words_of(load), standalone_mode=False)
    except click.ClickException as error:
        raise ConfigError(f"workloads: {error.format_message()}") from error
    assert isinstance(found, WorkloadOptions)  # noqa: S101 - what _given returns
    return found


@cache
def _command_line() -> click.Command:
    """Return the command line that has a workload's options; to make it takes as long as to simulate a run."""
    app = typer.Typer(add_completion=False)
    app.command()(with_option_tables(_given))
    return get_command(app)


def _given(workload: WorkloadOptions) -> WorkloadOptions:
    return workload


def as_row(run: SweepRun, error: BaseException) -> Row:
    """Return the row of a run that ended by a fault of vtwin, or of a worker."""
    return {"run": run.digest, **run.columns(), "error": f"{type(error).__name__}: {error}"}
