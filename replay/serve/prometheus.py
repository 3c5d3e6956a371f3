"""/metrics: counters, gauges and histograms under vLLM's names, in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from lazy_dataclasses import dataclass, field

from sim import UNBOUNDED, EngineConfig, View

# Upper ends of vLLM's histogram buckets, in seconds (vllm 0.32.0, as its /metrics lists them).
TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0),
    *(30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
LAG_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0)
"""Buckets, in s, of our own metric: how late after their time tokens are handed to the socket."""

SCHEDULER_FLAGS = (
    *("max_num_seqs", "max_num_batched_tokens", "enable_chunked_prefill", "long_prefill_token_threshold"),
    *("scheduler_reserve_full_isl", "scheduling_policy", "async_scheduling"),
)

FINISHED_REASONS = ("stop", "length", "abort", "error")


@dataclass(slots=True)
class BucketCounts:
    """Counts of observations by bucket (the last is +Inf), their sum and number; seconds."""

    buckets: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        """Start with empty buckets."""
        self.counts = [0] * (len(self.buckets) + 1)

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.buckets, seconds)] += 1
        self.total += seconds


LATE_S = 0.005
"""Where more than one token of a hundred is later than this, whoever measures is told."""


def lateness(counts: Sequence[BucketCounts]) -> str | None:
    """Return, in words, how late tokens reached their sockets; None where at most 1 % was later than ``LATE_S``."""
    upto = list(accumulate(map(sum, zip(*(each.counts for each in counts), strict=True))))
    late = [bound for bound, number in zip(LAG_BUCKETS, upto, strict=False) if number < 0.99 * upto[-1]]
    if not late or late[-1] < LATE_S:
        return None
    return (
        f"1 token of 100 was sent more than {late[-1] * 1000:g} ms after its time: this machine was too busy, and "
        "clients measured more than the twin's times"
    )


@dataclass(slots=True, kw_only=True)
class Metrics:
    """What the server counts itself; the engine's own state is read when /metrics is asked for."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FINISHED_REASONS, 0))
    ttft: BucketCounts = field(default_factory=lambda: BucketCounts(TTFT_BUCKETS))
    itl: BucketCounts = field(default_factory=lambda: BucketCounts(ITL_BUCKETS))
    tpot: BucketCounts = field(default_factory=lambda: BucketCounts(ITL_BUCKETS))
    e2e: BucketCounts = field(default_factory=lambda: BucketCounts(REQUEST_BUCKETS))
    queue: BucketCounts = field(default_factory=lambda: BucketCounts(REQUEST_BUCKETS))
    inference: BucketCounts = field(default_factory=lambda: BucketCounts(REQUEST_BUCKETS))
    prefill: BucketCounts = field(default_factory=lambda: BucketCounts(REQUEST_BUCKETS))
    decode: BucketCounts = field(default_factory=lambda: BucketCounts(REQUEST_BUCKETS))
    send_lag: BucketCounts = field(default_factory=lambda: BucketCounts(LAG_BUCKETS))


def exposition(
    metrics: Sequence[Metrics],
    views: Sequence[View | None],
    *,
    engines: Sequence[EngineConfig],
    model: str,
    num_instances: Mapping[str, int],
) -> str:
    """Return the page that /metrics serves; every series has its engine's number, as vLLM's data-parallel ranks do.

    An engine that is not there (``views`` None) has no series. ``num_instances``: of a fleet, by their state.
    """
    families: dict[str, list[str]] = {}
    if num_instances:
        name = "vtwin:instances"
        families["\n".join(_head(name, "gauge", "Instances of the fleet by their state."))] = [
            f"{name}{_labels({'state': state, 'model_name': model})} {float(number)}"
            for state, number in num_instances.items()
        ]
    for number, (counted, view, engine) in enumerate(zip(metrics, views, engines, strict=True)):
        if view is None:
            continue
        labels = {"engine": str(number), "model_name": model}
        for head, lines in _engine_families(counted, view, engine=engine, labels=labels):
            families.setdefault("\n".join(head), []).extend(lines)
    lines = [line for head, lines in families.items() for line in (head, *lines)]
    return "\n".join(lines) + "\n"


def _engine_families(
    metrics: Metrics, view: View, *, engine: EngineConfig, labels: Mapping[str, str]
) -> Iterable[tuple[tuple[str, str], list[str]]]:
    """Yield each family's head with one engine's lines."""
    for name, kind, text, value in _scalars(metrics, view, drafts_each=engine.num_speculative_tokens):
        yield _head(name, kind, text), [f"{name}{_labels(labels)} {float(value)}"]
    name = "vllm:request_success_total"
    yield (
        _head(name, "counter", "Finished requests by reason."),
        [
            f"{name}{_labels({**labels, 'finished_reason': reason})} {float(count)}"
            for reason, count in metrics.finished.items()
        ],
    )
    for name, text, histogram in _histograms(metrics):
        yield _head(name, "histogram", text), list(_histogram_lines(name, histogram, labels))
    yield _cache_config(engine, labels["engine"])
    yield _scheduler_config(engine, labels["engine"])


