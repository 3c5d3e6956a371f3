"""What ``observe`` does with every column of TraceV2, as data: for the page of coverage, and tested to be complete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Treatment = Literal["sent", "recorded", "measured", "noted", "unused"]
"""``sent``: decides what is sent or when. ``recorded``: copied to the observed trace. ``measured``: filled in by the
run, whatever the workload says. ``noted``: cannot be sent; a line says so on stderr and in the header. ``unused``: only
a simulator fills it in; an observed trace does not have it."""


@dataclass(frozen=True, slots=True)
class ColumnCoverage:
    """The treatment of one column, and how."""

    treatment: Treatment
    how: str


def _measured(*names: str) -> dict[str, ColumnCoverage]:
    return {name: ColumnCoverage("measured", "as the answer came") for name in names}


COLUMN_COVERAGE: Final[Mapping[str, ColumnCoverage]] = {
    "request_id": ColumnCoverage("recorded", "names the row; a share of guided requests is picked by it"),
    "client_id": ColumnCoverage("recorded", "not part of a request"),
    "tenant_id": ColumnCoverage("sent", "header x-gateway-inference-fairness-id"),
    "slo_class": ColumnCoverage(
        "sent", "header x-gateway-inference-objective; priority with --class-priority"
    ),
    "vllm_priority": ColumnCoverage("sent", "priority of the body; recorded as it was sent"),
    "session_id": ColumnCoverage("sent", "requests of a session wait for each other"),
    "round_index": ColumnCoverage("sent", "order within the session"),
    "prefix_group": ColumnCoverage("sent", "prompts of a group begin alike"),
    "prefix_length": ColumnCoverage("sent", "as many tokens at the prompt's beginning are the group's"),
    "streaming": ColumnCoverage("noted", "all answers are streamed, or none with --no-streaming"),
    "input_tokens": ColumnCoverage("sent", "length of the prompt after the shared prefix"),
    "output_tokens": ColumnCoverage(
        "sent", "max_tokens and min_tokens, where max_tokens does not say them; refused where both are empty"
    ),
    "text_tokens": ColumnCoverage("recorded", "part of input_tokens"),
    "image_tokens": ColumnCoverage(
        "noted", "sent as as many tokens of text, or with --image-side as a picture"
    ),
    "images": ColumnCoverage(
        "noted", "sent as as many tokens of text, and not recorded; with --image-side as pictures"
    ),
    "audio_tokens": ColumnCoverage(
        "noted", "sent as as many tokens of text, or with --audio-seconds as one drawn sound"
    ),
    "video_tokens": ColumnCoverage(
        "noted", "sent as as many tokens of text, or with --video-frames as one drawn video"
    ),
    "reason_ratio": ColumnCoverage("noted", "the output is sent as ordinary output"),
    "model": ColumnCoverage(
        "sent", "model of the body where the server lists it and --model is not given; else noted"
    ),
    "deadline_us": ColumnCoverage(
        "sent", "the client gives up then; noted where an answer decides the send time"
    ),
    "cancel_after_us": ColumnCoverage("sent", "the client closes the connection then"),
    "cancel_after_tokens": ColumnCoverage("sent", "the client closes the connection once so many have come"),
    "slo_target_us": ColumnCoverage("sent", "header x-slo-ttft-ms; counts in goodput"),
    "server_input_tokens": ColumnCoverage(
        "measured", "the server's count, chat template included; what a workload has of it is not sent"
    ),
    "arrival_time_us": ColumnCoverage(
        "sent", "when the request is due; refused where it is empty in an open loop"
    ),
    "adapter": ColumnCoverage("sent", "model of the body where the server lists it; else noted"),
    "think_time_us": ColumnCoverage("sent", "pause after the answer before"),
    "max_tokens": ColumnCoverage(
        "sent", "length of the output in a workload, else where output_tokens is empty or the row failed"
    ),
    "parent_request_id": ColumnCoverage("sent", "its think time after the answer to that one"),
    "awaited_request_ids": ColumnCoverage("sent", "and after the answers to these"),
    "num_parent_hashes": ColumnCoverage("sent", "as prefix_hashes: the blocks of the one before come first"),
    "new_input_tokens": ColumnCoverage("sent", "what a round adds to the conversation so far"),
    "prefix_hashes": ColumnCoverage(
        "sent", "equal hashes are equal content; refused without the header's hash_block_size"
    ),
    "guided": ColumnCoverage(
        "sent", "with --guided: the body's structured_outputs or response_format; else noted"
    ),
    "network_rtt_us": ColumnCoverage("noted", "the real network takes its own time"),
    "network_bandwidth_mbps": ColumnCoverage("noted", "the real network takes its own time"),
    "phase": ColumnCoverage(
        "measured",
        "warm-up rows of a workload are not sent; those of --keep-warmup and --warm-start are marked",
    ),
    "x_request_id": ColumnCoverage("measured", "each request gets a new one"),
    **_measured(
        "send_time_us", "first_chunk_time_us", "last_chunk_time_us", "num_chunks", "status", "error_message"
    ),
    **_measured("finish_reason", "content_first_time_us", "last_token_time_us", "num_token_chunks"),
    **_measured("num_token_reads", "first_chunk_tokens", "reasoning_tokens", "hidden_tokens"),
    **_measured("first_token_early_us", "cancel_time_us", "visible_first_time_us", "num_tool_calls"),
    **_measured("http_dns_us", "http_connect_us", "http_tls_us", "http_send_us"),
    **_measured("cached_input_tokens", "server_queue_us", "server_prefill_us", "server_decode_us"),
    **_measured("dispatch_lag_us", "connection_wait_us", "first_byte_time_us", "attempt", "length_capped"),
    **{
        name: ColumnCoverage("unused", "of a simulation")
        for name in (
            *(
                "scheduled_time_us",
                "num_preemptions",
                "preempted_us",
                "num_cached_tokens",
                "cached_from",
                "num_loaded_tokens",
                "kv_load_us",
                "instance",
                "gateway_queue_us",
                "prefill_instance",
                "prefill_end_time_us",
                "kv_transfer_start_time_us",
                "kv_transfer_end_time_us",
                "itl_mean_us",
                "itl_p99_us",
            ),
        )
    },
}
