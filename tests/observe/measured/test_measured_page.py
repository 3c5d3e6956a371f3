"""``vtwin report``: the page of measured traces says what the traces say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vtwin
from observe.measured.served_load import read_load
from tests.calibrate.known_servers import observed, workload
from traces import ClientInfo, write_trace
from traces.units import shown_time


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measured")
    for name, rate in (("busy", 8), ("calm", 2)):
        trace = observed(workload(40, rate=rate, seed=3))
        client = ClientInfo(limited=True, reason="event-loop lag") if name == "busy" else None
        write_trace(trace.with_header(client=client), folder / name)
    return folder


def headlines(page: str) -> list[str]:
    return re.findall(r'<dd class="value">([^<]*)</dd>', page)


def test_the_page_of_a_run_has_its_latencies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["report", str(folder / "calm"), "--slo", "ttft=1ms,e2e=100s"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(folder / "calm.report.html")
    page = (folder / "calm.report.html").read_text()
    load = read_load(folder / "calm", name="calm", slo_us={})
    medians = [load.quantile(name, 0.5) for name in ("ttft", "tpot", "e2e")]
    assert headlines(page)[1:] == [*(shown_time(value or 0) for value in medians), "0.0%"]
    assert "limit 1 ms" in page
    assert page.count('<svg class="chart"') == 7
    assert re.findall(r'(?:src|href)="(?!#)|<script', page) == []


def test_several_loads_stand_side_by_side_by_their_rates(folder: Path) -> None:
    out = folder / "all.html"
    assert vtwin.main(["report", str(folder), "--slo", "ttft=60ms", "--output", str(out)]) == 0
    page = out.read_text()
    told = re.search(r"<h1>2 loads, from ([\d.]+) to ([\d.]+) requests per second</h1>", page)
    assert told is not None
    assert [float(rate) for rate in told.groups()] == pytest.approx([2, 8], rel=0.4)
    assert page.index('<td class="l">calm</td>') < page.index('<td class="l">busy</td>')
    shares = re.findall(r'<td class="r (pass|fail)">([\d.]+)%', page)
    assert [(verdict == "pass") == (float(share) >= 99) for verdict, share in shares] == [True, True]
    assert "<title>" in page.split('id="loads"')[1].split("</svg>")[0]  # a pointer is told the values


def test_a_client_that_did_not_keep_up_is_told_before_any_number(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "busy.html"
    assert vtwin.main(["report", str(folder / "busy"), "--output", str(out)]) == 0
    assert "warning: busy: the client did not keep up (event-loop lag)" in capsys.readouterr().err
    page = out.read_text()
    assert page.index("did not keep up") < page.index("Output tokens/s")


def test_what_is_no_measured_trace_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(workload(5, rate=2, seed=1), tmp_path / "plan")
    (tmp_path / "empty").mkdir()
    for path, said in (
        (tmp_path / "plan", "got a trace without an answered request"),
        (tmp_path / "empty", "got a folder without a trace"),
        (tmp_path / "none", "none"),
    ):
        assert vtwin.main(["report", str(path)]) == 3
        lines = capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1
        assert said in lines[0]


def test_a_measured_run_that_misses_its_slo_can_fail_a_build(folder: Path) -> None:
    asked = ["report", str(folder / "calm"), "--slo"]
    assert vtwin.main([*asked, "ttft=1ms", "--strict-slo"]) == 1
    assert vtwin.main([*asked, "e2e=1000s", "--strict-slo"]) == 0
    assert vtwin.main([*asked, "ttft=1ms", "--fail-below", "95%"]) == 1
    assert vtwin.main(["report", str(folder / "calm"), "--strict-slo"]) == 2


@pytest.mark.parametrize("command", [["report"], ["compare"], ["fleet"], ["fleet", "size"], ["run"]])
def test_every_command_has_its_whole_help_under_one_name(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main([*command, "--help-all"]) == 0
    assert "Usage: vtwin" in capsys.readouterr().out
