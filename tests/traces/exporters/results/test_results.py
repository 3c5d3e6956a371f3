"""Results in the formats of other benchmarks: read back they say what the trace says, and their figures are by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vtwin
from traces import ClosedLoop, Header, ServerInfo, Trace, TraceError, make_trace, write_trace
from traces.conversion import SourceFormat, convert
from traces.exporters import export
from traces.exporters.target import RESULT_TARGETS, ResultTarget
from traces.trace_summary import summarize_trace
from traces.warm_up import without_warmup

READERS: dict[ResultTarget, SourceFormat] = {"vllm-bench-result": "vllm-bench", "guidellm-report": "guidellm"}


def observed(*, events: bool = True, **columns: object) -> Trace:
    """Three requests, one of which failed, after one of warm-up; rows do not stand in order of sending."""
    header = Header(
        mode="real",
        tool="vtwin",
        rate_per_s=2.0,
        start_unix_us=1_700_000_000_000_000,
        server=ServerInfo(model="org/m"),
    )
    rows: dict[str, object] = {
        "request_id": ["w", "c", "a", "b"],
        "phase": ["warmup", None, None, None],
        "streaming": True,
        "arrival_time_us": [0, 3_000_000, 1_000_000, 2_000_000],
        "send_time_us": [0, 3_000_000, 1_000_000, 2_000_000],
        "input_tokens": [5, 30, 10, 20],
        "output_tokens": [1, 1, 4, None],
        "max_tokens": [1, 1, 4, 7],
        "content_first_time_us": [10, 3_200_000, 1_100_000, None],
        "last_token_time_us": [10, 3_200_000, 1_400_000, None],
        "status": ["ok", "ok", "ok", "error"],
        "error_message": [None, None, None, "503 busy"],
    }
    table = {
        "request_id": ["a"] * 4 + ["c"],
        "chunk_index": [0, 1, 2, 3, 0],
        "timestamp_us": [1_100_000, 1_150_000, 1_250_000, 1_400_000, 3_200_000],
        "num_tokens": [1] * 5,
    }
    return make_trace(header, rows | columns, events=table if events else None)


def document(trace: Trace, target: ResultTarget, folder: Path) -> dict[str, Any]:
    """Return the file that ``export`` writes, parsed."""
    found: dict[str, Any] = json.loads(export(trace, target, folder / f"{target}.json").read_text())
    return found


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("target", READERS)
def test_a_result_read_back_has_the_same_latencies(
    tmp_path: Path, target: ResultTarget, *, events: bool
) -> None:
    trace = observed(events=events)
    export(trace, target, tmp_path / "out.json")
    back, was = (
        summarize_trace(convert(READERS[target], tmp_path / "out.json")),
        summarize_trace(without_warmup(trace)),
    )
    for name in ("ttft_us", "e2e_us", "tpot_us", "prompt_tokens", "output_tokens"):
        assert getattr(back, name) == getattr(was, name), name
    assert back.num_by_status == {"error": 1, "ok": 2}
    assert back.rate_per_s == pytest.approx(1.0)


def test_vllm_bench_has_its_own_figures(tmp_path: Path) -> None:
    found = document(observed(), "vllm-bench-result", tmp_path)
    assert (found["completed"], found["failed"], found["num_prompts"]) == (2, 1, 3)
    assert found["model_id"] == "org/m"
    assert found["date"] == "20231114-221320"
    assert found["duration"] == pytest.approx(2.2)
    assert found["request_throughput"] == pytest.approx(2 / 2.2)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (40, 5)
    assert found["total_token_throughput"] == pytest.approx(45 / 2.2)
    assert found["mean_ttft_ms"] == pytest.approx(150)
    assert found["mean_tpot_ms"] == pytest.approx(100)  # of one answer: 300 ms over three tokens
    assert found["mean_itl_ms"] == pytest.approx(100)
    assert found["p99_itl_ms"] == pytest.approx(np.percentile([50, 100, 150], 99))
    assert found["std_e2el_ms"] == pytest.approx(np.std([400, 200]))
    assert found["max_output_tokens_per_s"] == 4  # events in the first second
    assert found["max_concurrent_requests"] == 1
    assert found["input_lens"] == [10, 20, 30]
    assert found["output_lens"] == [4, 0, 1]
    assert found["itls"] == [pytest.approx([0.05, 0.1, 0.15]), [], []]
    assert found["errors"] == ["", "503 busy", ""]


def test_gaps_that_nobody_recorded_are_even(tmp_path: Path) -> None:
    found = document(observed(events=False), "vllm-bench-result", tmp_path)
    assert found["itls"] == [pytest.approx([0.1] * 3), [], []]


def test_a_closed_loop_is_a_cap_without_a_rate(tmp_path: Path) -> None:
    users = observed().with_header(closed_loop=ClosedLoop(concurrency=8), rate_per_s=None)
    found = document(users, "vllm-bench-result", tmp_path)
    assert (found["request_rate"], found["max_concurrency"]) == ("inf", 8)
    report = document(users, "guidellm-report", tmp_path)["benchmarks"][0]
    assert report["config"]["strategy"] == {"type_": "concurrent", "streams": 8, "max_concurrency": 8}


def test_a_simulated_run_says_so(tmp_path: Path) -> None:
    simulated = observed().with_header(mode="replayed")
    assert document(simulated, "vllm-bench-result", tmp_path)["label"] == "simulated by vtwin"


def test_guidellm_has_its_own_figures(tmp_path: Path) -> None:
    report = document(observed(), "guidellm-report", tmp_path)["benchmarks"][0]
    metrics = report["metrics"]
    assert metrics["request_totals"] == {"successful": 2, "errored": 1, "incomplete": 0, "total": 3}
    ttft = metrics["time_to_first_token_ms"]["successful"]
    assert (ttft["mean"], ttft["count"]) == (pytest.approx(150), 2)
    assert ttft["median"] == pytest.approx(100)  # the smallest value that half of them reach
    assert ttft["percentiles"]["p99"] == pytest.approx(200)
    assert metrics["request_latency"]["successful"]["max"] == pytest.approx(0.4)
    assert metrics["time_per_output_token_ms"]["successful"]["mean"] == pytest.approx((400 / 4 + 200) / 2)
    assert metrics["inter_token_latency_ms"]["successful"]["count"] == 3
    assert metrics["output_tokens_per_second"]["successful"]["mean"] == pytest.approx(5 / 2.2)
    assert metrics["request_concurrency"]["successful"]["mean"] == pytest.approx(0.6 / 2.2)
    assert report["start_time"] == pytest.approx(1_700_000_000)


def test_genai_perf_has_its_own_figures(tmp_path: Path) -> None:
    found = document(observed(), "genai-perf-summary", tmp_path)
    assert found["request_throughput"] == {"unit": "requests/sec", "avg": pytest.approx(2 / 2.2)}
    assert found["time_to_first_token"]["unit"] == "ms"
    assert found["time_to_first_token"]["p50"] == pytest.approx(150)
    assert found["time_to_second_token"]["avg"] == pytest.approx(50)
    assert found["inter_token_latency"]["avg"] == pytest.approx(100)
    assert found["output_token_throughput_per_user"]["avg"] == pytest.approx(10)
    assert found["output_sequence_length"]["max"] == 4
    assert found["input_config"]["model_names"] == ["org/m"]


@pytest.mark.parametrize("target", RESULT_TARGETS)
def test_a_run_in_which_all_failed_has_a_result(tmp_path: Path, target: ResultTarget) -> None:
    trace = observed(
        events=False,
        status="error",
        content_first_time_us=[None] * 4,
        last_token_time_us=[None] * 4,
        output_tokens=[None] * 4,
    )
    assert "nan" not in json.dumps(document(trace, target, tmp_path)).lower()


@pytest.mark.parametrize("target", RESULT_TARGETS)
def test_an_answer_without_a_first_token_is_refused(tmp_path: Path, target: ResultTarget) -> None:
    whole = observed(events=False, streaming=False, content_first_time_us=[None] * 4)
    with pytest.raises(TraceError, match="2 answers without a measured time of their first token"):
        export(whole, target, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize("target", RESULT_TARGETS)
def test_a_workload_has_no_results(tmp_path: Path, target: ResultTarget) -> None:
    workload = make_trace(
        Header(), {"request_id": ["0"], "input_tokens": 1, "output_tokens": 1, "arrival_time_us": 0}
    )
    with pytest.raises(TraceError, match="status: got a workload, expected a run with outcomes"):
        export(workload, target, tmp_path / "out.json")


def test_the_command_writes_them(tmp_path: Path) -> None:
    write_trace(observed(), tmp_path / "run")
    arguments = ["trace", "convert", str(tmp_path / "run"), "--from", "tracev2", "--to", "guidellm-report"]
    assert vtwin.main([*arguments, "--output", str(tmp_path / "report.json")]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["benchmarks"]
