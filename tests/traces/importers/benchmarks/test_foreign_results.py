"""Results of other load generators as observed traces, and a public workload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces import TraceError, check_trace, pooled_itl_us, request_metrics, write_trace
from traces.conversion import convert
from traces.trace_summary import summarize_trace

RESULT: dict[str, Any] = {
    "model_id": "meta-llama/Llama-3.1-8B",
    "request_rate": 4.0,
    "max_concurrency": 8,
    "input_lens": [100, 200, 300],
    "output_lens": [3, 0, 2],
    "ttfts": [0.1, 0.0, 0.25],
    "itls": [[0.01, 0.03], [], [0.05]],
    "start_times": [1000.5, 1000.7, 1001.0],
    "errors": ["", "Traceback …\nTimeoutError: no", ""],
}


def written(tmp_path: Path, result: object) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    return path


def test_a_result_of_vllm_bench_is_an_observed_trace(tmp_path: Path) -> None:
    trace = convert("vllm-bench", written(tmp_path, RESULT))
    assert list(trace.column("status")) == ["ok", "error", "ok"]
    assert list(trace.column("send_time_us")) == [0, 200_000, 500_000]
    metrics = request_metrics(trace)
    assert list(metrics["ttft_us"].dropna()) == [100_000, 250_000]
    assert list(metrics["e2e_us"].dropna()) == [140_000, 300_000]
    assert sorted(pooled_itl_us(trace)) == [10_000, 30_000, 50_000]
    assert trace.column("error_message").iloc[1] == "TimeoutError: no"
    assert trace.column("output_tokens").isna().tolist() == [False, True, False]
    assert trace.header.server.model == "meta-llama/Llama-3.1-8B"
    assert trace.header.closed_loop is None
    write_trace(trace, tmp_path / "t")
    assert check_trace(tmp_path / "t") == []


def test_a_result_without_start_times_says_that_its_load_is_lost(tmp_path: Path) -> None:
    older = {name: value for name, value in RESULT.items() if name != "start_times"} | {"request_rate": "inf"}
    trace = convert("vllm-bench", written(tmp_path, older))
    assert list(trace.column("send_time_us")) == [0, 0, 0]
    assert trace.header.source is not None
    assert trace.header.source.load_unknown == "no start_times, so when requests were sent is not in the file"
    assert trace.header.closed_loop is None
    summary = summarize_trace(trace)
    assert (summary.rate_per_s, summary.request_throughput, summary.duration_us) == (None, None, None)
    assert summary.ttft_us is not None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"itls": None}, "itls: got no list, expected a result of vllm bench serve --save-result"),
        ({"ttfts": [0.1]}, "ttfts: got 1 entries, expected 3"),
        ({"ttfts": [0.1, -1, 0.2]}, "ttfts: got a negative"),
        ({"start_times": [1]}, "start_times: got no list of 3 times"),
    ],
)
def test_what_is_no_detailed_result_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(TraceError, match=said):
        convert("vllm-bench", written(tmp_path, RESULT | change))


def test_a_file_that_is_none_or_no_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        convert("vllm-bench", tmp_path / "none.json")
    with pytest.raises(TraceError, match="got no JSON object"):
        convert("vllm-bench", written(tmp_path, [1]))


BURST = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5.5,ChatGPT,472,18,490,Conversation log
45,GPT-4,1087,230,1317,API log
50,ChatGPT,30,0,30,Conversation log
"""


def test_burstgpt_is_a_workload_of_its_answered_requests(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text(BURST)
    trace = convert("burstgpt", path)
    assert list(trace.column("arrival_time_us")) == [0, 39_500_000]
    assert list(trace.column("client_id")) == ["ChatGPT", "GPT-4"]
    assert np.array_equal(trace.column("output_tokens"), [18, 230])
    path.write_text(BURST.replace("1087", "many"))
    with pytest.raises(TraceError, match=r"burst\.csv:3: Request tokens"):
        convert("burstgpt", path)


def record(start_ms: int, *, error: object = None, phase: str = "profiling", **metrics: object) -> str:
    counts = ("_length", "_tokens")
    said = {
        name: {"value": value, "unit": "tokens" if name.endswith(counts) else "ms"}
        for name, value in metrics.items()
    }
    start_ns = 1_700_000_000_000_000_000 + start_ms * 1_000_000
    metadata = {"request_start_ns": start_ns, "x_request_id": f"x{start_ms}", "benchmark_phase": phase}
    return json.dumps({"metadata": metadata, "metrics": said, "error": error})


def test_cached_tokens_in_aiperfs_records_are_kept_where_the_server_said_them(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    whole = {"input_sequence_length": 100, "output_sequence_length": 3, "usage_prompt_tokens": 108}
    said = [{}, {"usage_prompt_cache_read_tokens": 0}, {"usage_prompt_cache_read_tokens": 96}]
    said.append({"usage_prompt_cache_read_tokens": 109})  # more than there are
    lines = [record(at, request_latency=50.0, **whole, **more) for at, more in enumerate(said)]
    path.write_text("\n".join(lines) + "\n")
    cached = convert("aiperf", path).column("cached_input_tokens")
    assert cached.isna().tolist() == [True, False, False, True]
    assert cached.dropna().tolist() == [0, 96]


def test_aiperfs_records_are_an_observed_trace(tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    whole = {
        "input_sequence_length": 100,
        "output_sequence_length": 3,
        "time_to_first_token": 20.5,
        "request_latency": 50.5,
        "inter_token_latency": 15.0,
        "inter_chunk_latency": [10.0, 20.0],
    }
    failed = record(30, error={"type": "Timeout", "message": "late"}, input_sequence_length=7)
    path.write_text("\n".join([record(10, **whole), record(0, phase="warmup", **whole), failed]) + "\n")
    trace = convert("aiperf", path)
    assert list(trace.column("status")) == ["ok", "ok", "error"]
    assert list(trace.column("send_time_us")) == [10_000, 0, 30_000]
    assert list(trace.column("phase")) == ["main", "warmup", "main"]
    metrics = request_metrics(trace)
    assert list(metrics["ttft_us"].dropna()) == [20_500, 20_500]
    assert list(metrics["e2e_us"].dropna()) == [50_500, 50_500]
    assert sorted(pooled_itl_us(trace)) == [10_000, 10_000, 20_000, 20_000]
    assert trace.column("error_message").iloc[2] == "Timeout: late"
    write_trace(trace, tmp_path / "t")
    assert check_trace(tmp_path / "t") == []
    path.write_text(record(1, **whole) + "\n{}\n")
    with pytest.raises(TraceError, match=r"profile_export\.jsonl:2: got KeyError: 'metadata'"):
        convert("aiperf", path)
