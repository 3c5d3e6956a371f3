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
    """Return the table as blocks that fit, each with the first column; title and caption stand once.

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
        block.caption = None if left else table.caption
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
    title, caption = table.title, table.caption
    table.title = table.caption = None
    for column in wrapping:
        column.max_width = _WRAPPED_WIDTH
    width = Measurement.get(console, console.options.update(width=PIPED_WIDTH), table).maximum
    for column in wrapping:
        column.max_width = None
    table.title, table.caption = title, caption
    return width


def tables_of(calibration: Calibration) -> list[Table]:
    """Return the tables: held-out errors, rates, the coefficients where fitted, and the requests left out."""
    found = [
        _errors(
            calibration.holdout,
            calibration.noise_floor,
            title=f"errors: {calibration.unseen}",
            caption=report_tables.reading_of(calibration),
        ),
        _table("", *report_tables.rates_table(calibration)),
    ]
    if calibration.equivalence:
        found.append(_table("", *report_tables.equivalence_table(calibration)))
    if calibration.fit is not None:
        found.append(_coefficients(calibration.fit))
        if compared := report_tables.candidate_rows(calibration.fit):
            found.append(
                _table(
                    "latency models compared",
                    report_tables.CANDIDATE_HEAD,
                    compared,
                    caption=f"chosen: {report_tables.choice_text(calibration.fit)}",
                )
            )
        if beside := report_tables.blackbox_rows(calibration.fit):
            found.append(_table("blackbox, not chosen", ("", *report_tables.BLACKBOX_HEAD[1:]), beside))
    if calibration.excluded:
        left_out = [
            (number_format.reason(name), f"{count:,}") for name, count in calibration.excluded.items()
        ]
        found.append(_table("left out", ["reason", "requests"], left_out))
    return found


def _errors(
    errors: dict[str, MetricErrors], noise: dict[str, MetricErrors], *, title: str, caption: str
) -> Table:
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
                *(facts["name"].text, facts["n"].text, *both, facts["mean"].text, facts["mape"].text),
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
        "MAPE",
        "90 %",
        *names,
        "bias per request",
        "R",
    ]
    return _table(title, head, rows, caption=caption)


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


def _coefficients(fit: Fit) -> Table:
    rows = [
        [*report_tables.coefficient_cells(each), "" if each.identifiable else each.reason or ""]
        for each in fit.coefficients
    ]
    return _table(
        f"coefficients, fitted in {fit.seconds:.1f} s",
        ["", "value", "90 %", "unit", "not identifiable"],
        rows,
    )


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str | None = None
) -> Table:
    """Return a table without frames, its numbers to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(terminal(title), style="bold") if title else None,
        caption=caption,
        title_justify="left",
        caption_justify="left",
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
