"""Stages and ramps, and a recorded trace at another speed or with shorter requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from traces import ConfigError, Header, make_trace, write_trace
from traces.workload import WorkloadOptions, trace_from_options
from traces.workload.stages import stage_windows


def test_a_stage_is_one_window_and_a_ramp_rises_evenly_between_its_ends() -> None:
    flat, *ramp = stage_windows("5:60s,5-25:2m")
    assert (flat.start_us, flat.end_us, flat.trace_rate_per_s) == (0, 60_000_000, 5)
    assert ramp[0].start_us == 60_000_000
    assert ramp[-1].end_us == 180_000_000
    rates = np.array([window.trace_rate_per_s for window in ramp])
    assert np.diff(rates) == pytest.approx(0.2)
    assert rates.mean() == pytest.approx(15)


@pytest.mark.parametrize("text", ["", "5", "5:", "x:3s", "5:0", "-5:3s", "inf:3s", "5-:3s", "0:3s", "5:3q"])
def test_stages_that_are_none_are_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigError, match="--stages: got"):
        stage_windows(text)


def test_requests_come_as_the_stages_say() -> None:
    trace = trace_from_options(WorkloadOptions(stages="100:10s,100-300:20s,50:10s", seed=1))
    due = trace.column("arrival_time_us").to_numpy(dtype=np.float64) / 1e6
    assert due.max() <= 40
    counts = np.array([((due >= a) & (due < b)).sum() for a, b in [(0, 10), (10, 20), (20, 30), (30, 40)]])
    expected = np.array([1000, 1500, 2500, 500])
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stages": "1:1s", "rate": 2.0}, "--rate: got it beside --stages"),
        ({"stages": "1:1s", "duration": 2.0}, "--duration: got it beside --stages"),
        ({"rate": 1.0, "speed": 2.0}, "--speed: got it without --trace"),
    ],
)
def test_what_does_not_go_with_stages_or_speed_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        trace_from_options(WorkloadOptions(**given))  # type: ignore[arg-type]


def test_a_trace_can_be_sent_faster_and_clipped(tmp_path: Path) -> None:
    columns = {
        "request_id": ["a", "b", "c"],
        "arrival_time_us": [0, 1000, 3001],
        "input_tokens": [10, 500, 20],
        "prefix_length": [0, 0, 90],
        "prefix_group": [None, None, "g"],
        "output_tokens": [5, 50, 7],
    }
    write_trace(make_trace(Header(mode="generated", tool="vtwin"), columns), tmp_path / "t")
    options = WorkloadOptions(trace=tmp_path / "t", speed=2.0, prompt_tokens_max=100, output_tokens_max=6)
    trace = trace_from_options(options)
    assert list(trace.column("arrival_time_us")) == [0, 500, 1500]
    assert list(trace.column("input_tokens")) == [10, 100, 10]
    assert list(trace.column("prefix_length")) == [0, 0, 90]
    assert list(trace.column("output_tokens")) == [5, 6, 6]
