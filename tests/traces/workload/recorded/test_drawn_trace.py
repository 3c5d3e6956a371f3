"""Sessions that a planner draws become what ``--like`` makes of the same draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces import Header, make_trace, write_trace
from traces.importers.recorded import read_recorded
from traces.workload import WorkloadOptions, trace_from_options
from traces.workload.recorded.drawn_trace import drawn_trace, some_rows
from traces.workload.recorded.resampling import requests_to_draw

N = 30


def recorded(stem: Path) -> None:
    """Write ten sessions of three rounds whose lengths tell them apart."""
    place = np.arange(N) % 3
    write_trace(
        make_trace(
            Header(mode="generated", tool="vtwin", hash_block_size=16),
            {
                "request_id": [str(i) for i in range(N)],
                "arrival_time_us": np.arange(N) * 1000,
                "deadline_us": np.arange(N) * 1000 + 5_000_000 + np.arange(N),
                "input_tokens": np.arange(N) + 100,
                "output_tokens": np.arange(N) + 1,
                "session_id": [f"s{i // 3}" for i in range(N)],
                "round_index": place,
                "prefix_hashes": [f"7 {100 + i // 3} {1000 + i}" for i in range(N)],
                "adapter": [("a", "b", None)[i % 3] for i in range(N)],
                "guided": [i % 2 == 0 for i in range(N)],
                "tenant_id": [f"t{i % 4}" for i in range(N)],
                "image_tokens": [i % 5 for i in range(N)],
            },
        ),
        stem,
    )


def test_the_same_draws_give_the_trace_that_lengths_from_gives(tmp_path: Path) -> None:
    recorded(tmp_path / "t")
    asked = WorkloadOptions(like=tmp_path / "t", rate=2.0, num_requests=60, seed=3)
    theirs = trace_from_options(asked)
    row = theirs.cells("output_tokens").values - 1
    first = theirs.cells("round_index").values == 0
    mine = drawn_trace(
        requests_to_draw(read_recorded(tmp_path / "t"), "t"),
        begins_us=theirs.cells("arrival_time_us").values[first],
        session=row[first] // 3,
    )
    number = len(theirs)
    assert mine.row[:number].tolist() == row.tolist()
    shared = set(theirs.requests.columns) & set(mine.trace.requests.columns)
    assert {"prefix_hashes", "adapter", "guided", "deadline_us", "session_id", "tenant_id"} <= shared
    for name in shared - {"client_id"}:
        ours, other = mine.trace.cells(name), theirs.cells(name)
        assert ours.is_known[:number].tolist() == other.is_known.tolist(), name
        assert ours.known()[: len(other.known())].tolist() == other.known().tolist(), name
    assert mine.trace.header.hash_block_size == 16


def test_some_rows_keep_their_sessions_together(tmp_path: Path) -> None:
    recorded(tmp_path / "t")
    whole = requests_to_draw(read_recorded(tmp_path / "t"), "t")
    kept = some_rows(whole, np.array([0, 2, 4, 27, 28, 29]))
    assert kept.first_row == (0, 2, 3, 6)
    assert kept.requests.cells("output_tokens").values.tolist() == [1, 3, 5, 28, 29, 30]
    assert some_rows(whole, np.arange(N)) is whole
