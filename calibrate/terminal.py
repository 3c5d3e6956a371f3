"""The summary that ``vtwin calibrate`` shows in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrate import words
from calibrate.errors import MetricErrors
from calibrate.fit import Fit
from calibrate.judge import Calibration
from calibrate.problem import UNITS

if TYPE_CHECKING:
    from rich.table import Table


def tables_of(calibration: Calibration) -> list[Table]:
    """Return the held-out errors, the coefficients where fitted, and what was left out where any was."""
    tables = [_errors(calibration.holdout, title=f"errors: {calibration.unseen}")]
    if calibration.fit is not None:
        tables.append(_coefficients(calibration.fit))
    if calibration.excluded:
        left_out = [(words.reason(name), f"{count:,}") for name, count in calibration.excluded.items()]
        tables.append(_table("left out", ["reason", "requests"], left_out))
    return tables


def _errors(errors: dict[str, MetricErrors], *, title: str) -> Table:
    rows = [
        (
            words.METRIC_NAMES[name],
            f"{found.n:,}",
            words.duration(found.observed["mean"]),
            words.duration(found.simulated["mean"]),
            words.percent(found.mape.value),
            words.percent_interval(found.mape),
            words.percent(found.bias.value, signed=True),
            words.share(found.pearson_r.value),
        )
        for name, found in errors.items()
    ]
    return _table(title, ["metric", "n", "observed", "simulated", "MAPE", "90 %", "bias", "R"], rows)


def _coefficients(fit: Fit) -> Table:
    rows = [
        (
            each.name,
            words.coefficient(each.value),
            words.NONE
            if each.low is None
            else f"{words.coefficient(each.low)} … {words.coefficient(each.high)}",
            UNITS[each.name],
            "" if each.identifiable else each.reason or "",
        )
        for each in fit.coefficients
    ]
    return _table(
        f"coefficients, fitted in {fit.seconds:.1f} s",
        ["", "value", "90 %", "unit", "not identifiable"],
        rows,
    )


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without frames, its numbers to the right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", pad_edge=False)
    for number, name in enumerate(head):
        is_text = number == 0 or name in ("unit", "not identifiable")
        table.add_column(
            name, justify="left" if is_text else "right", overflow="fold", no_wrap=name != "not identifiable"
        )
    for row in rows:
        table.add_row(*row)
    return table
