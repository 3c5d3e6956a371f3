"""The one door for files of requests: names with options, parts, formats by content, and what is not known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import vtwin
from tests.twins import SIXTY_FOUR_SEATS
from traces import ConfigError, TraceError
from traces.importers.reading_options import ReadingOptions, split_name
from traces.importers.recognise import recognised
from traces.importers.recorded import check_load, has_header, parts_at, read_recorded, reading_notes
from traces.trace_summary import summarize_trace


def result(rate: float = 4.0, **changed: object) -> dict[str, Any]:
    """Return vllm bench's detailed result of three requests."""
    return {
        "model_id": "m",
        "request_rate": rate,
        "max_concurrency": None,
        "duration": 4.2,
        "request_throughput": 0.7,
        "input_lens": [100, 200, 300],
        "output_lens": [3, 3, 3],
        "ttfts": [0.1, 0.1, 0.25],
        "itls": [[0.01, 0.03], [0.01, 0.01], [0.05, 0.01]],
        "start_times": [1000.5, 1000.7, 1001.0],
        "errors": ["", "", ""],
    } | changed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(SIXTY_FOUR_SEATS)
    (tmp_path / "two.json").write_text("\n".join(json.dumps(result(rate)) for rate in (4.0, 8.0)))
    old = {name: value for name, value in result().items() if name != "start_times"}
    (tmp_path / "old.json").write_text(json.dumps(old))
    failed = result(
        errors=["", "boom", ""], output_lens=[3, 0, 4], itls=[[0.01, 0.03], [], [0.05, 0.01, 0.01]]
    )
    (tmp_path / "failed.json").write_text(json.dumps(failed))
    (tmp_path / "wide.jsonl").write_text(
        json.dumps({"timestamp": 0, "input_length": 4096, "output_length": 4, "hash_ids": [1, 2, 3, 4]})
        + "\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("f.json", {}),
        ("f.json#2", {"part": 2}),
        ("f.json#part=3", {"part": 3}),
        ("f.json#block_size=1024,time_unit=s", {"block_size": 1024, "time_unit": "s"}),
        ("f.json#block-size=16", {"block_size": 16}),
    ],
)
def test_a_name_says_how_its_file_is_read(tmp_path: Path, name: str, options: dict[str, object]) -> None:
    (tmp_path / "f.json").write_text("{}")
    file, said = split_name(tmp_path / name)
    assert file == tmp_path / "f.json"
    assert said.given() == options


def test_a_file_of_just_this_name_is_itself(tmp_path: Path) -> None:
    for name in ("f.json", "f.json#2"):
        (tmp_path / name).write_text("{}")
    assert split_name(tmp_path / "f.json#2") == (tmp_path / "f.json#2", ReadingOptions())
    assert split_name(tmp_path / "absent.json#2") == (tmp_path / "absent.json#2", ReadingOptions())


@pytest.mark.parametrize(
    "said", ["0", "x", "part=", "part=-1", "time_unit=h", "block=2", "part=1,,", "part=²"]
)
def test_an_option_behind_the_name_that_cannot_be_is_refused(tmp_path: Path, said: str) -> None:
    (tmp_path / "f.json").write_text("{}")
    with pytest.raises(ConfigError, match="expected"):
        split_name(tmp_path / f"f.json#{said}")


def test_an_option_comes_before_the_same_one_in_the_name(here: Path) -> None:
    trace = read_recorded(here / "two.json#2", options=ReadingOptions(part=1))
    assert trace.header.source is not None
    assert trace.header.source.part == 1


def test_parts_are_named_and_read_by_their_names(here: Path) -> None:
    parts = parts_at(here / "two.json")
    assert [part.name for part in parts] == ["two.json#part=1", "two.json#part=2"]
    assert [reading_notes(read_recorded(part))[0] for part in parts] == [
        "part 1 of the file",
        "part 2 of the file",
    ]
    assert parts_at(here / "old.json") == [here / "old.json"]


