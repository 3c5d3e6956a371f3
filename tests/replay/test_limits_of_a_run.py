"""What a run is told about how far it goes beyond the fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from replay import dump_config, load_config, simulate_trace
from replay.twin.fitted_range import FittedRange, extrapolation_note, range_of
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
