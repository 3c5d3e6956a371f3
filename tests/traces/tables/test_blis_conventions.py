"""What BLIS writes is understood, and what it reads can be written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from tests.traces.made import BLIS, events_of, shared, small_trace
from traces import (
    ClosedLoop,
    Header,
    ServerInfo,
    TraceError,
    check_trace,
    make_trace,
    read_trace,
    write_trace,
)
from traces.header import BLIS_KEYS
from traces.schema import REQUEST_FIELDS

NAMES = [field.name for field in REQUEST_FIELDS if field.origin == "base"]
ROW = dict.fromkeys(NAMES, "0") | {"streaming": "true", "status": "ok", "finish_reason": "length"}
ROW |= dict.fromkeys(("client_id", "tenant_id", "slo_class", "session_id", "prefix_group", "model"), "")
ROW |= {"error_message": "", "input_tokens": "50", "output_tokens": "6"}
START = 1_795_220_853_000_000


def blis_file(folder: Path, mode: str, *rows: dict[str, object]) -> Path:
    """Write rows as BLIS would, what they do not say being 0, and return the stem."""
    (folder / "b.yaml").write_text(f"trace_version: 3\ntime_unit: us\nmode: {mode}\n")
    lines = [
        ",".join(str(({**ROW, "request_id": i} | row)[name]) for name in NAMES) for i, row in enumerate(rows)
    ]
    (folder / "b.csv").write_text("\n".join([",".join(NAMES), *lines]) + "\n")
    return folder / "b"


@pytest.mark.parametrize(("name", "num_requests", "num_events"), [("o", 10, 92), ("p", 20, 186)])
def test_a_trace_of_blis_is_read(name: str, num_requests: int, num_events: int) -> None:
    trace = read_trace(BLIS / name)
    assert check_trace(BLIS / name) == []
    assert len(trace) == num_requests
    assert trace.events is not None
    assert len(trace.events) == num_events
    assert trace.header.server.model == "meta-llama/llama-3.1-8b-instruct"
    assert trace.header.is_blis


def test_its_two_origins_become_one_and_the_header_says_how() -> None:
    trace = read_trace(BLIS / "o")
    first = trace.requests.iloc[0]
    assert (first["arrival_time_us"], first["send_time_us"]) == (0, 0)
    assert first["first_chunk_time_us"] == 1795220853258728 - 1795220853214111
    assert first["deadline_us"] == 300_000_000
    assert trace.header.start_unix_us == 1795220853214111
    assert trace.header.rebased is not None
    assert trace.header.rebased.smallest_send_unix_us == 1795220853214111
    assert trace.header.rebased.arrival_of_that_row_us == 0
    assert trace.events is not None
    assert trace.events["timestamp_us"].iloc[0] == first["first_chunk_time_us"]


def test_the_smallest_send_falls_on_its_own_rows_arrival(tmp_path: Path) -> None:
    stem = blis_file(
        tmp_path,
        "real",
        {"arrival_time_us": 700, "send_time_us": START + 950, "status": "error"},
        {"arrival_time_us": 900, "send_time_us": START + 930, "first_chunk_time_us": START + 990,
         "last_chunk_time_us": START + 999},
        {"arrival_time_us": 950, "status": "error"},
    )  # fmt: skip
    requests = read_trace(stem).requests
    assert requests["send_time_us"].fillna(-1).tolist() == [920, 900, -1]
    assert requests["first_chunk_time_us"].fillna(-1).tolist() == [-1, 960, -1]


def test_zero_is_missing_where_blis_means_missing(tmp_path: Path) -> None:
    requests = read_trace(blis_file(tmp_path, "real", {"send_time_us": START})).requests
    missing = {name for name in requests.columns if requests[name].isna().all()}
    assert missing == {
        "client_id", "tenant_id", "slo_class", "session_id", "prefix_group", "model", "error_message",
        "deadline_us", "server_input_tokens", "first_chunk_time_us", "last_chunk_time_us",
    }  # fmt: skip
    assert requests["num_chunks"].tolist() == [0]


def test_a_simulated_row_may_be_sent_at_zero_and_has_no_chunks(tmp_path: Path) -> None:
    row = {"first_chunk_time_us": 10, "last_chunk_time_us": 20}
    requests = read_trace(blis_file(tmp_path, "generated", row)).requests
    assert requests["send_time_us"].tolist() == [0]
    assert requests["num_chunks"].isna().all()


def test_a_replay_of_a_real_trace_is_rebased_though_all_its_times_are_unix(tmp_path: Path) -> None:
    rows = [
        {
            "arrival_time_us": START + late,
            "send_time_us": START + late + 3,
            "first_chunk_time_us": START + late + 10,
            "last_chunk_time_us": START + late + 20,
            "deadline_us": 0,
        }
        for late in (500, 0)
    ]
    trace = read_trace(blis_file(tmp_path, "replayed", *rows))
    assert trace.requests["arrival_time_us"].tolist() == [500, 0]
    assert trace.requests["send_time_us"].tolist() == [503, 3]
    assert trace.requests["last_chunk_time_us"].tolist() == [520, 20]
    assert trace.header.start_unix_us == START


@pytest.mark.parametrize("name", ["o", "p"])
def test_read_and_written_for_blis_a_trace_of_blis_is_the_same_to_the_byte(name: str, tmp_path: Path) -> None:
    write_trace(read_trace(BLIS / name), tmp_path / name, dialect="blis")
    for suffix in (".csv", ".itl.csv"):
        assert (tmp_path / f"{name}{suffix}").read_bytes() == (BLIS / f"{name}{suffix}").read_bytes()
    header = read_trace(tmp_path / name).header
    assert header == read_trace(BLIS / name).header


@pytest.mark.parametrize("name", ["o", "p"])
def test_a_trace_of_blis_survives_being_kept_as_ours(name: str, tmp_path: Path) -> None:
    theirs = read_trace(BLIS / name)
    write_trace(theirs, tmp_path / name)
    ours = read_trace(tmp_path / name)
    pd.testing.assert_frame_equal(ours.requests, theirs.requests)
    assert ours.header == replace(
        theirs.header, tool="vtwin", tool_version=ours.header.tool_version, time_unit="us"
    )


def test_for_blis_nothing_is_empty_but_text_and_our_own_is_left_out(tmp_path: Path) -> None:
    trace = small_trace(
        status=["ok", "rejected", "stuck"], max_tokens=5, itl_mean_us=1.5, vllm_priority=[None, 1, None]
    )
    header = replace(trace.header, seed=3, server=ServerInfo(model="m", version="0.32.0"))
    events = events_of([("a", 0, 400, 1), ("b", 0, 1500, 1)])
    write_trace(make_trace(header, trace.requests, events=events), tmp_path / "t", dialect="blis")
    table = pd.read_csv(tmp_path / "t.csv", dtype=str, keep_default_na=False)
    assert list(table.columns) == [*NAMES[:4], "vllm_priority", *NAMES[4:], "x_request_id"]
    numbers = [field.name for field in REQUEST_FIELDS if field.dtype != "string" and field.name in table]
    assert not (table[numbers] == "").any(axis=None)
    assert table["request_id"].tolist() == ["0", "1", "2"]
    assert table["x_request_id"].tolist() == ["a", "b", "c"]
    assert table["status"].tolist() == ["ok", "error", "incomplete"]
    assert table["send_time_us"].tolist() == [str(header.start_unix_us + t) for t in (0, 1010, 2000)]
    assert (tmp_path / "t.itl.csv").read_text().splitlines()[:2] == [
        "request_id,chunk_index,timestamp_us",
        f"0,0,{header.start_unix_us + 400}",
    ]
    back = read_trace(tmp_path / "t").header
    assert back.is_blis
    assert back.workload_seed == 3
    assert back.server == ServerInfo(model="m")
    own = {"start_unix_us", "rebased"}  # worked out again on reading
    default = Header()
    assert all(
        getattr(back, k) == getattr(default, k) for k in default.__slots__ if k not in {*BLIS_KEYS, *own}
    )


def test_a_closed_loop_that_has_not_run_cannot_be_handed_to_blis(tmp_path: Path) -> None:
    trace = small_trace(arrival_time_us=[0, None, None], send_time_us=None)
    trace = trace.with_header(closed_loop=ClosedLoop(concurrency=1))
    with pytest.raises(TraceError, match="BLIS's dialect has no closed loop"):
        write_trace(trace, tmp_path / "t", dialect="blis")
    assert list(tmp_path.iterdir()) == []


def test_all_samples_at_hand_are_read() -> None:
    for header in sorted(shared("blis_samples").glob("*.csv")):
        if ".itl" not in header.name:
            assert len(read_trace(header)) > 0
