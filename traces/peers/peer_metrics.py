"""Names that other tools give to figures, and vtwin's own: for messages and docs/reference/metric-names.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from lazy_dataclasses import dataclass
from typing import Final

RUN, SIZE, SPLIT, FLEX = "run", "fleet size", "fleet size --layout split", "fleet flex"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerMetric:
    """A figure of another tool. ``path``: ours, in the JSON of ``command``, "" where there is none.

    ``limit``: as ``--slo`` has it, "" where it takes no limit on it; ``note``: what differs, or what to look at.
    """

    whose: str
    path: str = ""
    limit: str = ""
    command: str = RUN
    note: str = ""


def _latencies() -> Iterator[tuple[str, PeerMetric]]:
    """Yield BLIS's and vllm bench's names of latencies: statistics in ms."""
    for metric in ("ttft", "tpot", "itl", "e2e"):
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            found = {"path": f"{metric}_us.{statistic}", "limit": f"{metric}_{statistic}"}
            if metric != "tpot" and statistic != "p50":
                yield f"{metric}_{statistic}_ms", PeerMetric(whose="BLIS's", **found)
            named, bench = (
                ("median" if statistic == "p50" else statistic),
                ("e2el" if metric == "e2e" else metric),
            )
            yield f"{named}_{bench}_ms", PeerMetric(whose="vllm bench's", **found)


def _of_blis() -> Iterator[tuple[str, PeerMetric]]:
    whose, on_requests = "BLIS's", "of each request: in the trace of --output, in µs"
    for name, path, note in (
        ("completed_requests", "num_by_status.ok", ""),
        ("injected_requests", "num_requests", ""),
        ("still_queued", "num_by_status", "incomplete there: requests under way when --horizon ends"),
        ("still_running", "num_by_status", "incomplete there: requests under way when --horizon ends"),
        ("dropped_unservable", "num_by_status", "rejected there"),
        ("timed_out_requests", "num_by_status", "timeout there"),
        ("length_capped_requests", "num_length_capped", ""),
        ("total_input_tokens", "prompt_tokens.mean", "times its n"),
        ("total_output_tokens", "output_tokens.mean", "times its n"),
        ("vllm_estimated_duration_s", "duration_us", "from the first arrival, not from time 0"),
        ("responses_per_sec", "request_throughput", ""),
        ("tokens_per_sec", "output_token_throughput", ""),
        ("scheduling_delay_p99_ms", "queue_us.p99", "front end's time left out: ttft_parts_us has it"),
        ("kv_allocation_failures", "num_kv_allocation_failures", ""),
        ("preemption_count", "num_preemptions", ""),
        ("cache_hit_rate", "prefix_hit_frac", ""),
        ("goodput_rps", "goodput.good_per_s", ""),
        ("slo_attainment", "goodput.good_frac", ""),
        ("per_class", "groups", "by SLO class, tenant, adapter and session"),
        ("saturation", "verdict", "in a word, with verdict_stretches and load"),
        ("jain_fairness", "groups.tenant_jain_fairness", ""),
        ("adapters", "groups", "of each adapter; loads are in the instances of over_time"),
        ("ttft_ms", "ttft_us", on_requests),
        ("itl_ms", "itl_us", on_requests),
        ("e2e_ms", "e2e_us", on_requests),
        ("scheduling_delay_ms", "queue_us", on_requests),
        ("gateway_queue_delay_ms", "ttft_parts_us.front_end", on_requests),
    ):
        limit = name.partition("_")[0] if name in ("ttft_ms", "itl_ms", "e2e_ms") else ""
        yield name, PeerMetric(whose=whose, path=path, limit=limit, note=note)
    for name in (
        "requestID",
        "arrived_at",
        "num_prefill_tokens",
        "num_decode_tokens",
        "handled_by",
        "round_index",
    ):
        yield (
            name,
            PeerMetric(
                whose=whose, note="a column of the trace of --output (docs/reference/trace-fields.md)"
            ),
        )


_BY_TOKENS: Final = "by the output tokens of each request"
_OF_VIDUR: Final = (
    ("request_e2e_time", "e2e_us", "e2e", ""),
    ("request_e2e_time_normalized", "e2e_us_per_token", "", _BY_TOKENS),
    ("request_execution_time", "e2e_us", "", "less queue_us and preempted_us"),
    ("request_execution_plus_preemption_time", "e2e_us", "", "less queue_us"),
    ("request_execution_plus_preemption_time_normalized", "e2e_us_per_token", "", "with the queue in it"),
    ("request_preemption_time", "preempted_us", "", ""),
    ("request_scheduling_delay", "queue_us", "", ""),
    ("request_num_restarts", "num_preemptions", "", "of all requests together"),
    ("request_num_tokens", "prompt_tokens", "", "and output_tokens"),
    ("request_num_prefill_tokens", "prompt_tokens", "", ""),
    ("request_num_decode_tokens", "output_tokens", "", ""),
    ("request_pd_ratio", "prompt_output_ratio", "", ""),
    (
        "request_inter_arrival_delay",
        "offered_rate_per_s",
        "",
        "its inverse; arrivals are in the trace of --output",
    ),
    ("prefill_e2e_time", "ttft_us", "ttft", ""),
    ("prefill_time_e2e", "ttft_us", "ttft", ""),
    ("prefill_time_execution_plus_preemption", "ttft_parts_us.prefill", "", ""),
    ("decode_time_execution_plus_preemption_normalized", "tpot_us", "tpot", ""),
    ("decode_token_execution_plus_preemption_time", "itl_us", "itl", ""),
    ("batch_num_tokens", "steps.num_tokens", "", ""),
    ("batch_num_prefill_tokens", "steps.num_prefill_tokens_mean", "", "the mean; --steps has each"),
    ("batch_num_decode_tokens", "steps.num_decode_tokens_mean", "", "the mean; --steps has each"),
    ("batch_size", "steps.num_seqs", "", ""),
    ("batch_execution_time", "steps.duration_us", "", ""),
    ("replica_memory_usage", "over_time.fleet.kv_usage_frac", "", "the KV cache's share, over time"),
    ("replica_stage_busy_time_percent", "over_time.fleet.busy_frac", "", "a share, over time"),
    ("replica_stage_mfu", "over_time.fleet.mfu_frac", "", "a share, over time"),
    ("request_arrivals", "over_time.num_arrived", "", ""),
    ("request_completions", "over_time.fleet.num_completed", "", ""),
)
"""Names, and our paths, limits and notes."""
_OPERATORS: Final = (
    *(
        "mlp_up_proj",
        "mlp_down_proj",
        "mlp_act",
        "attn_pre_proj",
        "attn_post_proj",
        "attn_prefill",
        "attn_decode",
    ),
    *("attn_kv_cache_save", "attn_rope", "attn_norm", "mlp_norm", "add_norm", "all_reduce"),
    *("pipeline_send_recv", "schedule", "sampler_e2e", "prepare_inputs_e2e", "process_model_outputs"),
)
"""Vidur's names of a step's parts."""


def _of_vidur() -> Iterator[tuple[str, PeerMetric]]:
    for name, path, limit, note in _OF_VIDUR:
        yield name, PeerMetric(whose="Vidur's", path=path, limit=limit, note=note)
    for name in _OPERATORS:
        yield (
            name,
            PeerMetric(whose="Vidur's", path="operator_times", note="with --operator-times, by operator"),
        )
    yield (
        "ray_comm_time",
        PeerMetric(whose="Vidur's", note="not modelled: vLLM's workers are no Ray actors here"),
    )


def _of_fleets() -> Iterator[tuple[str, PeerMetric]]:
    for name, command, path, limit, note in (
        ("n_gpus", SIZE, "gpus", "", ""),
        ("total_gpus", SIZE, "gpus", "", ""),
        ("n_slots", SIZE, "pools[].slots", "", ""),
        ("p99_wait_ms", SIZE, "pools[].p99_wait_us", "", ""),
        ("utilization", SIZE, "pools[].utilization", "", "of the seats"),
        ("mean_service_time", SIZE, "pools[].service_us", "", "of a full engine"),
        ("cost_per_hr", SIZE, "cost_per_hour", "", ""),
        ("annual_cost_usd", SIZE, "cost_per_year", "", "in the currency of --prices"),
        ("p99_short", SPLIT, "splits[].short.ttft_p99_s", "", ""),
        ("p99_long", SPLIT, "splits[].long.ttft_p99_s", "", ""),
        ("worst_p99", SPLIT, "splits[].short.ttft_p99_s", "", "the larger of short and long"),
        ("savings", SPLIT, "splits[].saving", "", "a fraction, not per cent"),
        ("pareto", SPLIT, "splits[].is_best", "", ""),
        ("total_preempted", RUN, "num_preemptions", "", ""),
        ("grid_flex", FLEX, "cuts[].shed_w", "", ""),
        ("pool_pressure", RUN, "over_time.pools", "", "running and waiting of each pool, over time"),
    ):
        yield (
            name,
            PeerMetric(
                whose="the vLLM fleet simulator's", path=path, limit=limit, command=command, note=note
            ),
        )


def _of_load_generators() -> Iterator[tuple[str, PeerMetric]]:
    for name, path in (
        ("request_goodput", "goodput.good_per_s"),
        ("output_throughput", "output_token_throughput"),
        ("total_input", "prompt_tokens.mean"),
        ("total_output", "output_tokens.mean"),
    ):
        yield name, PeerMetric(whose="vllm bench's", path=path, note="times its n" if "total" in name else "")
    for name, metric in (
        ("time_to_first_token", "ttft"),
        ("inter_token_latency", "itl"),
        ("time_per_output_token", "tpot"),
        ("request_latency", "e2e"),
    ):
        yield name, PeerMetric(whose="aiperf's", path=f"{metric}_us", limit=metric)


PEER_METRICS: Final[Mapping[str, PeerMetric]] = {
    name: metric
    for found in (_of_fleets(), _of_load_generators(), _latencies(), _of_vidur(), _of_blis())
    for name, metric in found
}
"""Every figure by its name; where two tools have the same name, the one that stands last."""


def own_limit(given: str) -> str:
    """Return what to write after ``--slo`` in place of another tool's name, with whose it is; "" where nothing is."""
    found = PEER_METRICS.get(given)
    if found is None:
        return ""
    if found.limit:
        return f"{given} is {found.whose} name for {found.limit}"
    return f"{given} is {found.whose}, and no limit here; {own_figure(given)}"


def own_figure(given: str) -> str:
    """Return where another tool's figure stands here, "" where the name is not one of theirs."""
    found = PEER_METRICS.get(given)
    if found is None:
        return ""
    if not found.path:
        return found.note
    return f"it is {found.path} of vtwin {found.command} --json" + (f" ({found.note})" if found.note else "")
