"""``vtwin report``: the page of measured traces says what the traces say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vtwin
from observe import report_runs
from observe.measured.served_load import read_load
from tests.calibrate.known_servers import observed, workload
from traces import ClientInfo, ClosedLoop, prompt_tokens, write_trace
from traces.pages.request_figures import number_text
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
    assert re.search(r"<h1>Not within the SLO: at [\d.]+/s [\d.]+% of the requests were</h1>", page)
    assert vtwin.main(["report", str(folder), "--output", str(folder / "bare.html")]) == 0
    bare = (folder / "bare.html").read_text()
    told = re.search(r"<h1>2 loads, from ([\d.]+) to ([\d.]+) requests per second</h1>", bare)
    assert told is not None
    assert [float(rate) for rate in told.groups()] == pytest.approx([2, 8], rel=0.4)
    assert page.index('<td class="n">calm</td>') < page.index('<td class="n">busy</td>')
    shares = re.findall(r'<td class="r (pass|fail)">([\d.]+)%', page)
    assert [(verdict == "pass") == (float(share) >= 99) for verdict, share in shares] == [True, True]
    assert "<title>" in page.split('id="loads"')[1].split("</svg>")[0]  # a pointer is told the values


def test_repeated_runs_begin_with_their_mean(tmp_path: Path) -> None:
    runs = [observed(workload(40, rate=4, seed=3), noise=0.02, seed=seed) for seed in range(5)]
    for number, trace in enumerate(runs, start=1):
        begin = 1_000_000_000 * number
        write_trace(trace.with_header(start_unix_us=begin), tmp_path / f"run-{number}")
    assert vtwin.main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    found = report_runs([tmp_path])
    [load] = found.repeats.loads
    ttft = load.figures()["ttft_us.mean"]
    told = re.search(r"<h1>Mean TTFT ([\d.]+) ms ± ([\d.]+) over 5 runs</h1>", page)
    assert told is not None
    assert float(told[1]) == pytest.approx(ttft.mean / 1e3, rel=1e-3)
    assert float(told[2]) == pytest.approx((ttft.half_width or 0) / 1e3, abs=0.05)
    assert page.count("Over time of run-") == 1
    assert page.count('<svg class="chart"') == 3 + 4  # of the repeats, and of the first run's course
    assert "A dot is a run&#39;s mean" in page


def test_a_sweep_with_repeats_says_up_to_where_it_is_within_the_slo(tmp_path: Path) -> None:
    for rate in (2, 4, 8):
        for number in (1, 2):
            trace = observed(workload(40, rate=rate, seed=3), noise=0.02, seed=number)
            write_trace(trace.with_header(start_unix_us=number), tmp_path / f"rate-{rate}-run-{number}")
    found = report_runs([tmp_path])
    assert [(each.name, list(each.runs)) for each in found.repeats.loads] == [
        (f"rate-{rate}", [f"rate-{rate}-run-1", f"rate-{rate}-run-2"]) for rate in (2, 4, 8)
    ]
    worst = [max(each.quantile("ttft", 1) or 0 for each in found.loads[i : i + 2]) for i in (0, 2, 4)]
    for limit, told in (
        (worst[2] + 1, r"Within the SLO up to [\d.]+/s, the highest load"),
        (0.5, r"Not within the SLO: at [\d.]+/s 0\.0% of the requests were"),
    ):
        page = report_runs([tmp_path], slo_us={"ttft": limit}).html()
        assert re.search(f"<h1>{told}</h1>", page), page[page.index("<h1>") :][:120]
    assert "Over repeated runs" in page


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


def test_a_run_that_generates_nothing_shows_inputs_and_prompt_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = [None] * 40
    trace = observed(workload(40, rate=4, seed=3)).with_columns(
        output_tokens=nothing, content_first_time_us=nothing, first_chunk_time_us=nothing
    )
    write_trace(trace.with_header(client=ClientInfo(api="embeddings", num_inputs=3)), tmp_path / "read")
    assert vtwin.main(["report", str(tmp_path / "read")]) == 0
    page = (tmp_path / "read.report.html").read_text()
    [load] = report_runs([tmp_path / "read"]).loads
    summary = load.summary
    assert summary.request_throughput is not None
    assert summary.prompt_token_throughput is not None
    assert summary.input_throughput == pytest.approx(3 * summary.request_throughput)
    prompts = prompt_tokens(load.trace).sum() / len(load.trace)
    assert summary.prompt_token_throughput == pytest.approx(prompts * summary.request_throughput)
    assert headlines(page)[0] == number_text(summary.input_throughput)
    assert f"{number_text(summary.prompt_token_throughput)} prompt tokens/s" in page
    assert "TTFT, median" not in page
    assert "Output tokens" not in page
    assert page.count('<svg class="chart"') == 3  # E2E as a distribution and over time, requests in flight
    capsys.readouterr()
    assert vtwin.main(["trace", "info", str(tmp_path / "read")]) == 0
    said = capsys.readouterr().out
    assert "inputs/s, 3 a request" in said
    assert "prompt tokens/s" in said
    assert "output tokens/s" not in said


def test_loads_without_a_rate_are_left_out_of_a_page_of_rates(folder: Path, tmp_path: Path) -> None:
    for name in ("calm", "busy"):
        write_trace(read_load(folder / name, name=name, slo_us={}).trace, tmp_path / f"rate-{name}")
    users = observed(workload(20, rate=4, seed=5)).with_header(closed_loop=ClosedLoop(concurrency=1))
    write_trace(users, tmp_path / "alone")
    found = report_runs([tmp_path], slo_us={"ttft": 1e9})
    assert [each.name for each in found.loads] == ["rate-calm", "rate-busy"]
    assert found.left_out == ("alone",)
    assert found.warnings[0] == "left out: alone, which have no rate, as the others have"
    assert found.answer.startswith("Within the SLO up to ")
    assert report_runs([tmp_path / "alone", tmp_path / "rate-calm"]).left_out == ()
