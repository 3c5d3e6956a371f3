"""What a run is told about how far it goes beyond the fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import dump_config, load_config, simulate_trace
from replay.twin.fitted.fitted_range import (
    FittedRange,
    extrapolation_note,
    range_of,
    range_of_run,
    union,
)
from tests.calibrate.known_servers import SERVER, workload
from traces import select_rows, write_trace
from traces.errors import ConfigError

RANGE = FittedRange(
    rate_per_s=(2.0, 8.0), prompt_tokens=(10.0, 900.0), output_tokens=(5.0, 120.0), concurrency=(1.0, 20.0)
)


def test_a_fitted_range_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "twin.yaml"
    config = replace(SERVER, fitted=RANGE)
    path.write_text(dump_config(config))
    assert load_config(path) == config
    assert load_config(path, latency_model=None).fitted == RANGE
    path.write_text(dump_config(SERVER))
    assert load_config(path).fitted is None


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("rate_per_s: [3]", r"rate_per_s: got \[3\], expected \[low, high\]"),
        ("rate_per_s: [3, 2]", r"rate_per_s: got \[3, 2\]"),
        ("concurrency: [1, many]", r'concurrency: got \[1, "many"\]'),
        ("rate: [1, 2]", r"rate: unknown key"),
    ],
)
def test_a_range_that_is_none_is_refused_in_one_line(tmp_path: Path, written: str, complaint: str) -> None:
    path = tmp_path / "twin.yaml"
    path.write_text(
        dump_config(SERVER).replace("latency:\n", f"latency:\n  fitted_range: {{{written}}}\n", 1)
    )
    with pytest.raises(ConfigError, match=complaint) as error:
        load_config(path)
    assert "\n" not in str(error.value)


def test_the_range_of_traces_is_from_the_lowest_to_the_highest_of_them() -> None:
    low, high = (simulate_trace(workload(200, rate=rate, seed=1), SERVER)[0] for rate in (2, 8))
    seen = range_of([low, high], [None, None])
    assert seen.rate_per_s is not None
    assert seen.rate_per_s == pytest.approx((2, 8), rel=0.2)
    prompts = low.column("input_tokens").to_numpy(np.float64)
    assert seen.prompt_tokens == pytest.approx(np.percentile(prompts, [1, 99]), rel=1e-3)
    (alone,) = {range_of([low], [None]).concurrency}
    assert seen.concurrency is not None
    assert alone is not None
    assert seen.concurrency[1] > alone[1]
    few = np.arange(len(low)) < 100
    assert range_of([low], [few]) == range_of([select_rows(low, few)], [None])


def test_requests_sent_at_once_have_no_rate() -> None:
    burst = workload(60, rate=1e5, seed=3)
    assert range_of([simulate_trace(burst, SERVER)[0]], [None]).rate_per_s is None


def test_a_run_beyond_the_fit_is_told_by_which_factor() -> None:
    run = replace(RANGE, rate_per_s=(12.0, 12.0), prompt_tokens=(10.0, 950.0), concurrency=(1.0, 61.0))
    note = extrapolation_note(RANGE, run) or ""
    assert "load by a factor 1.5 (12 requests/s, fitted up to 8)" in note
    assert "concurrency by a factor 3.0" in note
    assert "prompts" not in note  # 5 % longer
    assert extrapolation_note(RANGE, RANGE) is None
    assert extrapolation_note(None, run) is None


@pytest.mark.parametrize("command", ["replay", "run"])
def test_replay_and_run_say_it_on_stderr_and_in_the_warnings(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "twin.yaml").write_text(dump_config(replace(SERVER, fitted=RANGE)))
    write_trace(workload(150, rate=12, seed=5), tmp_path / "load")
    source = (
        [str(tmp_path / "load")]
        if command == "replay"
        else ["--rate", "12", "--num-requests", "150", "--prompt-tokens", "250", "--output-tokens", "40"]
    )
    told = ["--config", str(tmp_path / "twin.yaml"), "--output", str(tmp_path / "out"), "--json"]
    assert vtwin.main([command, *source, *told]) == 0
    out, err = capsys.readouterr()
    said = [line for line in json.loads(out)["warnings"] if "extrapolated" in line]
    assert len(said) == 1
    assert "load by a factor 1." in said[0]
    assert f"note: {said[0]}" in err


def run_of(tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: float, *more: str) -> list[str]:
    """Return the notes of extrapolation that a run at a rate tells, by a twin that was fitted up to 8 requests/s."""
    fitted = FittedRange(rate_per_s=(2.0, 8.0), concurrency=(1.0, 20.0))
    (tmp_path / "twin.yaml").write_text(dump_config(replace(SERVER, fitted=fitted)))
    asked = ["--rate", str(rate), "--num-requests", "400", "--prompt-tokens", "100", "--output-tokens", "10"]
    assert vtwin.main(["run", "--config", str(tmp_path / "twin.yaml"), *asked, *more]) == 0
    return [line for line in capsys.readouterr().err.splitlines() if "extrapolated" in line]


def test_a_fleet_is_held_against_the_fit_of_one_server_by_its_fullest_instance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = ("--instances", "4", "--routing", "round-robin")
    assert run_of(tmp_path, capsys, 28.0, *fleet) == []  # 7 requests/s each
    (line,) = run_of(tmp_path, capsys, 64.0, *fleet)
    assert "extrapolated beyond the fit, on the fullest instance: load by a factor 2." in line
    (alone,) = run_of(tmp_path, capsys, 64.0)
    assert "extrapolated beyond the fit: load by a factor 8." in alone


def test_variants_are_told_once_of_the_furthest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = run_of(tmp_path, capsys, 20.0, "--set", "engine.max_num_seqs=1,2,64")
    assert "extrapolated beyond the fit, in the furthest of 3 variants: load by a factor 2.5" in line


def test_no_more_are_said_to_run_than_a_server_has_seats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Answers that are on their way to their clients run no longer."""
    late = ("--set", "engine.max_num_seqs=30", "--set", "latency.coefficients.alpha2=400000")
    (line,) = run_of(tmp_path, capsys, 400.0, *late)
    assert "(30 running" in line


