"""The summary that ``vtwin calibrate`` shows in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from calibrate import number_format
from calibrate.compare.metric_errors import MetricErrors
from calibrate.findings import Calibration
from calibrate.fit.result import Fit
from calibrate.report import report_tables
from traces.strict.escape import terminal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPED_WIDTH = 10_000
"""A pipe or a file has no width: no line is wrapped and no column dropped."""

_WRAPPED_WIDTH = 20
"""Least width of a text column that wraps; below it other columns move to another block."""


def console_of(*, stderr: bool) -> Console:
    """Return a console as wide as the terminal, or without a width where there is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else PIPED_WIDTH)


def print_table(console: Console, table: Table) -> None:
    """Print a table with every figure whole: columns that do not fit are put into a further block below it."""
    for block in _blocks(console, table):
        console.print(block)


def _blocks(console: Console, table: Table) -> list[Table]:
    """Return the table as blocks that fit, each with the first column; the title stands once.

    A row without cells in a further block is left out of it.
    """
    label, *left = table.columns
    blocks: list[Table] = []
    while True:
        block = copy(table)
        block.columns = [label, *left]
        while len(block.columns) > 2 and _natural_width(console, block) > console.width:
            block.columns.pop()
        left = left[len(block.columns) - 1 :]
        if blocks:
            _leave_out_empty_rows(block)
        block.title = None if blocks else table.title
        blocks.append(block)
        if not left:
            return blocks


def _leave_out_empty_rows(block: Table) -> None:
    """Leave out the rows of which all cells but the first are empty."""
    cells = [list(column.cells) for column in block.columns]
    kept = [row for row in range(len(block.rows)) if any(str(column[row]) for column in cells[1:])]
    block.columns = [
        replace(column, _cells=[own[row] for row in kept])
        for column, own in zip(block.columns, cells, strict=True)
    ]
    block.rows = [block.rows[row] for row in kept]


def _natural_width(console: Console, table: Table) -> int:
    """Return the width at which no cell is cut, text that may wrap taken as ``_WRAPPED_WIDTH``."""
    from rich.measure import Measurement

    wrapping = [column for column in table.columns if not column.no_wrap]
    title, table.title = table.title, None
    for column in wrapping:
        column.max_width = _WRAPPED_WIDTH
    width = Measurement.get(console, console.options.update(width=PIPED_WIDTH), table).maximum
    for column in wrapping:
        column.max_width = None
    table.title = title
    return width


def tables_of(calibration: Calibration) -> list[Table]:
    """Return the first screen's tables: held-out errors, what was asked for, and the requests left out.

    Rates, coefficients and the latency models compared are in the report.
    """
    title = f"errors: {calibration.unseen}"
    found = [_errors(calibration.holdout, calibration.noise_floor, title=title)]
    if calibration.equivalence:
        found.append(_table("", *report_tables.equivalence_table(calibration)))
    if calibration.excluded:
        left_out = [
            (number_format.reason(name), f"{count:,}") for name, count in calibration.excluded.items()
        ]
        found.append(_table("left out", ["reason", "requests"], left_out))
    return found


def fit_line(fit: Fit) -> str:
    """Return the fitted coefficients in a line; ``report.md`` has their intervals, and what the traces cannot tell."""
    cells = [report_tables.coefficient_cells(each) for each in fit.coefficients if each.fitted]
    said = ", ".join(f"{name} {value}" for name, value, *_ in cells)
    return f"fitted in {fit.seconds:.1f} s, {fit.model}: {said}"


def _errors(errors: dict[str, MetricErrors], noise: dict[str, MetricErrors], *, title: str) -> Table:
    rows = []
    shown = report_tables.shown_metrics(errors)
    unit, means = number_format.in_one_unit(
        [errors[name].observed["mean"] for name in shown], [errors[name].simulated["mean"] for name in shown]
    )
    for name, both in zip(shown, zip(*means, strict=True), strict=True):
        facts = {fact.key: fact for fact in report_tables.metric_facts(errors, noise, name)}
        beside = [fact for key, fact in facts.items() if key in ("expected", "noise")]
        rows.append(
            (
                *(facts["name"].text, facts["n"].text, *both),
                *(facts[key].text for key in ("mean", "p99", "mape")),
                *(facts["mape"].aside or number_format.NONE, *(fact.text for fact in beside)),
                *(facts["bias"].text, facts["pearson_r"].text),
            )
        )
    names = [(fact.term or "").removesuffix(" floor") for fact in beside]
    head = [
        "metric",
        "n",
        *report_tables.sides(unit)[:2],
        "error",
        "p99 error",
        "MAPE",
        "90 %",
        *names,
        "bias per request",
        "R",
    ]
    return _table(title, head, rows)


def headline(calibration: Calibration) -> str:
    """Return the result in a line: errors per request and of the mean; if all runs were overloaded, of throughput."""
    held_out = calibration.held_out
    name = next((name for name in ("e2e_us", "ttft_us", "tpot_us") if name in held_out.errors), None)
    if held_out.of_saturated or name is None:
        rate = held_out.capacity.get("output_token_throughput")
        off = number_format.percent(None if rate is None else rate.rel_error.value, signed=True)
        return f"held-out error of the served output tokens/s: {off} ({calibration.unseen})"
    found = held_out.errors[name]
    low_high = number_format.percent_interval(found.mape)
    interval = "" if low_high == number_format.NONE else f" ({calibration.bootstrap.level:.0%} CI {low_high})"
    metric, mean = number_format.METRIC_NAMES[name], found.rel_error["mean"].value
    which = "" if calibration.fit is None else "held-out "
    others = [
        f"{number_format.METRIC_NAMES[other]} {number_format.percent(held_out.errors[other].mape.value)}, "
        f"mean {number_format.percent(held_out.errors[other].rel_error['mean'].value, signed=True)}"
        for other in ("ttft_us", "tpot_us")
        if other in held_out.errors and other != name
    ]
    return (
        "; ".join(
            [
                f"{which}{metric} error: {number_format.percent(found.mape.value)} per request{interval}",
                f"mean {metric} {number_format.percent(mean, signed=True)}",
                *others,
            ]
        )
        + f" ({calibration.unseen})"
    )


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table without frames, its numbers to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(terminal(title), style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for number, name in enumerate(head):
        is_text = number == 0 or name in ("unit", "not identifiable")
        table.add_column(
            name, justify="left" if is_text else "right", overflow="fold", no_wrap=name != "not identifiable"
        )
    for row in rows:
        table.add_row(*(Text(terminal(cell)) for cell in row))
    return table
