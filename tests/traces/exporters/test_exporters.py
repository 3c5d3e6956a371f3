"""Workloads written for other tools: what comes back through the importers is what was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import vtwin
from traces import ClosedLoop, ConfigError, Header, Trace, TraceError, make_trace, write_trace
from traces.conversion import convert
from traces.exporters import export
from traces.exporters.target import TargetFormat


def observed() -> Trace:
    """A run with outcomes, one failure, and rows that do not stand in order of arrival."""
    return make_trace(
        Header(mode="real", tool="vtwin"),
        {
            "request_id": ["a", "b", "c"],
            "arrival_time_us": [2_000_500, 0, 1_000_000],
            "input_tokens": [100, 1000, 30],
            "output_tokens": [10, 0, 4],
            "max_tokens": [10, 20, 8],
            "status": ["ok", "error", "ok"],
            "model": ["m", None, None],
        },
    )


@pytest.mark.parametrize("target", ["mooncake", "vllm-bench", "burstgpt", "azure"])
def test_what_another_tool_is_given_comes_back_as_what_was_asked(
    tmp_path: Path, target: TargetFormat
) -> None:
    path = export(observed(), target, tmp_path / "out.file")
    back = convert("mooncake" if target == "vllm-bench" else target, path)
    assert list(back.column("arrival_time_us")) == [0, 1_000_000, 2_000_500]
    assert list(back.column("input_tokens")) == [1000, 30, 100]
    assert list(back.column("output_tokens")) == [20, 8, 10]


def test_block_hashes_stay_shared_as_they_were(tmp_path: Path) -> None:
    trace = make_trace(
        Header(mode="generated", tool="vtwin", hash_block_size=16),
        {
            "request_id": ["a", "b", "c"],
            "arrival_time_us": [0, 1000, 2000],
            "input_tokens": [40, 33, 20],
            "output_tokens": [1, 1, 1],
            "prefix_hashes": ["x y z", "x y w", None],
        },
    )
    lines = export(trace, "mooncake", tmp_path / "t.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["hash_ids"] for row in rows] == [[0, 1, 2], [0, 1, 3], [4, 5]]
    assert [row["timestamp"] for row in rows] == [0, 1, 2]


def test_a_prefix_group_becomes_the_whole_blocks_that_it_fills(tmp_path: Path) -> None:
    trace = make_trace(
        Header(mode="generated", tool="vtwin"),
        {
            "request_id": ["a", "b"],
            "arrival_time_us": [0, 1000],
            "input_tokens": [100, 600],
            "output_tokens": [1, 1],
            "prefix_group": ["g", "g"],
            "prefix_length": [1100, 1100],
        },
    )
    rows = [
        json.loads(line) for line in export(trace, "mooncake", tmp_path / "t.jsonl").read_text().splitlines()
    ]
    assert [row["input_length"] for row in rows] == [1200, 1700]
    assert [row["hash_ids"] for row in rows] == [[0, 1, 2], [0, 1, 3, 4]]


def test_a_mooncake_trace_goes_out_as_it_came_in(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1024, "output_length": 7, "hash_ids": [0, 1]},
        {"timestamp": 12.5, "input_length": 1500, "output_length": 3, "hash_ids": [0, 1, 2]},
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = export(convert("mooncake", source), "mooncake", tmp_path / "out.jsonl")
    assert [json.loads(line) for line in out.read_text().splitlines()] == rows


def test_a_closed_loop_and_an_unknown_tool_are_refused(tmp_path: Path) -> None:
    loop = observed().with_header(closed_loop=ClosedLoop(concurrency=1))
    with pytest.raises(TraceError, match="got a closed loop or sessions, expected times"):
        export(loop, "mooncake", tmp_path / "t")
    with pytest.raises(ConfigError, match="--to: got 'k6', expected one of mooncake"):
        export(observed(), "k6", tmp_path / "t")  # type: ignore[arg-type]
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="expected a place that can be written"):
        export(observed(), "azure", tmp_path / "file" / "t")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_the_command_writes_for_another_tool(tmp_path: Path) -> None:
    write_trace(observed(), tmp_path / "run")
    out = tmp_path / "out.jsonl"
    asked = ["trace", "convert", str(tmp_path / "run"), "--from", "tracev2", "--to", "vllm-bench"]
    assert vtwin.main([*asked, "--output", str(out)]) == 0
    assert np.array([json.loads(line)["input_length"] for line in out.read_text().splitlines()]).tolist() == [
        1000,
        30,
        100,
    ]
