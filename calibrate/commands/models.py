"""``vtwin calibrate models``: latency models on the same traces, a report each and a table of all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sim.latency import LATENCY_CLASSES, Fitting
from traces import ConfigError
from traces.facts import say_json
from traces.strict.tell import tell

if TYPE_CHECKING:
    from calibrate.command import Traces
    from calibrate.findings import Options

FITTABLE = tuple(name for name, model in LATENCY_CLASSES.items() if model.fitting is not Fitting.NOT)
"""Latency models whose coefficients a fit finds."""


def compare_models(
    asked: str,
    traces: Traces,
    config: Path,
    report: Path,
    *,
    fit: bool,
    options: Options,
    as_json: bool,
) -> None:
    """Write a report per latency model and a table of all; print the table."""
    from calibrate.command import calibration_of, write_all
    from calibrate.latency_table import models_in, row_of, table_of, twin_for, unable, write_rows
    from calibrate.report.terminal import console_of, print_table

    rows = []
    for model in models_in(asked):
        can_fit = fit and model in FITTABLE
        try:
            twin = twin_for(config, model, fit=can_fit)
        except ConfigError as error:
            rows.append(unable(model, str(error)))
            continue
        as_this = _options_for(model, options) if can_fit else replace(options, latency_model=None)
        calibration = calibration_of(traces, config, fit=can_fit, options=as_this, latency_model=model)
        write_all(
            calibration,
            report / model,
            verdict=None,
            config=None,
            defaults=None,
            server=(None, None, None),
            form="vtwin",
        )
        rows.append(row_of(model, calibration, reason=twin.latency_reason))
    document = write_rows(rows, report)
    print_table(console_of(stderr=as_json), table_of(rows))
    if as_json:
        say_json(document)


def _options_for(model: str, options: Options) -> Options:
    """Return the options of one model's fit; those that do not apply to a derived model are reported and left out."""
    from calibrate.findings import Options as Defaults

    if LATENCY_CLASSES[model].fitting is not Fitting.NEARBY:
        return replace(options, latency_model=kind_of(model))
    names = ("infer_async", "names", "model_config", "gpu", "tp")
    without = replace(options, latency_model=None, **{name: getattr(Defaults(), name) for name in names})
    if any(getattr(options, name) != getattr(without, name) for name in names):
        tell(
            "note: --infer-async, --fit-alpha2, --model-config, --gpu and --tp do not apply to the fit of "
            f"{model}"
        )
    return without


def kind_of(latency_model: str | None) -> Literal["auto", "blackbox", "extended"] | None:
    """Return the kind of coefficients that a fit finds, None for the configured one."""
    if latency_model in ("auto", "blackbox", "extended"):
        return latency_model  # type: ignore[return-value]  # mypy does not narrow text by a tuple
    return None