def _scalars(metrics: Metrics, view: View, *, drafts_each: int) -> Iterable[tuple[str, str, str, float]]:
    """Yield counters and gauges; ``drafts_each``: tokens that are drafted at a time, 0 for none."""
    yield "vllm:num_requests_running", "gauge", "Requests in the running batch.", view.num_running
    yield "vllm:num_requests_waiting", "gauge", "Requests waiting to be scheduled.", view.num_waiting
    yield "vllm:kv_cache_usage_perc", "gauge", "Share of KV blocks in use, 0 to 1.", view.kv_cache_usage_frac
    queries, hits = view.prefix_cache_queries, view.prefix_cache_hits
    yield "vllm:prefix_cache_queries_total", "counter", "Tokens looked up in the prefix cache.", queries
    yield "vllm:prefix_cache_hits_total", "counter", "Tokens found in the prefix cache.", hits
    if drafts_each:
        drafted, accepted = view.num_draft_tokens, view.num_accepted_tokens
        num_drafts = round(drafted / drafts_each)
        yield "vllm:spec_decode_num_drafts_total", "counter", "Times that tokens were drafted.", num_drafts
        yield "vllm:spec_decode_num_draft_tokens_total", "counter", "Tokens drafted and verified.", drafted
        yield "vllm:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens accepted.", accepted
    yield "vllm:num_preemptions_total", "counter", "Preemptions.", view.num_preemptions
    yield "vllm:prompt_tokens_total", "counter", "Prompt tokens prefilled.", metrics.prompt_tokens
    yield "vllm:generation_tokens_total", "counter", "Tokens generated.", metrics.generation_tokens


def _histograms(metrics: Metrics) -> Iterable[tuple[str, str, BucketCounts]]:
    yield "vllm:time_to_first_token_seconds", "From arrival to the first token.", metrics.ttft
    yield "vllm:inter_token_latency_seconds", "Between a request's tokens.", metrics.itl
    yield "vllm:request_time_per_output_token_seconds", "A request's mean gap of tokens.", metrics.tpot
    yield "vllm:e2e_request_latency_seconds", "From arrival to the last token.", metrics.e2e
    yield "vllm:request_queue_time_seconds", "Waiting in the queue.", metrics.queue
    yield "vllm:request_inference_time_seconds", "From first scheduled to the last token.", metrics.inference
    yield "vllm:request_prefill_time_seconds", "From first scheduled to the first token.", metrics.prefill
    yield "vllm:request_decode_time_seconds", "From the first token to the last.", metrics.decode
    yield "vtwin:send_lag_seconds", "How late tokens reached the socket.", metrics.send_lag


def _histogram_lines(name: str, histogram: BucketCounts, labels: Mapping[str, str]) -> Iterable[str]:
    so_far = 0
    ends = [str(float(end)) for end in histogram.buckets] + ["+Inf"]
    for end, count in zip(ends, histogram.counts, strict=True):
        so_far += count
        yield f"{name}_bucket{_labels({**labels, 'le': end})} {float(so_far)}"
    yield f"{name}_count{_labels(labels)} {float(so_far)}"
    yield f"{name}_sum{_labels(labels)} {histogram.total}"


def _cache_config(engine: EngineConfig, number: str) -> tuple[tuple[str, str], list[str]]:
    name = "vllm:cache_config_info"
    labels = {
        "block_size": str(engine.block_size),
        "enable_prefix_caching": str(engine.enable_prefix_caching),
        "engine": number,
        "num_gpu_blocks": "None" if engine.num_gpu_blocks == UNBOUNDED else str(engine.num_gpu_blocks),
    }
    return _head(name, "gauge", "The KV cache's configuration."), [f"{name}{_labels(labels)} 1.0"]


def _scheduler_config(engine: EngineConfig, number: str) -> tuple[tuple[str, str], list[str]]:
    """Return a metric of our own: vLLM's /metrics do not say the scheduler's flags."""
    name = "vtwin:scheduler_config_info"
    labels = {"engine": number, **{key: str(getattr(engine, key)) for key in SCHEDULER_FLAGS}}
    return _head(name, "gauge", "The scheduler's flags."), [f"{name}{_labels(labels)} 1.0"]


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _labels(labels: Mapping[str, str]) -> str:
    escaped = {key: value.replace("\\", r"\\").replace('"', r"\"") for key, value in sorted(labels.items())}
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
