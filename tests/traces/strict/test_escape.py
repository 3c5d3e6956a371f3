"""One nasty text through every output."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import vtwin
from calibrate.ci.outputs import annotations_of, junit_of, summary_of
from calibrate.gate.verdict import verdict_of
from calibrate.report import terminal as terminal_tables
from traces.files.read import read_trace
from traces.files.write import write_trace
from traces.strict import escape
from traces.workload import trace_from_options
from traces.workload.options import WorkloadOptions

NASTY = "a\n::error::b\r\x1b[31m\u2028<img src=x onerror=y>![i](http://x) |\x00\ud800 &lt; [red]50\u00a0%"
BREAKS = {"\r", "\x1b", "\u2028", "\x00", "\ud800"}


def test_terminal_text_is_one_printable_line_and_keeps_the_rest() -> None:
    assert escape.terminal("E2E: 20.0\u00a0% ≤ 5 ms") == "E2E: 20.0\u00a0% ≤ 5 ms"
    assert escape.terminal(NASTY).startswith("a ::error::b \\x1b[31m <img")
    assert len(escape.terminal(NASTY).splitlines()) == 1


def test_markdown_text_brings_no_html_no_link_and_no_cell() -> None:
    assert escape.markdown("x < y | [a](b) &lt; R&D `c`") == "x &lt; y \\| [a]\\(b) &amp;lt; R&D `c`"


def test_a_nasty_obstacle_is_one_annotation_one_list_item_and_one_attribute() -> None:
    verdict = replace(verdict_of([], [NASTY]), unknown_flags=(NASTY,))
    (line,) = annotations_of(verdict)
    assert len(line.splitlines()) == 1
    summary = summary_of(verdict, {})
    assert "\n::" not in summary
    assert "<img" not in summary
    assert "](" not in summary
    said = ET.fromstring(junit_of(verdict))[0][0][0].get("message")  # noqa: S314 - our own
    assert said is not None
    for text in (line, summary, said):
        assert not BREAKS & set(text)


def test_a_title_cannot_bring_properties_or_lines() -> None:
    assert escape.annotation_property("a,b=c:d%\n::error::") == "a%2Cb=c%3Ad%25%0A%3A%3Aerror%3A%3A"


def test_a_table_on_the_terminal_shows_text_as_it_is() -> None:
    out = io.StringIO()
    Console(file=out, width=500).print(terminal_tables._table(NASTY, ["x"], [[NASTY]]))
    assert out.getvalue().count("[red]50") == 2
    assert not BREAKS & set(out.getvalue())
    assert "\n::" not in out.getvalue()


def test_trace_info_shows_a_nasty_note_as_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = trace_from_options(WorkloadOptions(rate=1, num_requests=2))
    write_trace(trace, tmp_path / "t")
    table = tmp_path / "t.csv"
    names, *rows = table.read_text().splitlines()
    table.write_text("\n".join([f"{names},x\x1b[31m\u2028::error::b", *(f"{row},1" for row in rows)]) + "\n")
    assert read_trace(tmp_path / "t").requests.shape[0] == 2
    assert vtwin.main(["trace", "info", str(tmp_path / "t")]) == 0
    out = capsys.readouterr().out
    assert "x\\x1b[31m ::error::b" in out
    assert not BREAKS & set(out)
