"""A trace as one flat table, and files of other tools that commands take as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import vtwin
from traces import TraceError, read_trace, request_metrics
from traces.importers.recorded import format_of, read_recorded

CONFIG = """\
engine: {max_num_seqs: 16, max_num_batched_tokens: 512, async_scheduling: false}
latency:
  model: blackbox
  coefficients: {alpha0: 500, alpha1: 2, alpha2: 0, beta0: 6000, beta1: 10, beta2: 20}
"""
BENCH = {
    "model_id": "m",
    "input_lens": [10, 20, 30],
    "output_lens": [3, 3, 3],
    "ttfts": [0.02, 0.03, 0.04],
    "itls": [[0.006, 0.006]] * 3,
    "start_times": [1.0, 1.5, 2.0],
    "errors": ["", "", ""],
}
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
MOONCAKE = '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
AIPERF = '{"metadata": {"x": 1}, "metrics": {}}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(CONFIG)
    (tmp_path / "azure.csv").write_text(AZURE)
    (tmp_path / "moon.jsonl").write_text(MOONCAKE)
    (tmp_path / "bench.json").write_text(json.dumps(BENCH))
    return tmp_path


def test_files_of_other_tools_tell_themselves_apart(folder: Path) -> None:
    (folder / "records.jsonl").write_text(AIPERF)
    (folder / "report.json").write_text('{"metadata": {}, "benchmarks": []}')
    (folder / "other.json").write_text('{"a": 1}')
    (folder / "list.json").write_text("[1]")
    found = {path.name: format_of(path) for path in folder.iterdir()}
    assert found == {
        "twin.yaml": None,
        "azure.csv": "azure",
        "moon.jsonl": "mooncake",
        "bench.json": "vllm-bench",
        "records.jsonl": "aiperf",
        "report.json": "guidellm",
        "other.json": None,
        "list.json": None,
    }


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("file", "number"), [("azure.csv", 2), ("moon.jsonl", 1), ("bench.json", 3)])
def test_replay_takes_a_file_of_another_tool(
    capsys: pytest.CaptureFixture[str], file: str, number: int
) -> None:
    assert vtwin.main(["replay", file, "--config", "twin.yaml", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_by_status"] == {"ok": number}


@pytest.mark.usefixtures("folder")
def test_calibrate_and_compare_take_results_of_vllm_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["replay", "bench.json", "--config", "twin.yaml", "--output", "s"]) == 0
    assert vtwin.main(["compare", "bench.json", "s"]) == 0
    assert "measured" in capsys.readouterr().out
    assert vtwin.main(["calibrate", "bench.json", "--config", "twin.yaml", "--report", "r"]) == 0
    document = json.loads(Path("r/report.json").read_text())
    assert document["traces"][0]["digest"]


@pytest.mark.parametrize("name", ["unknown.csv", "unknown.json", "unknown.jsonl2"])
def test_an_unknown_file_is_refused_with_the_command_that_converts(folder: Path, name: str) -> None:
    (folder / name).write_text("a,b\n1,2\n")
    converts = "vtwin trace convert" if name != "unknown.jsonl2" else "got"
    with pytest.raises(TraceError, match=converts):
        read_recorded(folder / name)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_exported_table_has_the_latencies_of_every_request(suffix: str) -> None:
    run = ["run", "--rate", "9", "--num-requests", "30", "--output-tokens", "9", "--config", "twin.yaml"]
    assert vtwin.main([*run, "--output", "s"]) == 0
    assert vtwin.main(["trace", "export", "s", "--metrics", "--output", f"t{suffix}"]) == 0
    table = pd.read_csv("t.csv") if suffix == ".csv" else pd.read_parquet("t.parquet")
    trace = read_trace("s")
    expected = request_metrics(trace)
    assert len(table) == len(trace)
    assert list(table.columns).count("itl_mean_us") == 1
    for name in ("ttft_us", "tpot_us", "e2e_us", "queue_us"):
        assert table[name].to_numpy() == pytest.approx(expected[name].to_numpy())
    assert table["input_tokens"].tolist() == trace.requests["input_tokens"].tolist()


@pytest.mark.usefixtures("folder")
def test_an_export_replaces_nothing_by_itself_and_knows_its_two_endings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vtwin.main(["trace", "export", "bench.json", "--output", "t.csv"]) == 0
    assert "ttft_us" not in Path("t.csv").read_text()
    assert vtwin.main(["trace", "export", "bench.json", "--output", "t.csv"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert vtwin.main(["trace", "export", "bench.json", "--output", "t.csv", "--overwrite"]) == 0
    assert vtwin.main(["trace", "export", "bench.json", "--output", "t.xlsx"]) == 2
    assert "ends in .csv or .parquet" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "s", "--output", "s.parquet"],
        ["export", "s", "--output", "s.parquet", "--overwrite"],
        ["export", "s", "--output", "s.csv", "--overwrite"],
        ["export", "s", "--output", "s.itl.csv"],
        ["convert", "s", "--from", "tracev2", "--to", "azure", "--output", "s.csv"],
        ["convert", "s", "--from", "tracev2", "--to", "spec", "--output", "s.yaml"],
    ],
)
def test_an_export_takes_no_name_of_a_traces_own_files(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert vtwin.main(["trace", "convert", "azure.csv", "--from", "azure", "--output", "s"]) == 0
    before = {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    capsys.readouterr()
    assert vtwin.main(["trace", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has the name of the trace s (s.yaml is beside it)" in line
    assert "expected another name, as s_export." in line
    assert {path.name: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before


@pytest.mark.usefixtures("folder")
def test_an_export_may_have_the_name_of_a_yaml_that_is_no_trace() -> None:
    assert vtwin.main(["trace", "export", "azure.csv", "--output", "twin.csv"]) == 0
    assert vtwin.main(["trace", "export", "azure.csv", "--output", "azure.parquet"]) == 0


SHORT = {
    "all means": {"backend": "vllm", "completed": 3, "request_throughput": 1.0, "mean_ttft_ms": 12.5},
    "only E2E": {"completed": 3, "request_throughput": 1.0, "total_input_tokens": 60, "mean_e2el_ms": 12.5},
}
"""Results of vllm bench serve without --save-detailed, with and without --percentile-metrics e2el."""


@pytest.mark.parametrize("result", SHORT.values(), ids=SHORT)
@pytest.mark.parametrize(
    "command",
    [
        "calibrate short.json --config twin.yaml --report r",
        "compare short.json azure.csv",
        "report short.json --output r.html",
        "trace info short.json",
        "trace check short.json",
        "trace export short.json --output t.csv",
        "trace convert short.json --from vllm-bench --output t",
        "replay short.json --config twin.yaml",
    ],
)
def test_a_result_of_vllm_bench_without_its_requests_says_what_it_lacks_everywhere(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str, result: dict[str, object]
) -> None:
    (folder / "short.json").write_text(json.dumps(result))
    assert vtwin.main(command.split()) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    expected = "input_lens: got no list, expected a result of vllm bench serve --save-result --save-detailed"
    assert f"{expected} (short.json)" in line


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("file", "number"), [("azure.csv", 2), ("moon.jsonl", 1), ("bench.json", 3)])
def test_trace_commands_take_a_file_of_another_tool(
    capsys: pytest.CaptureFixture[str], file: str, number: int
) -> None:
    assert vtwin.main(["trace", "info", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_requests"] == number
    assert vtwin.main(["trace", "check", file]) == 0
    *notes, verdict = capsys.readouterr().err.splitlines()
    assert verdict == f"{file}: no problems"
    assert notes
    assert all(line.startswith("note: ") for line in notes)


@pytest.mark.parametrize("command", ["info", "check"])
def test_trace_commands_name_the_command_that_converts(
    folder: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    (folder / "unknown.csv").write_text("a,b\n1,2\n")
    (folder / "bad.csv").write_text(AZURE + "noon,1,2\n")
    assert vtwin.main(["trace", command, "unknown.csv"]) == 3
    assert "`vtwin trace convert unknown.csv --from FORMAT --output STEM` reads" in capsys.readouterr().err
    assert vtwin.main(["trace", command, "bad.csv"]) == 3
    assert "bad.csv:" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_convert_names_the_format_of_a_file_that_is_taken_for_a_trace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert vtwin.main(["trace", "convert", "azure.csv", "--from", "tracev2", "--output", "s"]) == 2
    assert "--from: got tracev2, expected azure, the format of azure.csv" in capsys.readouterr().err
