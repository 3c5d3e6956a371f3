"""The terminal's tables: a figure is whole or not there, whatever the width."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from calibrate.report.terminal import PIPED_WIDTH, _table, console_of, print_table

HEAD = ["metric", "n", "observed", "simulated", "error", "MAPE", "90 %", "noise", "bias per request", "R"]
ROW = [
    "E2E",
    "120",
    "593.1 ms",
    "612.4 ms",
    "+12.6 %",
    "14.2 %",
    "11.3 … 17.9 %",
    "2.1 %",
    "+1.25 %",
    "0.987",
]


def printed(width: int, head: list[str], row: list[str]) -> str:
    stream = io.StringIO()
    print_table(Console(file=stream, width=width, highlight=False), _table("errors", head, [row]))
    return stream.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 120, PIPED_WIDTH])
def test_every_figure_is_whole_and_columns_that_do_not_fit_stand_below(width: int) -> None:
    lines = printed(width, HEAD, ROW).splitlines()
    blocks = [(line, lines[i + 2]) for i, line in enumerate(lines) if line.strip().startswith(HEAD[0])]
    assert " ".join(" ".join(head.split()[1:]) for head, _ in blocks).split() == " ".join(HEAD[1:]).split()
    assert " ".join(" ".join(row.split()[1:]) for _, row in blocks).split() == " ".join(ROW[1:]).split()
    assert all(row.strip().startswith("E2E ") for _, row in blocks)
    assert max(map(len, lines)) <= width
    assert sum(line.strip() == "errors" for line in lines) == 1
    assert (len(blocks) == 1) is (width >= 120)


def test_a_further_block_leaves_out_the_rows_that_are_empty_there() -> None:
    stream = io.StringIO()
    rows = [["one", "1" * 30, ""], ["two", "2" * 30, "chosen " * 4]]
    table = _table("", ["model", "value", "mark"], rows)
    print_table(Console(file=stream, width=50, highlight=False), table)
    lines = [line.split() for line in stream.getvalue().splitlines()]
    assert [line[0] for line in lines if line and line[0] in ("one", "two")] == ["one", "two", "two"]
    assert ["two", *["chosen"] * 4] in lines


@pytest.mark.parametrize("width", [60, 80])
def test_a_reason_wraps_before_a_figure_is_cut(width: int) -> None:
    head = ["", "value", "90 %", "unit", "not identifiable"]
    reason = "no request was long enough to tell it from the constant part of a step"
    text = printed(width, head, ["beta1", "123.456789", "101.2 … 145.7", "µs/token", reason])
    assert "123.456789" in text
    assert "101.2 … 145.7" in text
    assert all(word in text for word in reason.split())


def test_a_pipe_has_no_width() -> None:
    assert console_of(stderr=False).width == PIPED_WIDTH
