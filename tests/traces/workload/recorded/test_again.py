"""A recorded trace is a workload again: what was asked and how long it was, without what else came of it."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from traces.errors import ConfigError, TraceError
from traces.files.write import write_trace
from traces.header import ClosedLoop, Header
from traces.trace import Trace, make_trace
from traces.workload import WorkloadOptions, trace_from_options, workload_of
from traces.workload.recorded.scaling import scale_lengths

S = 1_000_000


def observed(**columns: object) -> Trace:
    """Four requests, one a second, as an observation leaves them."""
    given: dict[str, object] = {
        "request_id": ["a", "b", "c", "d"],
        "input_tokens": [10, 20, 30, 40],
        "output_tokens": [5, 6, 7, 8],
        "arrival_time_us": [0, S, 2 * S, 3 * S],
        "send_time_us": [10, S + 10, 2 * S + 10, 3 * S + 10],
        "first_chunk_time_us": [500, S + 500, 2 * S + 500, 3 * S + 500],
        "server_input_tokens": [14, 24, 34, 44],
        "status": ["ok"] * 4,
        "prefix_hashes": ["1 2", "1 3", "4", "5"],
    }
    given.update(columns)
    header = Header(tool="vtwin", mode="real", seed=3, hash_block_size=8, command="vtwin observe")
    return make_trace(header, given)


def saved(trace: Trace, folder: Path) -> Path:
    write_trace(trace, folder / "run")
    return folder / "run"


def test_outcomes_go_and_the_request_stays() -> None:
    again = workload_of(observed())
    kept = [
        "request_id",
        "prefix_length",
        "input_tokens",
        "output_tokens",
        "server_input_tokens",
        "arrival_time_us",
        "prefix_hashes",
    ]
    assert sorted(again.requests.columns) == sorted(kept)
    pd.testing.assert_frame_equal(again.requests[kept], observed().requests[kept])
    assert again.events is None
    assert (again.header.mode, again.header.hash_block_size) == ("generated", 8)
    assert again.header.command is None


def test_the_output_length_is_what_was_served_and_the_budget_where_nothing_was() -> None:
    again = workload_of(observed(max_tokens=[50, None, 70, 80], output_tokens=[5, 6, None, 0]))
    assert again.requests["output_tokens"].tolist() == [5, 6, 70, 80]
    assert again.cells("max_tokens").filled(-1).tolist() == [50, -1, 70, 80]


def test_a_failed_request_asks_for_its_budget_and_says_nothing_of_its_end() -> None:
    failed = observed(
        status=["ok", "error", "timeout", "error"],
        max_tokens=[50, 60, 70, None],
        finish_reason=["stop", None, "stop", None],
    )
    again = workload_of(failed)
    assert again.requests["output_tokens"].tolist() == [5, 60, 70, 8]
    assert again.cells("finish_reason").filled("").tolist() == ["stop", "", "", ""]
    assert "status" not in again.table
    assert workload_of(again).requests["output_tokens"].tolist() == [5, 60, 70, 8]


def test_lengths_as_served_and_as_asked_are_scaled_and_clipped_alike(tmp_path: Path) -> None:
    stem = saved(observed(max_tokens=[50, 50, 7, 80], prefix_length=[4, 0, 0, 0]), tmp_path)
    given = {"prompt_scale": 2.0, "output_scale": 3.0, "prompt_tokens_max": 65, "output_tokens_max": 150}
    again = trace_from_options(WorkloadOptions(trace=stem, **given))  # type: ignore[arg-type]
    assert again.requests["server_input_tokens"].tolist() == [28, 48, 65, 65]
    assert (again.requests["input_tokens"] + again.requests["prefix_length"]).tolist() == [28, 40, 60, 65]
    assert again.requests["output_tokens"].tolist() == [15, 18, 21, 24]
    assert again.requests["max_tokens"].tolist() == [150, 150, 21, 150]


@pytest.mark.parametrize(
    ("block", "factor", "scaled"),
    [
        (512, 1.1, 560),
        (512, 2.0, 1024),
        (16, 1.1, 16),
        (16, 1.6, 32),
        (64, 0.1, 16),
        (8, 1.5, 16),
        (7, 1.5, 10),
    ],
)
def test_scaled_blocks_of_hashes_are_whole_blocks_of_an_engine(
    block: int, factor: float, scaled: int
) -> None:
    trace = observed(prefix_hashes=["1 2", "1", None, None]).with_header(hash_block_size=block)
    again = scale_lengths(trace, prompt=factor)
    assert again.header.hash_block_size == scaled


def test_a_request_without_an_output_length_cannot_be_sent_again(tmp_path: Path) -> None:
    stem = saved(observed(output_tokens=[5, None, 0, 8]), tmp_path)
    with pytest.raises(TraceError, match=r"got 2 requests without one \(first: request_id b\).*run"):
        trace_from_options(WorkloadOptions(trace=stem))


def test_warm_up_is_not_sent_again_and_a_retried_request_is() -> None:
    trace = observed(phase=["warmup", "main", None, "main"], attempt=[1, 1, None, 2])
    assert workload_of(trace).requests["request_id"].tolist() == ["b", "c", "d"]


def test_nothing_but_warm_up_is_refused() -> None:
    with pytest.raises(TraceError, match="got none, expected requests"):
        workload_of(observed(phase=["warmup"] * 4))


def test_a_closed_loops_later_arrivals_are_open_again(tmp_path: Path) -> None:
    trace = observed(deadline_us=[9 * S] * 4).with_header(
        closed_loop=ClosedLoop(concurrency=2, think_time_us=7)
    )
    again = trace_from_options(WorkloadOptions(trace=saved(trace, tmp_path)))
    assert again.requests["arrival_time_us"].isna().tolist() == [False, False, True, True]
    assert again.requests["deadline_us"].isna().tolist() == [False, False, True, True]
    assert again.header.closed_loop == ClosedLoop(concurrency=2, think_time_us=7)
    with pytest.raises(ConfigError, match="--duration: cannot be combined with a closed loop"):
        trace_from_options(WorkloadOptions(trace=tmp_path / "run", duration=2.0))


@pytest.mark.parametrize(
    ("limits", "ids"),
    [
        ({}, "abcd"),
        ({"num_requests": 2}, "cd"),
        ({"num_requests": 9}, "abcd"),
        ({"duration": 1.0}, "cd"),
        ({"duration": 2.5, "num_requests": 1}, "d"),
    ],
    ids=str,
)
def test_the_first_by_arrival_are_kept_in_the_order_of_the_file(
    tmp_path: Path, limits: dict[str, float], ids: str
) -> None:
    stem = saved(observed(arrival_time_us=[3 * S, 2 * S, S, 0], send_time_us=None), tmp_path)
    drawn = trace_from_options(WorkloadOptions(trace=stem, **limits))  # type: ignore[arg-type]
    assert drawn.requests["request_id"].tolist() == list(ids)
    assert drawn.header.workload_spec == f"trace:{stem}"
    assert drawn.header.seed == 42


def test_a_duration_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    stem = saved(observed(arrival_time_us=np.arange(2, 6) * S, send_time_us=None), tmp_path)
    with pytest.raises(ConfigError, match="--duration: got 1 s, which holds no request"):
        trace_from_options(WorkloadOptions(trace=stem, duration=1.0))


def test_a_missing_trace_is_an_error_of_the_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="nowhere"):
        trace_from_options(WorkloadOptions(trace=tmp_path / "nowhere"))


def test_a_workload_made_of_a_workload_is_the_same_workload() -> None:
    again = workload_of(observed())
    twice = workload_of(again)
    pd.testing.assert_frame_equal(again.requests, twice.requests)
    assert dataclasses.asdict(again.header) == dataclasses.asdict(twice.header)
