"""Files of known tools that hold no requests: figures of whole runs, or texts without lengths.

Each refusal names the file or the flag of the tool that has the requests. Sources: the tools' own writers, as the
importers of their other files name them; vllm 0.32.0 benchmarks/latency.py, throughput.py and datasets; sglang
bench_serving.py; the summaries of k6 and locust as their manuals show them.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A file that holds no requests: what it is, and which file or flag of its tool has them."""

    what: str
    instead: str
    has: tuple[str, ...]
    lacks: tuple[str, ...] = ()


_VLLM_DETAILED: Final = "`vllm bench serve --save-result --save-detailed` writes them"
_MEASURE: Final = (
    "texts have no lengths and no times: `vtwin observe --texts FILE` sends them and records both, or give lengths to "
    "`vtwin run` (--prompt-tokens, --output-tokens)"
)

FIGURES: Final = (
    Aggregate(
        what="the summary of aiperf or genai-perf",
        instead="the same folder has them: aiperf's profile_export.jsonl (--export-level records), genai-perf's "
        "profile_export.json",
        has=("request_latency", "request_throughput", "avg"),
        lacks=("metadata",),
    ),
    Aggregate(
        what="the summary of inference-perf",
        instead="its per_request_lifecycle_metrics.json has them (report.request_lifecycle.per_request: true)",
        has=("load_summary", "successes"),
    ),
    Aggregate(
        what="the summary of a session run of inference-perf",
        instead="its per_request_lifecycle_metrics.json has them (report.request_lifecycle.per_request: true)",
        has=("session_duration", "successes"),
    ),
    Aggregate(
        what="the settings of a genai-bench experiment",
        instead="the other JSON files of its folder have them, one a scenario and concurrency "
        "(individual_request_metrics)",
        has=("benchmark_version", "traffic_scenario"),
    ),
    Aggregate(
        what="the aggregated figures of genai-bench",
        instead="the whole file of the run has them beside these (individual_request_metrics)",
        has=("mean_output_throughput_tokens_per_s", "num_completed_requests", "run_duration"),
        lacks=("individual_request_metrics",),
    ),
    Aggregate(
        what="the summary of llmperf",
        instead="the *_individual_responses.json beside it has them",
        has=("results_ttft_s_mean", "results_num_requests_started"),
    ),
    Aggregate(
        what="the summary of llmperf",
        instead="the *_individual_responses.json beside it has them",
        has=("num_requests_started", "inter_token_latency_s", "quantiles"),
    ),
    Aggregate(
        what="a result of sglang.bench_serving without its requests",
        instead="`--output-details` writes them",
        has=("sharegpt_output_len", "request_throughput"),
        lacks=("input_lens",),
    ),
    Aggregate(
        what="a result of sglang.bench_serving without its requests",
        instead="`--output-details` writes them",
        has=("total_output_tokens_retokenized", "request_throughput"),
        lacks=("input_lens",),
    ),
    Aggregate(
        what="a result of vllm bench latency",
        instead=f"it times whole batches; {_VLLM_DETAILED}",
        has=("avg_latency", "latencies", "percentiles"),
    ),
    Aggregate(
        what="a result of vllm bench throughput",
        instead=f"it times one batch; {_VLLM_DETAILED}",
        has=("elapsed_time", "num_requests", "tokens_per_second"),
    ),
    Aggregate(
        what="the summary of vllm bench sweep",
        instead="the JSON file of each run in its folder has them, if the bench command has --save-detailed",
        has=("run_number", "mean_ttft_ms"),
        lacks=("input_lens",),
    ),
    Aggregate(
        what="results of vllm bench serve without their requests",
        instead="`--save-detailed` writes them",
        has=("mean_ttft_ms", "request_throughput"),
        lacks=("input_lens",),
    ),
    Aggregate(
        what="spans as OpenTelemetry's console exporter prints them",
        instead="as OTLP they can be read: the file exporter of a collector, or `vtwin receive`",
        has=("trace_id", "span_id", "parent_id", "attributes"),
    ),
    Aggregate(
        what="spans as Jaeger exports them",
        instead="as OTLP they can be read: the file exporter of a collector, or `vtwin receive`",
        has=("traceID", "spanID", "processes"),
    ),
    Aggregate(
        what="the summary of k6",
        instead="k6 does not count tokens; `vtwin observe` measures them",
        has=("http_req_duration", "metrics"),
    ),
    Aggregate(
        what="k6's stream of samples",
        instead="k6 does not count tokens; `vtwin observe` measures them",
        has=("type", "data", "metric"),
    ),
)
"""JSON files that hold figures of runs."""

TEXTS: Final = (
    Aggregate(
        what="conversations of the kind of ShareGPT",
        instead=_MEASURE,
        has=("conversations", "from", "value"),
    ),
    Aggregate(
        what="conversations of the kind of LMSYS-Chat",
        instead=_MEASURE,
        has=("conversation", "role", "content"),
    ),
    Aggregate(
        what="requests of a batch API",
        instead=_MEASURE,
        has=("custom_id", "body"),
    ),
    Aggregate(
        what="lists of messages",
        instead=_MEASURE,
        has=("messages", "role", "content"),
    ),
    Aggregate(
        what="prompts of vllm bench's custom dataset",
        instead=_MEASURE,
        has=("prompt",),
    ),
)
"""JSON files that hold texts whose tokens nobody has counted."""

TABLES: Final = (
    Aggregate(
        what="the summary of aiperf or genai-perf",
        instead="the same folder has them: aiperf's profile_export.jsonl (--export-level records), genai-perf's "
        "profile_export.json",
        has=("Metric", "avg", "p99"),
    ),
    Aggregate(
        what="guidellm's benchmarks.csv",
        instead="its benchmarks.json has them (`--outputs json`)",
        has=("Run Info",),
    ),
    Aggregate(
        what="guidellm's benchmarks.csv",
        instead="its benchmarks.json has them (`--outputs json`)",
        has=("Profile", "Successful Requests per Second mean"),
    ),
    Aggregate(
        what="guidellm's benchmarks.csv of before 0.4",
        instead="its benchmarks.json has them (`--output-path benchmarks.json`)",
        has=("Run Id", "Start Time", "End Time"),
    ),
    Aggregate(
        what="the summary of vllm bench sweep",
        instead="the JSON file of each run in its folder has them, if the bench command has --save-detailed",
        has=("mean_ttft_ms", "request_throughput"),
    ),
    Aggregate(
        what="the statistics of locust",
        instead="locust does not count tokens; `vtwin observe` measures them",
        has=("Name", "Request Count", "Failure Count"),
    ),
    Aggregate(
        what="k6's table of samples",
        instead="k6 does not count tokens; `vtwin observe` measures them",
        has=("metric_name", "metric_value"),
    ),
)
"""CSV files without requests, told by their columns."""
