"""Latency models on the same traces, as a function; ``vtwin calibrate models`` writes and prints what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from calibrate.command import Traces, calibration_of
from calibrate.findings import Calibration, Options
from calibrate.latency_table import Row, row_of, table_of, twin_for, unable
from sim.latency import LATENCY_CLASSES, Fitting
from traces import ConfigError
from traces.strict.tell import tell

if TYPE_CHECKING:
    from rich.table import Table

FITTABLE = tuple(name for name, model in LATENCY_CLASSES.items() if model.fitting is not Fitting.NOT)
"""Latency models whose coefficients a fit finds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScores:
    """Latency models and their errors on the same traces, a row each."""

    rows: tuple[Row, ...]

    def document(self) -> dict[str, object]:
        """Return what ``vtwin calibrate models --json`` prints; errors as fractions."""
        return {"schema_version": 1, "models": [asdict(row) for row in self.rows]}

    def table(self) -> Table:
        """Return what the terminal shows."""
        return table_of(self.rows)


def score_models(
    models: Sequence[str],
    traces: Traces,
    config: Path,
    *,
    options: Options,
    fit: bool = False,
    done: Callable[[str, Calibration], None] = lambda *_: None,
) -> ModelScores:
    """Return the errors of several latency models of one twin on the same traces, fitted first or as configured.

    ``traces``: as ``read_traces`` reads them; ``config``: TWIN.yaml; ``done`` is called with each model's result. A
    model that cannot represent the server has a row that says why. Notes go to stderr. Raises ConfigError for a twin
    or options that cannot be, TraceError for traces that cannot be compared.
    """
    rows = []
    for model in models:
        can_fit = fit and model in FITTABLE
        try:
            twin = twin_for(config, model, fit=can_fit)
        except ConfigError as error:
            rows.append(unable(model, str(error)))
            continue
        as_this = _options_for(model, options) if can_fit else replace(options, latency_model=None)
        calibration = calibration_of(traces, config, fit=can_fit, options=as_this, latency_model=model)
        done(model, calibration)
        rows.append(row_of(model, calibration, reason=twin.latency_reason))
    return ModelScores(rows=tuple(rows))


def _options_for(model: str, options: Options) -> Options:
    """Return the options of one model's fit; those that do not apply to a derived model are reported and left out."""
    if LATENCY_CLASSES[model].fitting is not Fitting.NEARBY:
        return replace(options, latency_model=kind_of(model))
    names = ("infer_async", "names", "model_config", "gpu", "tp")
    without = replace(options, latency_model=None, **{name: getattr(Options(), name) for name in names})
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
