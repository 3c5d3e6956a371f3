"""`vtwin trace`, from the outside: what it prints, what it writes, how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import vtwin
from tests.traces.made import BLIS, SAMPLES, small_trace
from traces import read_trace, write_trace


def vtwin_trace(*arguments: object) -> int:
    return vtwin.main(["trace", *map(str, arguments)])


def test_a_good_trace_checks_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin_trace("check", BLIS / "o") == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("o: no problems\n")


def test_problems_are_listed_one_a_line_and_exit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_trace(small_trace(input_tokens=[-1, 2, -3]), tmp_path / "t")
    assert vtwin_trace("check", tmp_path / "t") == 1
    assert capsys.readouterr().out.splitlines() == [
        "row 1, input_tokens: got -1, expected an integer >= 0 (t.csv)",
        "row 3, input_tokens: got -3, expected an integer >= 0 (t.csv)",
    ]
    assert vtwin_trace("check", tmp_path / "t", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["num_problems"] == 2
    assert document["problems"][1] == {
        "file": "t.csv", "row": 3, "column": "input_tokens", "message": "got -3, expected an integer >= 0",
    }  # fmt: skip


@pytest.mark.parametrize("command", ["check", "info"])
def test_a_missing_or_bad_trace_is_one_line_and_exit_3(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin_trace(command, tmp_path / "t") == 3
    write_trace(small_trace(), tmp_path / "t")
    (tmp_path / "t.yaml").write_text("tool: vtwin\nmodle: x\n")
    assert vtwin_trace(command, tmp_path / "t") == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "got no such trace" in lines[0]
    assert "modle: got an unknown key, expected a key of a TraceV2 header" in lines[1]


def test_info_describes_in_words_and_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin_trace("info", BLIS / "p") == 0
    words = capsys.readouterr().out
    assert "requests            20" in words
    assert "note: 20 requests: TTFT runs to the first event" in words
    assert vtwin_trace("info", BLIS / "p.csv", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["num_requests"] == 20
    assert document["ttft_us"]["n"] == 20


def test_convert_writes_what_the_importer_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = SAMPLES / "mooncake_conversation_200.jsonl"
    assert vtwin_trace("convert", "--from", "mooncake", source, "--output", tmp_path / "m.parquet") == 0
    assert read_trace(tmp_path / "m").header.hash_block_size == 512
    assert "200 requests" in capsys.readouterr().err


def test_convert_hands_a_trace_to_blis(tmp_path: Path) -> None:
    write_trace(read_trace(BLIS / "p"), tmp_path / "ours")
    arguments = ("--from", "tracev2", tmp_path / "ours", "--output", tmp_path / "theirs", "--dialect", "blis")
    assert vtwin_trace("convert", *arguments) == 0
    assert (tmp_path / "theirs.csv").read_bytes() == (BLIS / "p.csv").read_bytes()


def test_convert_refuses_a_bad_file_with_exit_3_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("{}\n")
    assert vtwin_trace("convert", "--from", "mooncake", tmp_path / "f", "--output", tmp_path / "t") == 3
    assert vtwin_trace("convert", "--from", "nobody", tmp_path / "f", "--output", tmp_path / "t") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_synth_writes_a_workload_that_says_how_it_was_made(tmp_path: Path) -> None:
    arguments = ("--rate", "5", "--num-requests", "7", "--seed", "3", "--output", tmp_path / "w")
    assert vtwin_trace("synth", *arguments) == 0
    trace = read_trace(tmp_path / "w")
    assert len(trace) == 7
    assert trace.header.mode == "generated"
    assert trace.header.command is not None
    first = (tmp_path / "w.csv").read_bytes()
    assert vtwin_trace("synth", *arguments) == 0
    assert (tmp_path / "w.csv").read_bytes() == first
