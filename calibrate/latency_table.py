"""Latency models side by side: their errors on the same traces, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from traces import ConfigError
from traces.strict.escape import terminal

if TYPE_CHECKING:
    from rich.table import Table

    from calibrate.findings import Calibration
    from replay import TwinConfig
    from replay.twin import Setting

SHOWN = {"ttft_us": "TTFT", "tpot_us": "TPOT", "e2e_us": "E2E"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model: its mean absolute errors and the errors of its means, as fractions by metric; or why it has none."""

    model: str
    mape: dict[str, float | None]
    mean_error: dict[str, float | None]
    n: int
    is_fitted: bool
    note: str


def models_in(text: str) -> list[str]:
    """Return the models of a list with commas, each once. Raises ConfigError on an empty one."""
    models = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not models:
        raise ConfigError("--models: got nothing, expected latency models such as blackbox,roofline,physics")
    return models


def twin_for(path: Path, model: str | None, *, fit: bool, learned: Sequence[Setting] = ()) -> TwinConfig:
    """Return the twin of a file with a latency model; a fit of blackbox or extended begins at the configured values.

    If none are configured it begins at a guess; with ``auto``, a configured physics or profile stays as one of its
    candidates. ``learned``: keys that the file leaves open. Raises ConfigError if the model cannot represent the
    server.
    """
    from calibrate.fit.objective.coefficients import GUESS
    from replay import load_config
    from replay.twin import placeholder_notes
    from sim import Blackbox
    from sim.latency import Fitting

    if not (fit and model in ("auto", "blackbox", "extended")):
        return load_config(path, latency_model=model, learned=learned, allows_cluster=False)
    twin = load_config(path, learned=learned, allows_cluster=False)
    expected = placeholder_notes(twin.latency)  # placeholders are replaced by a fit
    twin = replace(twin, notes=tuple(note for note in twin.notes if note not in expected))
    fitting = twin.latency.fitting
    is_start = fitting is Fitting.FREELY or (model == "auto" and fitting is Fitting.NEARBY)
    return twin if is_start else replace(twin, latency=Blackbox(**GUESS))


def row_of(model: str, calibration: Calibration, *, reason: str) -> Row:
    """Return the row of a model."""
    errors = calibration.held_out.errors
    known = [name for name in SHOWN if name in errors]
    return Row(
        model=model,
        mape={name: errors[name].mape.value for name in known},
        mean_error={name: errors[name].rel_error["mean"].value for name in known},
        n=max((errors[name].n for name in known), default=0),
        is_fitted=calibration.fit is not None,
        note=reason,
    )


def unable(model: str, reason: str) -> Row:
    """Return the row of a model that cannot represent this server, and why."""
    return Row(model=model, mape={}, mean_error={}, n=0, is_fitted=False, note=reason)


def table_of(rows: Sequence[Row]) -> Table:
    """Return the rows for a terminal: mean absolute error per request, and in brackets the error of the mean."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="latency models: error per request (of the mean), per cent", title_justify="left")
    for column in ("model", "n", *SHOWN.values(), ""):
        table.add_column(column, justify="left" if column in ("model", "") else "right", no_wrap=column != "")
    for row in rows:
        figures = [_shown(row.mape.get(name), row.mean_error.get(name)) for name in SHOWN]
        note = " ".join(filter(None, ("fitted" if row.is_fitted else "", row.note)))
        table.add_row(*(Text(terminal(cell)) for cell in (row.model, str(row.n), *figures, note)))
    return table


def _shown(mape: float | None, mean_error: float | None) -> str:
    if mape is None:
        return "-"
    of_mean = "" if mean_error is None else f" ({100 * mean_error:+.1f})"
    return f"{100 * mape:.1f}{of_mean}"
