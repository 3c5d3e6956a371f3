"""``vtwin fleet reserve``: hours by formula, three ways to pay, table, JSON and page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    (tmp_path / "cdf.json").write_text("[[512, 0.4], [2048, 1.0]]")
    return [
        *("fleet", "reserve", "--workload", str(tmp_path / "cdf.json"), "--slo", "ttft_p99=1s"),
        *("--profile", "A100"),
    ]


def test_the_cheapest_way_is_no_dearer_than_either_extreme(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "day.json").write_text(json.dumps([20.0] * 18 + [200.0] * 6))
    more = ["--diurnal", str(tmp_path / "day.json"), "--burst-price", "2x"]
    page = tmp_path / "page.html"
    assert vtwin.main([*asked, *more, "--report", str(page), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    low, high = told["hours"][0]["engines"], told["hours"][-1]["engines"]
    assert low < high
    cheapest, both = told["ways"]["cheapest"], told["ways"]
    assert (cheapest["reserved"], cheapest["burst_hours"]) == (low, 6 * (high - low))
    assert both["all_reserved"]["cost_per_year"] == pytest.approx(high * 2.21 * 8766)
    assert cheapest["cost_per_year"] < both["all_reserved"]["cost_per_year"]
    assert cheapest["cost_per_year"] < both["all_burst"]["cost_per_year"]
    assert "Three ways to pay" in page.read_text()
    assert vtwin.main([*asked, *more]) == 0
    assert "all burst" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--diurnal", "40:200", "--burst-price", "2x"], "expected PEAK:TROUGH"),
        (["--diurnal", "nowhere.json", "--burst-price", "2x"], "a file that can be read"),
        (["--diurnal", "200:40", "--burst-price", "cheap"], "--burst-price: got 'cheap'"),
    ],
)
def test_a_mistake_is_one_line(
    asked: list[str], capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert vtwin.main([*asked, *options]) == 2
    assert complaint in capsys.readouterr().err.strip().splitlines()[-1]


def test_an_hour_that_nothing_keeps_is_told_and_the_exit_code_is_1(
    asked: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("replay.fleet.check.fewest_engines", "replay.fleet.plans.size"):
        monkeypatch.setattr(f"{module}.keeps", lambda *_: False)
    monkeypatch.setattr("replay.fleet.check.engine_search.MOST_TIMES", 1)
    more = ["--diurnal", "20:20", "--burst-price", "2x", "--verify", "--num-requests", "1000"]
    assert vtwin.main([*asked, *more]) == 1
    shown = capsys.readouterr().out
    assert "hour 23, 20 requests/s: no number of engines that was tried meets the SLO in simulation" in shown
    assert vtwin.main([*asked, *more, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["met"] is False