@pytest.mark.parametrize(
    "asked", [["replay"], ["run", "--like"], ["trace", "check"], ["calibrate", "--report", "r"]]
)
def test_every_command_names_the_parts_of_a_file(
    here: Path, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    del here
    twin = [] if asked[0] == "trace" else ["--config", "twin.yaml"]
    rate = ["--rate", "5"] if asked[0] == "run" else []
    assert vtwin.main([*asked, "two.json", *twin, *rate]) == 2
    said = capsys.readouterr().err
    assert (
        "got 2 results, expected the name of one: two.json#1 (4 requests/s), two.json#2 (8 requests/s)"
        in said
    )
    if asked[0] != "calibrate":
        assert vtwin.main([*asked, "two.json#2", *twin, *rate]) == 0


def test_info_shows_all_parts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del here
    assert vtwin.main(["trace", "info", "two.json", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["parts"]
    assert [each["name"] for each in told] == ["two.json#part=1", "two.json#part=2"]
    assert vtwin.main(["trace", "info", "two.json", "--part", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_requests"] == 3


def test_a_load_that_is_not_known_is_no_burst(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = read_recorded(here / "old.json")
    summary = summarize_trace(trace)
    assert (summary.rate_per_s, summary.request_throughput, summary.duration_us) == (None, None, None)
    assert "it states 0.7 requests/s served, 4/s asked for" in summary.notes[0]
    with pytest.raises(TraceError, match="so when requests were sent is not in the file"):
        check_load(trace, here / "old.json", asked="this")
    for command in (
        ["replay"],
        ["run", "--trace"],
        ["calibrate", "--report", "r"],
        ["capacity", "--slo", "e2e_p99=9s", "--trace"],
    ):
        assert vtwin.main([*command, "old.json", "--config", "twin.yaml"]) == 3
        assert "no start_times" in capsys.readouterr().err
    assert vtwin.main(["run", "--like", "old.json", "--rate", "3", "--config", "twin.yaml"]) == 0
    capsys.readouterr()
    assert vtwin.main(["compare", "old.json", "old.json", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["a"]["served_per_s"], told["a"]["offered_per_s"]) == (None, None)
    assert "the load is not known" in told["notes"][0]
    assert told["differences"]


def test_a_failed_request_of_unknown_length_is_left_out_and_counted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del here
    said = "1 request that failed, of unknown output length, left out"
    assert vtwin.main(["trace", "info", "failed.json", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_by_status"] == {"error": 1, "ok": 2}
    for command in (["replay"], ["run", "--rate", "3", "--num-requests", "5", "--like"]):
        assert vtwin.main([*command, "failed.json", "--config", "twin.yaml", "--json"]) == 0
        told = capsys.readouterr()
        assert said in told.err
        assert any(said in line for line in json.loads(told.out)["warnings"])


def test_the_notes_of_a_file_are_told_by_every_command(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = "a hash stands for 1,024 tokens"
    twin, slo = ["--config", "twin.yaml"], ["--slo", "ttft_p99=20s"]
    load, few = ["--rate", "2", "--num-requests", "40"], ["--num-requests", "300", "--seeds", "1"]
    (here / "grid.yaml").write_text(
        "config: twin.yaml\nworkloads: {w: {like: wide.jsonl, rate: 2, num_requests: 20}}\n"
    )
    for command in (
        ["trace", "check", "wide.jsonl"],
        ["trace", "convert", "wide.jsonl", "--from", "mooncake", "--output", "out"],
        ["replay", "wide.jsonl", *twin],
        ["run", "--trace", "wide.jsonl", *twin],
        ["run", "--like", "wide.jsonl", *load, *twin],
        ["sweep", "grid.yaml", "--output", "t.parquet"],
        [
            "fleet",
            "size",
            "--workload",
            "wide.jsonl",
            "--rate",
            "2",
            "--profile",
            "twin.yaml",
            "--no-verify",
            *slo,
        ],
        ["capacity", "--like", "wide.jsonl", *twin, *slo, *few, "--no-binding"],
        [
            "tune",
            "--like",
            "wide.jsonl",
            *twin,
            *slo,
            *few,
            "--max-num-seqs",
            "8",
            "--chunked-prefill",
            "true",
        ],
    ):
        assert vtwin.main(command) == 0, command
        told = capsys.readouterr()
        assert note in told.err + told.out, command
    assert vtwin.main(["trace", "info", "wide.jsonl"]) == 0
    assert note in capsys.readouterr().out


def test_a_format_is_told_by_content_not_by_order_or_name(tmp_path: Path) -> None:
    def written(name: str, text: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    line = '{"output_length": 1, "input_length": 5, "timestamp": 0}\n'
    assert recognised(written("a.jsonl", line)) == "mooncake"
    assert recognised(written("a.jsonl.gz", gzip.compress(line.encode()))) == "mooncake"
    assert recognised(written("b.csv", "GeneratedTokens,ContextTokens,TIMESTAMP\n")) == "azure"
    assert recognised(written("c.json", json.dumps(result()))) == "vllm-bench"
    assert recognised(written("d.jsonl", json.dumps(result() | {"sharegpt_output_len": 1}))) == "sglang-bench"
    assert recognised(written("e.yaml", "args: {}\nbenchmarks:\n- type_: x\n")) == "guidellm"
    assert recognised(written("f.yaml", "mode: real\n")) is None
    assert recognised(written("g.jsonl", '{"text": "a"}\n')) is None
    assert recognised(written("h.jsonl", "")) is None
    assert recognised(written("i.jsonl.gz", b"\x1f\x8b broken")) is None
    wide = result() | {"generated_texts": ["x" * 100_000]}
    assert recognised(written("j.json", json.dumps(wide))) == "vllm-bench"
    assert recognised(written("k.jsonl", json.dumps(wide) + "\n" + json.dumps(wide))) == "vllm-bench"


def test_a_file_of_no_known_kind_is_told_which_command_converts_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(TraceError, match="neither a trace nor of a known format"):
        read_recorded(tmp_path / "a.csv")
    with pytest.raises(TraceError) as absent:
        read_recorded(tmp_path / "absent.csv")
    assert "neither a trace" not in str(absent.value)
    (tmp_path / "a.yaml").write_text("mode: real\n")
    assert has_header(tmp_path / "a.csv")
    with pytest.raises(TraceError) as torn:
        read_recorded(tmp_path / "a.csv")
    assert "neither a trace" not in str(torn.value)
    (tmp_path / "a.yaml").write_text("benchmarks:\n- 1\n")  # a report of guidellm is no header
    assert not has_header(tmp_path / "a.csv")
    assert not has_header(tmp_path / "b.csv")


def test_json_is_lines_where_one_ends_and_another_begins(tmp_path: Path) -> None:
    """A key of a document is sought in all of it, of lines in the first alone."""
    document = json.dumps(result(), indent=1)
    row = json.dumps({"timestamp": 0, "input_length": 5, "output_length": 4, "hash_ids": [1]})
    for text, kind in (
        (document, "vllm-bench"),
        (json.dumps(result()) + "\n\n", "vllm-bench"),
        ("{}\n" + document, None),  # the first line of several says nothing
        ("{}\n[" + document + "]", "vllm-bench"),
        (row + "\n" + row, "mooncake"),
    ):
        (tmp_path / "f.json").write_text(text)
        assert recognised(tmp_path / "f.json") == kind, text[:40]
    (tmp_path / "f.jsonl").write_text(row)
    assert recognised(tmp_path / "f.jsonl") == "mooncake"
    (tmp_path / "f.json.gz").write_bytes(gzip.compress(document.encode()))
    assert recognised(tmp_path / "f.json.gz") == "vllm-bench"
    (tmp_path / "f.txt").write_text(document)
    assert recognised(tmp_path / "f.txt") is None


def test_a_first_line_that_is_longer_than_the_head_is_read_whole(tmp_path: Path) -> None:
    row = {"padding": "x" * 200_000, "timestamp": 0, "input_length": 5, "output_length": 4, "hash_ids": [1]}
    (tmp_path / "f.jsonl").write_text(json.dumps(row) + "\n{}\n")
    assert recognised(tmp_path / "f.jsonl") == "mooncake"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("empty.csv", "", "got an empty file"),
        ("cut.json", '{"requests": [1, 2', "got no whole JSON"),
        ("note.txt", "hello", "got a file that is no trace"),
    ],
)
def test_a_file_of_no_format_says_what_is_wrong_with_it(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TraceError, match=said):
        read_recorded(tmp_path / name)


def test_a_folder_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="got a folder, expected"):
        read_recorded(tmp_path)
