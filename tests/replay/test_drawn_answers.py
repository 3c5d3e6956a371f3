"""What the door answers draws itself in a notebook: the command's rows and the page's own figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import calibrate
import replay
import vtwin
from tests.replay.simulation.test_simulated_run import ASKED, FOUR, LOAD
from tests.twins import FOUR_THOUSAND_BLOCKS
from traces.facts import NotebookAnswer
from traces.workload import WorkloadOptions, trace_from_options

DRAWN = WorkloadOptions(num_requests=300, prompt_tokens=600, output_tokens=60, seed=1)
SESSIONS = WorkloadOptions(num_requests=60, rounds=3, prompt_tokens=600, output_tokens=60, seed=1)
LENGTHS = WorkloadOptions(prompt_tokens=600, output_tokens=60)
FEW = replay.RolloutSettings(prompts=2, samples=2, batches=1, oversubscriptions=())
SLO = "ttft_p99=500ms"
QUESTIONS: dict[str, tuple[Callable[[], NotebookAnswer], str, int]] = {
    "run": (lambda: replay.run(trace_from_options(LOAD), "one.yaml"), "TTFT, ms", 10),
    "cluster": (lambda: replay.run(trace_from_options(LOAD), "four.yaml"), "TTFT, ms", 14),
    "capacity": (
        lambda: replay.find_capacity(DRAWN, "one.yaml", SLO, seeds=1, with_binding=False),
        "within",
        4,
    ),
    "sessions": (lambda: replay.find_sessions(SESSIONS, "one.yaml", SLO), "rounds/s", 0),
    "tune": (
        lambda: replay.tune(DRAWN, "one.yaml", SLO, settings=["engine.max_num_seqs=16,64"], keep=1, seeds=1),
        "as it is",
        0,
    ),
    "fleet": (lambda: replay.plan_fleet(trace_from_options(LOAD), 100, SLO, "A100", verify=False), "pool", 1),
    "rollouts": (lambda: replay.run_rollouts(LENGTHS, "one.yaml", FEW), "per N x G", 0),
}
"""The question, a word of the command's rows, and the least number of figures."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(FOUR_THOUSAND_BLOCKS)
    Path("four.yaml").write_text(FOUR)
    return tmp_path


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.usefixtures("here")
def test_an_answer_shows_its_verdict_its_rows_and_its_figures(name: str) -> None:
    ask, word, least = QUESTIONS[name]
    found = ask()
    html = found._repr_html_()
    verdict = re.findall(r'<p class="verdict">(.+)</p>', html)
    assert len(verdict) == 1
    assert word in html
    assert html.count('<svg class="chart"') >= least
    assert "NaN" not in html
    assert len(html) < 200_000
    assert "\n" not in repr(found)
    assert len(repr(found)) < 200


@pytest.mark.parametrize("twin", ["one.yaml", "four.yaml"])
@pytest.mark.usefixtures("here")
def test_a_run_s_figures_are_those_of_its_page(twin: str) -> None:
    assert vtwin.main(["run", "--config", twin, *ASKED, "--report", "page.html"]) == 0
    page = Path("page.html").read_text()
    html = replay.run(trace_from_options(LOAD), twin)._repr_html_()
    drawn = re.findall(r"<svg class=\"chart\".*?</svg>", html, flags=re.DOTALL)
    assert [each for each in drawn if each not in page] == []
    assert re.findall(r"<h1>(.*)</h1>", page) == re.findall(r'<p class="verdict">(.*)</p>', html)


@pytest.mark.usefixtures("here")
def test_traces_and_pairs_are_told_in_a_line() -> None:
    asked = trace_from_options(LOAD)
    assert repr(asked) == "<Trace: 200 requests, generated>"
    simulated = replay.run(asked, "one.yaml").trace
    assert repr(calibrate.pair_traces(simulated, simulated)) == "<Pairs: 200 requests, 0 left out>"


@pytest.mark.usefixtures("here")
def test_a_twin_shows_its_file_with_the_defaults_filled_in() -> None:
    html = replay.load_config("four.yaml")._repr_html_()
    assert '<p class="verdict">blackbox, a cluster</p>' in html
    assert "max_num_seqs: 64" in html
    assert "alpha0: 500" in html


@pytest.mark.usefixtures("here")
def test_sessions_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    options = [
        "--num-requests",
        "60",
        "--rounds",
        "3",
        "--prompt-tokens",
        "600",
        "--output-tokens",
        "60",
        "--seed",
        "1",
    ]
    assert vtwin.main(["capacity", "--sessions", "--config", "one.yaml", "--slo", SLO, *options]) == 0
    found = replay.find_sessions(SESSIONS, "one.yaml", SLO)
    assert f"{found.number:,} sessions at once" in capsys.readouterr().out
    assert str(found).startswith(f"{found.number:,} sessions at once")


@pytest.mark.usefixtures("here")
def test_a_very_long_run_is_shown_without_a_second_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replay.simulation.simulated_run.MOST_LOOKED_AT", 10)
    run = replay.run(trace_from_options(LOAD), "one.yaml")
    html = run._repr_html_()
    assert "usage" not in vars(run)
    assert "<svg" not in html
    assert "TTFT, ms" in html
