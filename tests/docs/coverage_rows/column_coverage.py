"""What a simulation does with every column and header key of TraceV2, as data: for the page of coverage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from traces import Coverage, Treatment


def _each(treatment: Treatment, how: str, *names: str) -> dict[str, Coverage]:
    return {name: Coverage(treatment, how) for name in names}


LABEL = "servers ignore it"

HANDOFF = ("prefill_instance", "prefill_end_time_us", "kv_transfer_start_time_us", "kv_transfer_end_time_us")
"""Columns of a request whose prompt another instance computed."""

COLUMN_COVERAGE: Final[Mapping[str, Coverage]] = {
    **_each("kept", "names the row", "request_id"),
    **_each("kept", LABEL, "client_id", "x_request_id"),
    "tenant_id": Coverage("kept", f"{LABEL}; a cluster's budgets and fairness do"),
    "slo_class": Coverage("modelled", "priority where the policy goes by it; targets and goodput by class"),
    "vllm_priority": Coverage(
        "modelled", "where the policy goes by priority; fcfs ignores it, which is noted"
    ),
    "session_id": Coverage(
        "noted",
        "rounds share what was said before; sent at their recorded times; without, after the simulated answers",
    ),
    "round_index": Coverage("noted", "order within the session; as session_id"),
    "think_time_us": Coverage("noted", "in the recorded times; as session_id"),
    "parent_request_id": Coverage("modelled", "sent its think time after the simulated answer to that one"),
    "awaited_request_ids": Coverage("modelled", "and after the simulated answers to these"),
    "num_parent_hashes": Coverage("modelled", "as prefix_hashes: the blocks of the one before come first"),
    "new_input_tokens": Coverage("modelled", "rounds share what was said before; noted beside prefix_hashes"),
    "prefix_group": Coverage("modelled", "requests of a group share blocks; noted beside prefix_hashes"),
    "prefix_length": Coverage("modelled", "as prefix_group"),
    "prefix_hashes": Coverage(
        "modelled", "equal hashes are equal blocks; refused in blocks that do not divide"
    ),
    "streaming": Coverage("noted", "an answer in one piece has the engine's first token as its TTFT"),
    "input_tokens": Coverage(
        "modelled", "prompt length after the prefix, where the server's own count is not recorded"
    ),
    "server_input_tokens": Coverage("modelled", "prompt length, prefix included"),
    "output_tokens": Coverage("modelled", "answer length, as served; of a failed request max_tokens"),
    "max_tokens": Coverage(
        "modelled",
        "answer length where output_tokens is empty or the request failed; above it, the answer ends by itself",
    ),
    "finish_reason": Coverage(
        "modelled",
        "other than length, the answer ends by itself: async scheduling decodes once more; filled again",
    ),
    **_each("kept", "part of input_tokens", "text_tokens"),
    **_each(
        "noted",
        "part of input_tokens; an encoder's time with engine.encoder_token_us",
        "image_tokens",
        "audio_tokens",
        "video_tokens",
    ),
    "images": Coverage(
        "modelled",
        "encoded one by one, as the encoder's budget and cache allow; text with language_model_only",
    ),
    "reason_ratio": Coverage("kept", "reasoning tokens are output tokens, one as long as another"),
    "model": Coverage("noted", "no prefix is shared between models; several run on one simulated server"),
    "adapter": Coverage(
        "noted",
        "no prefix is shared between adapters; their time and number with engine.lora_load_us, lora_step_factor and "
        "max_loras",
    ),
    "guided": Coverage("noted", "a grammar's time with engine.guided_compile_us and guided_mask_us"),
    "deadline_us": Coverage(
        "modelled", "the request is given up then; where an answer lets it go, as long after it is sent"
    ),
    "cancel_after_us": Coverage(
        "modelled", "as deadline_us, from its sending; the status is then `cancelled`"
    ),
    "cancel_after_tokens": Coverage(
        "modelled", "the answer ends there, and the scheduler hears of it a step too late"
    ),
    "slo_target_us": Coverage("modelled", "goodput"),
    "arrival_time_us": Coverage(
        "modelled", "when the request reaches the server, where no send time is recorded"
    ),
    "send_time_us": Coverage("modelled", "when the request reaches the server (--at); then as it came about"),
    "network_rtt_us": Coverage(
        "modelled", "the way there and back, in an open loop; noted where answers set the pace"
    ),
    "network_bandwidth_mbps": Coverage(
        "modelled", "upload and download of 4 bytes a token; as network_rtt_us"
    ),
    "phase": Coverage("modelled", "warm-up is simulated, and in no latency"),
    "attempt": Coverage("kept", "the last time's send time counts"),
    "instance": Coverage("noted", "one server is simulated for all; with a cluster where the router sent it"),
    "gateway_queue_us": Coverage("filled", "as simulated, with a cluster whose gateway has a queue"),
    **_each("filled", "as simulated, with prefill and decode pools", *HANDOFF),
    **_each("filled", "as simulated", "first_chunk_time_us", "content_first_time_us", "last_chunk_time_us"),
    **_each("filled", "as simulated", "last_token_time_us", "status", "length_capped"),
    **_each("filled", "as simulated", "server_queue_us", "server_prefill_us", "server_decode_us"),
    **_each("filled", "as simulated", "scheduled_time_us", "num_preemptions", "num_cached_tokens"),
    **_each("filled", "as simulated", "preempted_us", "cancel_time_us"),
    **_each(
        "filled", "as simulated, with native KV offloading", "cached_from", "num_loaded_tokens", "kv_load_us"
    ),
    **_each("filled", "as simulated", "itl_mean_us", "itl_p99_us"),
    **_each("left out", "of a client's connection", "num_chunks", "num_token_chunks", "first_byte_time_us"),
    **_each("left out", "of a client's connection", "num_token_reads", "first_chunk_tokens"),
    **_each("left out", "of a client's connection", "first_token_early_us"),
    **_each(
        "left out",
        "of a client's connection",
        "http_dns_us",
        "http_connect_us",
        "http_tls_us",
        "http_send_us",
    ),
    **_each("left out", "simulated as any other output", "reasoning_tokens", "hidden_tokens"),
    **_each("left out", "simulated as any other output", "visible_first_time_us", "num_tool_calls"),
    **_each("left out", "of a client's connection", "connection_wait_us", "dispatch_lag_us", "error_message"),
    "cached_input_tokens": Coverage("left out", "the simulator's own count is num_cached_tokens"),
}
"""What ``replay`` and ``run`` do with a column; ``calibrate`` simulates likewise."""

HEADER_COVERAGE: Final[Mapping[str, Coverage]] = {
    **_each("kept", "says what the file is", "trace_version", "time_unit", "created_at", "source", "rebased"),
    **_each("kept", "says how the workload was made", "workload_seed", "workload_spec", "rate_per_s"),
    **_each(
        "filled", "of the simulation", "mode", "tool", "tool_version", "command", "seed", "config_digest"
    ),
    "warm_up_requests": Coverage("modelled", "as many rows are warm-up"),
    "session_context_growth": Coverage("kept", "new_input_tokens says it of each row"),
    "server": Coverage(
        "noted", "where the twin has other flags; `config from-serve --from-trace` makes a TWIN.yaml of it"
    ),
    "network": Coverage("kept", "`calibrate --network rtt=measured` takes it"),
    "goodput_slo_targets": Coverage("modelled", "goodput by class"),
    "kv_offload": Coverage(
        "noted",
        "where the twin has no second KV tier; `config from-serve --from-trace` makes one of its size",
    ),
    "observed_kv_metrics": Coverage("kept", "a server's own counters"),
    "start_unix_us": Coverage("kept", "when the recorded run began"),
    "closed_loop": Coverage(
        "modelled", "simulated answers let the next requests go; waves as they were sent"
    ),
    "hash_block_size": Coverage("modelled", "of prefix_hashes"),
    "client": Coverage("modelled", "its cap on requests in flight; the rest says how well it sent"),
    "findings": Coverage("left out", "of the run that was measured"),
    "metrics_delta": Coverage("kept", "calibrate compares preemptions and cache hits"),
    **_each("left out", "of the run that was measured", "probes", "power"),
    "spec_decode": Coverage(
        "modelled",
        "`config from-serve --from-trace` takes its acceptance; noted where the twin has no drafts",
    ),
    "noise_floor": Coverage("kept", "calibrate and compare take the server's noise from it"),
}
"""How ``replay`` and ``run`` use a header's keys."""
