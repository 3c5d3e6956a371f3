"""``--report`` of run and replay: the page says what the summary says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import vtwin
from traces.units import shown_time

CONFIG = """\
engine: {max_num_seqs: 8, max_num_batched_tokens: 256, num_gpu_blocks: 200, async_scheduling: false, max_model_len: 900}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 3000, beta1: 10, beta2: 20}
"""
RUN = (
    "run",
    "--num-requests",
    "60",
    "--prompt-tokens",
    "60",
    "--output-tokens",
    "20",
    "--config",
    "twin.yaml",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(CONFIG)
    return tmp_path


def page_and_summary(
    folder: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[str, dict[str, object]]:
    capsys.readouterr()
    assert vtwin.main([*RUN, *more, "--report", "page.html", "--json"]) == 0
    return (folder / "page.html").read_text(), json.loads(capsys.readouterr().out)


def test_the_page_has_the_summarys_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, summary = page_and_summary(folder, capsys, "--rate", "20", "--slo", "ttft=50ms,e2e=1s")
    for key in ("ttft_us", "tpot_us", "e2e_us"):
        values = summary[key]
        assert isinstance(values, dict)
        assert f'<dd class="value">{shown_time(values["p50"])}</dd>' in page
        assert f"<dd>p99 {shown_time(values['p99'])}</dd>" in page
    assert "The server keeps up with 20 requests per second" in page
    assert ("no request was sent" in page) is (
        int(str(summary["sending_us"])) < 0.9 * int(str(summary["duration_us"]))
    )
    assert "limit 50 ms" in page
    goodput = summary["goodput"]
    assert isinstance(goodput, dict)
    assert f"{goodput['good_frac']:.1%}" in page


def test_the_page_needs_no_other_file_and_its_pictures_have_no_gap(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, _ = page_and_summary(folder, capsys, "--rate", "20")
    assert page.count('<svg class="chart"') == 10
    assert "NaN" not in page
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL).split("TWIN.yaml")[0]
    assert re.findall(r'(?:src|href)="(?!#)', page) == []


def test_an_overloaded_run_says_so_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, _ = page_and_summary(folder, capsys, "--rate", "2000")
    assert "<h1>The server is overloaded at" in page
    assert "overloaded:" in page
    assert "Requests that wait do so for seats." in page


def test_a_cluster_s_page_has_its_instances_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, _ = page_and_summary(folder, capsys, "--rate", "20", "--instances", "2")
    assert page.count('<svg class="chart"') == 9 + 4 + 5 + 2
    assert "of 16 seats" in page
    assert "The fleet keeps up with" in page


def test_a_run_in_which_nothing_finishes_has_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([*RUN, "--rate", "5", "--prompt-tokens", "890", "--report", "page.html"]) in (0, 1)
    assert "<h1>" in (folder / "page.html").read_text()
    capsys.readouterr()
    assert vtwin.main(["run", "--concurrency", "2", *RUN[1:], "--report", "closed.html"]) == 0
    assert "requests per second</h1>" in (folder / "closed.html").read_text()


def test_a_page_of_sessions_begins_with_the_verdict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, summary = page_and_summary(folder, capsys, "--rounds", "3", "--rate", "2")
    assert summary["offered_rate_per_s"] is None
    assert f"<h1>{str(summary['verdict']).capitalize()} at " in page
