"""Stages and ramps, and a recorded trace at another speed or with shorter requests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from traces import ConfigError, Header, Trace, TraceError, check_trace, make_trace, write_trace
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
        ({"stages": "1:1s", "rate": 2.0}, "--rate: cannot be combined with --stages"),
        ({"stages": "1:1s", "duration": 2.0}, "--duration: cannot be combined with --stages"),
        ({"rate": 1.0, "speed": 2.0}, "--speed: needs --trace"),
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


HASHED = {
    "request_id": ["a", "b"],
    "arrival_time_us": [0, 1000],
    "input_tokens": [1024, 1300],
    "output_tokens": [10, 1],
    "prefix_hashes": ["x y", "x y z"],
}


def sent_again(tmp_path: Path, columns: dict[str, list[object]], **options: float) -> Trace:
    header = Header(
        mode="generated", tool="vtwin", hash_block_size=512 if "prefix_hashes" in columns else None
    )
    write_trace(make_trace(header, columns), tmp_path / "t")
    trace = trace_from_options(WorkloadOptions(trace=tmp_path / "t", **options))  # type: ignore[arg-type]
    write_trace(trace, tmp_path / "out")
    assert check_trace(tmp_path / "out") == []
    return trace


def test_a_traces_lengths_scale_and_what_is_shared_stays_shared_in_proportion(tmp_path: Path) -> None:
    trace = sent_again(tmp_path, HASHED, prompt_scale=0.5, output_scale=0.3)
    assert list(trace.column("input_tokens")) == [512, 650]
    assert list(trace.column("output_tokens")) == [3, 1]
    assert trace.header.hash_block_size == 256
    assert list(trace.column("prefix_hashes")) == ["x y", "x y z"]
    columns = {
        "request_id": ["a", "b"],
        "arrival_time_us": [0, 1],
        "input_tokens": [100, 1],
        "prefix_length": [51, 0],
        "prefix_group": ["g", None],
        "output_tokens": [1, 1],
    }
    longer = sent_again(tmp_path, columns, prompt_scale=3.0)
    assert list(longer.column("prefix_length")) == [153, 0]
    assert list(longer.column("input_tokens")) == [300, 3]
    shorter = sent_again(tmp_path, columns, prompt_scale=0.01)
    assert list(shorter.column("input_tokens") + shorter.column("prefix_length")) == [2, 1]


def test_a_clipped_prompt_loses_the_hashes_that_it_no_longer_reaches(tmp_path: Path) -> None:
    trace = sent_again(tmp_path, HASHED, prompt_tokens_max=600)
    assert list(trace.column("input_tokens")) == [600, 600]
    assert list(trace.column("prefix_hashes")) == ["x y", "x y"]
    scaled_first = sent_again(tmp_path, HASHED, prompt_scale=2.0, prompt_tokens_max=1024)
    assert list(scaled_first.column("prefix_hashes")) == ["x", "x"]


@pytest.mark.parametrize("option", ["prompt_scale", "output_scale"])
def test_scales_need_a_trace_and_a_number_above_0(tmp_path: Path, option: str) -> None:
    name = "--" + option.replace("_", "-")
    with pytest.raises(ConfigError, match=f"{name}: needs --trace"):
        trace_from_options(WorkloadOptions(rate=1.0, **{option: 2.0}))  # type: ignore[arg-type]
    for value, got in ((0.0, "0"), (float("inf"), "inf"), (float("nan"), "nan")):
        with pytest.raises(ConfigError, match=f"{name}: got {got}"):
            trace_from_options(WorkloadOptions(trace=tmp_path / "t", **{option: value}))  # type: ignore[arg-type]


def test_a_public_file_is_sent_as_it_is_and_scaled(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.9951690,396,109\n"
    )
    trace = trace_from_options(
        WorkloadOptions(trace=azure, speed=2.0, prompt_scale=0.5, output_tokens_max=50)
    )
    assert list(trace.column("arrival_time_us")) == [0, 2_157_290]
    assert list(trace.column("input_tokens")) == [187, 198]
    assert list(trace.column("output_tokens")) == [44, 50]
    mooncake = tmp_path / "trace.jsonl"
    mooncake.write_text('{"timestamp": 5, "input_length": 600, "output_length": 9, "hash_ids": [1, 2]}\n')
    trace = trace_from_options(WorkloadOptions(trace=mooncake, prompt_tokens_max=500))
    assert list(trace.column("prefix_hashes")) == ["1"]
    burst = tmp_path / "burst.csv"
    burst.write_text(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,m,3,2,5,API log\n"
    )
    assert list(trace_from_options(WorkloadOptions(trace=burst)).column("output_tokens")) == [2]
    with pytest.raises(TraceError, match=r"no\.jsonl"):
        trace_from_options(WorkloadOptions(trace=tmp_path / "no.jsonl"))