def test_the_range_of_a_fleets_run_is_that_of_each_instance_together() -> None:
    trace = simulate_trace(workload(240, rate=12, seed=1), SERVER)[0]
    names = np.array(["a", "b", "c"], dtype=object)[np.arange(len(trace)) % 3]
    fleet = trace.with_columns(instance=names)
    parts = [range_of([select_rows(trace, names == name)], [None]) for name in "abc"]
    assert range_of_run(fleet) == union(parts)
    assert range_of_run(trace) == range_of([trace], [None])
    few = trace.with_columns(instance=np.array([str(row // 2) for row in range(len(trace))], dtype=object))
    alone = range_of_run(few).rate_per_s
    assert alone is not None
    assert alone[1] == pytest.approx(12 / 120, rel=0.2)  # two requests in a row are no rate of an instance


@pytest.mark.parametrize(
    "command",
    [
        "capacity --slo ttft_p99=1s --num-requests 400",
        "tune --slo ttft_p99=1s --num-requests 6000 --set engine.max_num_seqs=32,64 --seeds 1",
        "capacity --sessions --slo ttft_p99=100s --rounds 2 --num-requests 80",
    ],
)
def test_a_search_says_that_its_answer_has_more_requests_at_once_than_the_fit(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {}
    for most in (3.0, 2000.0):
        fitted = FittedRange(concurrency=(1.0, most))
        (tmp_path / "twin.yaml").write_text(dump_config(replace(SERVER, fitted=fitted)))
        lengths = ["--prompt-tokens", "100", "--output-tokens", "10", "--config", str(tmp_path / "twin.yaml")]
        assert vtwin.main([*command.split(), *lengths, "--json"]) == 0
        out, err = capsys.readouterr()
        told[most] = [line for line in err.splitlines() if "extrapolated" in line]
        assert [line for line in json.loads(out)["warnings"] if "extrapolated" in line] == [
            line.removeprefix("note: ") for line in told[most]
        ]
    assert told[2000.0] == []
    (line,) = told[3.0]
    assert "extrapolated beyond the fit: concurrency by a factor" in line
