"""A file of figures or of texts is refused by its name, and its refusal names where the requests are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traces import TraceError, format_of

STATISTIC = {"unit": "ms", "avg": 1.0, "p50": 1.0, "p99": 2.0}


@pytest.mark.parametrize(
    ("name", "content", "what", "instead"),
    [
        (
            "profile_export_aiperf.json",
            json.dumps(
                {
                    "request_throughput": STATISTIC,
                    "request_latency": STATISTIC,
                    "time_to_first_token": STATISTIC,
                }
            ),
            "the summary of aiperf or genai-perf",
            "profile_export.jsonl",
        ),
        (
            "profile_export_aiperf.csv",
            "Metric,avg,min,max,p99,p95,p90\nTime To First Token (ms),1,1,1,1,1,1\n",
            "the summary of aiperf or genai-perf",
            "profile_export.jsonl",
        ),
        (
            "summary_lifecycle_metrics.json",
            json.dumps({"load_summary": {"count": 3}, "successes": {"count": 3}, "failures": {"count": 0}}),
            "the summary of inference-perf",
            "per_request_lifecycle_metrics.json",
        ),
        (
            "experiment_metadata.json",
            json.dumps({"cmd": "genai-bench", "benchmark_version": "0.1", "traffic_scenario": ["D(1,1)"]}),
            "the settings of a genai-bench experiment",
            "individual_request_metrics",
        ),
        (
            "m_550_150_summary.json",
            json.dumps({"results_ttft_s_mean": 0.5, "results_num_requests_started": 80}),
            "the summary of llmperf",
            "individual_responses.json",
        ),
        (
            "online.jsonl",
            json.dumps({"backend": "sglang", "sharegpt_output_len": None, "request_throughput": 2.3}),
            "a result of sglang.bench_serving without its requests",
            "--output-details",
        ),
        (
            "latency.json",
            json.dumps({"avg_latency": 1.0, "latencies": [1.0], "percentiles": {"50": 1.0}}),
            "a result of vllm bench latency",
            "--save-detailed",
        ),
        (
            "throughput.json",
            json.dumps(
                {"elapsed_time": 1.0, "num_requests": 5, "total_num_tokens": 9, "tokens_per_second": 9.0}
            ),
            "a result of vllm bench throughput",
            "--save-detailed",
        ),
        (
            "summary.csv",
            "run_number,request_throughput,mean_ttft_ms\n0,1,2\n",
            "vllm bench sweep",
            "--save-detailed",
        ),
        ("stats.csv", "Type,Name,Request Count,Failure Count\nGET,/,3,0\n", "locust", "vtwin observe"),
        ("k6.csv", "metric_name,timestamp,metric_value\nhttp_reqs,1,1\n", "k6", "vtwin observe"),
        (
            "ShareGPT_V3.json",
            json.dumps([{"id": "a", "conversations": [{"from": "human", "value": "hello"}]}]),
            "ShareGPT",
            "`vtwin observe --texts FILE`",
        ),
        (
            "lmsys.jsonl",
            json.dumps({"conversation_id": "a", "conversation": [{"role": "user", "content": "hi"}]}),
            "LMSYS-Chat",
            "texts have no lengths and no times",
        ),
        ("prompts.jsonl", json.dumps({"prompt": "hello"}), "custom dataset", "`vtwin observe --texts FILE`"),
        (
            "chats.jsonl",
            json.dumps({"messages": [{"role": "user", "content": "hello"}]}),
            "lists of messages",
            "texts have no lengths and no times",
        ),
    ],
)
def test_a_file_without_requests_names_the_one_that_has_them(
    tmp_path: Path, name: str, content: str, what: str, instead: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(TraceError) as refused:
        format_of(path)
    said = str(refused.value)
    assert what in said
    assert instead.lower() in said.lower()
    assert "not a known format of requests" in said
    assert "\n" not in said


def test_what_only_mentions_such_words_in_a_text_is_another_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text(json.dumps({"note": 'the "prompt" and the "messages"'}))
    assert format_of(path) is None
