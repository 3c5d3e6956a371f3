"""The summary that ``vtwin calibrate`` shows in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from calibrate import tables, words
from calibrate.calibration import Calibration
from calibrate.errors import MetricErrors
from calibrate.fit import Fit
from calibrate.problem import UNITS

if TYPE_CHECKING:
    from rich.table import Table


def tables_of(calibration: Calibration) -> list[Table]:
    """Return the held-out errors, what the run comes to, the coefficients where fitted, and what was left out."""
    found = [
        _errors(calibration.holdout, calibration.noise_floor, title=f"errors: {calibration.unseen}"),
        _table("", *tables.rates_table(calibration)),
    ]
    if calibration.equivalence:
        found.append(_table("", *tables.equivalence_table(calibration)))
    if calibration.fit is not None:
        found.append(_coefficients(calibration.fit))
        if compared := tables.candidate_rows(calibration.fit):
            found.append(_table("latency models compared", tables.CANDIDATE_HEAD, compared))
    if calibration.excluded:
        left_out = [(words.reason(name), f"{count:,}") for name, count in calibration.excluded.items()]
        found.append(_table("left out", ["reason", "requests"], left_out))
    return found


def _errors(errors: dict[str, MetricErrors], noise: dict[str, MetricErrors], *, title: str) -> Table:
    rows = []
    for name in tables.shown_metrics(errors):
        found, again = errors[name], noise.get(name)
        rows.append(
            (
                words.METRIC_NAMES[name],
                f"{found.n:,}",
                words.duration(found.observed["mean"]),
                words.duration(found.simulated["mean"]),
                words.percent(found.mape.value),
                words.percent_interval(found.mape),
                *([words.percent(again.mape.value if again else None)] if noise else []),
                words.percent(found.bias.value, signed=True),
                words.share(found.pearson_r.value),
            )
        )
    head = ["metric", "n", "observed", "simulated", "MAPE", "90 %", *(["noise"] if noise else [])]
    return _table(title, [*head, "bias", "R"], rows)


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
