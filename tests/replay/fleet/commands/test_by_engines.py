"""Questions that formulas answer first, answered by simulated engines; and arrivals of a recording."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

import vtwin

CDF = "[[512, 0.4], [2048, 1.0]]"
SMALL = ("--slo", "ttft_p99=500ms", "--num-requests", "2000", "--json")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("cdf.json").write_text(CDF)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert vtwin.main(["fleet", *words]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


@pytest.mark.usefixtures("folder")
def test_whatif_counts_the_engines_that_the_simulation_asks_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("whatif", "--workload", "cdf.json", "--rates", "60", "--profiles", "A100", *SMALL)
    words += ("--utilization-cap", "0.3")
    (formula,), (seen,) = (told(capsys, *words, *more)["answers"] for more in ((), ("--verify",)))  # type: ignore[misc]
    assert seen["engines"] < seen["size"]["engines"] == formula["gpus"]
    assert seen["gpus"] == seen["engines"]
    assert seen["verified"]["ttft_p99_high_us"] <= 5e5
    assert seen["cost_per_hour"] < formula["cost_per_hour"]
    low, high = seen["power_between_w"]
    assert low < seen["energy"]["power_w"] < high


@pytest.mark.usefixtures("folder")
def test_reserve_has_each_hours_simulated_engines_beside_the_formulas(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("day.txt").write_text(" ".join(["60"] * 12 + ["20"] * 12))
    words = (
        "reserve",
        "--workload",
        "cdf.json",
        "--diurnal",
        "day.txt",
        "--profile",
        "A100",
        "--burst-price",
        "3x",
    )
    day = told(capsys, *words, *SMALL, "--verify", "--utilization-cap", "0.3")
    hours = day["hours"]
    assert isinstance(hours, list)
    assert day["method"] == "simulated"
    assert hours[0]["engines"] < hours[0]["engines_by_formula"]
    assert all(each["p99_ttft_us"] <= 5e5 for each in hours)
    assert all(each["p99_ttft_low_us"] < each["p99_ttft_us"] < each["p99_ttft_high_us"] for each in hours)
    assert {each["engines"] for each in hours[12:]} == {hours[12]["engines"]}


@pytest.mark.usefixtures("folder")
def test_flex_simulates_the_slots_that_are_left(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("flex", "--workload", "cdf.json", "--rate", "60", "--profile", "A100", "--engines", "2")
    cuts = told(capsys, *words, *SMALL, "--verify")["cuts"]
    assert isinstance(cuts, list)
    assert cuts[0]["keeps_up"] is True
    assert cuts[-1]["keeps_up"] is False
    kept = [each["keeps_up"] for each in cuts]
    assert kept == sorted(kept, reverse=True)  # fewer slots do not do more
    assert cuts[0]["verified"]["request_throughput"] == pytest.approx(60, rel=0.05)


@pytest.mark.usefixtures("folder")
def test_the_power_that_flex_sheds_lies_between_the_least_and_the_most_idle_power(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By hand: P(b) = idle + (400 - idle)·r(b), and a share is shed of P at the mean number of requests, a cap of b."""
    words = ("flex", "--workload", "cdf.json", "--rate", "60", "--engines", "2", *SMALL)
    cuts = told(capsys, *words, "--profile", "A100")["cuts"]
    assert isinstance(cuts, list)
    drawn = cuts[10]["shed_w"] / 0.5 / 2  # of one engine, whose idle power is taken as 100 W
    rise = (drawn - 100) / 300
    for share, cut in ((0.5, cuts[10]), (0.1, cuts[2])):
        powers = [idle + (400 - idle) * rise for idle in (60, 110)]
        assert cut["shed_between_w"] == pytest.approx([share * 2 * each for each in powers], rel=1e-9)
        left = [(1 - share) * each - idle for each, idle in zip(powers, (60, 110), strict=True)]
        rises = [each / (400 - idle) for each, idle in zip(left, (60, 110), strict=True)]
        slots = [2 ** (4 - math.log(1 / each - 1)) for each in rises]
        assert cut["slots_between"] == [math.floor(each) for each in reversed(slots)]
        assert cut["slots_between"][0] <= cut["slots"] <= cut["slots_between"][1]
    assert cuts[10]["slots_between"][0] < cuts[10]["slots_between"][1]
    assert cuts[10]["lasts_between_s"][0] < cuts[10]["lasts_between_s"][1]
    assert vtwin.main(["fleet", *words[:-1], "--profile", "A100"]) == 0
    row = next(each for each in capsys.readouterr().out.splitlines() if each.split()[:1] == ["50%"])
    assert "{0} ({1[0]} to {1[1]})".format(cuts[10]["slots"], cuts[10]["slots_between"]) in row


@pytest.mark.usefixtures("folder")
def test_flex_of_a_profile_of_ones_own_has_no_range(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.yaml").write_text("{w_s: 0.008, h_s: 0.0006, idle_w: 80, nominal_w: 400}")
    words = ("flex", "--workload", "cdf.json", "--rate", "60", "--engines", "2", *SMALL)
    cuts = told(capsys, *words, "--profile", "mine.yaml")["cuts"]
    assert isinstance(cuts, list)
    assert {each["shed_between_w"] for each in cuts} == {None}
    assert vtwin.main(["fleet", *words[:-1], "--profile", "mine.yaml"]) == 0
    assert "brackets" not in capsys.readouterr().out


def recorded(path: Path, *, busy_s: float, number: int = 2000) -> None:
    """Write a recording of a hundred seconds whose requests all come evenly in the first so many of them."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        for i in range(number):
            at = i * busy_s / number if i < number - 1 else 100.0
            rows.writerow([f"2023-11-16 18:{int(at // 60):02d}:{at % 60:010.7f}", 400 + i % 7, 100])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "rate", "limit"),
    [("size", "120", "100ms"), ("pools", "120", "100ms"), ("disagg", "40", "500ms")],
)
def test_a_recordings_busy_hours_need_more_engines_than_its_mean_rate(
    command: str, rate: str, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(Path("day.csv"), busy_s=25.0)
    Path("pools.yaml").write_text("pools: [{name: all, profile: A100}]")
    words = (command, *(("pools.yaml",) if command == "pools" else ("--profile", "A100")))
    words += ("--workload", "day.csv", "--rate", rate, "--slo", f"ttft_p99={limit}", *SMALL[2:])
    engines = []
    for arrival in ("poisson", "trace"):
        found = told(capsys, *words, "--arrival", arrival)
        if command == "disagg":
            recommended = found["recommended"]
            assert isinstance(recommended, dict)
            engines.append(recommended["prefill"] + recommended["decode"])
        else:
            (pool,) = found["pools"]  # type: ignore[misc]
            engines.append(pool["engines"])
    assert engines[1] > engines[0]
