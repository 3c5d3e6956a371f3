"""The one table of TraceV2's fields: it drives reader, writer, checker and the generated reference page.

Light on purpose (no numpy, no pandas), so that a command's help may import it.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Final, Literal

from traces.strict.limits import MOST_TOKENS, MOST_US

DType = Literal["string", "int", "float", "bool"]
Origin = Literal["base", "optional", "vtwin"]
ZeroIsMissing = Literal["never", "always", "real", "simulated"]

PANDAS_DTYPE: Final[dict[DType, str]] = {
    "string": "string",
    "int": "Int64",
    "float": "Float64",
    "bool": "boolean",
}

STATUSES: Final = ("ok", "error", "timeout", "aborted", "rejected", "stuck", "incomplete", "cancelled")
PHASES: Final = ("warmup", "main")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One column of a trace's table.

    ``origin``: ``base`` is one of BLIS's 27 columns, always written, in its place; ``optional`` is BLIS's too
    but written only when a row needs it; ``vtwin`` is ours, trailing, written when a row needs it.
    ``required``: the column must be in the file. ``nullable``: a cell may be empty.
    ``zero_is_missing``: the modes in which a BLIS file's 0 means "not recorded" (``traces.tables.blis_conventions``).
    """

    name: str
    dtype: DType
    unit: str
    origin: Origin
    meaning: str
    required: bool = False
    nullable: bool = True
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    zero_is_missing: ZeroIsMissing = "never"

    @property
    def limit(self) -> int | None:
        """The largest number that a cell may hold, None without a limit."""
        if self.maximum is not None or self.dtype != "int":
            return self.maximum
        return {"tokens": MOST_TOKENS, "µs": MOST_US}.get(self.unit)

    @property
    def expected(self) -> str:
        """The allowed content of a cell, in words, for an error message."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        noun = {"string": "text", "int": "an integer", "float": "a number", "bool": "true or false"}[
            self.dtype
        ]
        if self.minimum is not None and self.maximum is not None:
            return f"{noun} in [{self.minimum}, {self.maximum}]"
        if self.minimum is not None:
            return f"{noun} >= {self.minimum}"
        return noun


def _text(name: str, origin: Origin, meaning: str, *, choices: tuple[str, ...] = ()) -> Field:
    return Field(name=name, dtype="string", unit="", origin=origin, meaning=meaning, choices=choices)


def _count(name: str, origin: Origin, meaning: str, *, unit: str, zero: ZeroIsMissing = "never") -> Field:
    return Field(
        name=name, dtype="int", unit=unit, origin=origin, meaning=meaning, minimum=0, zero_is_missing=zero
    )


def _time(name: str, origin: Origin, meaning: str, *, zero: ZeroIsMissing = "never") -> Field:
    return Field(
        name=name, dtype="int", unit="µs", origin=origin, meaning=meaning, minimum=0, zero_is_missing=zero
    )


REQUEST_FIELDS: Final[tuple[Field, ...]] = (
    Field(
        name="request_id",
        dtype="string",
        unit="",
        origin="base",
        meaning="Name of the request, unique in the trace; often a number, always text in memory.",
        required=True,
        nullable=False,
    ),
    _text("client_id", "base", "Client of the workload specification that the request was drawn from."),
    _text("tenant_id", "base", "Tenant the request is accounted to."),
    _text(
        "slo_class", "base", "Service class: critical, standard, batch, sheddable, background, or one's own."
    ),
    Field(
        name="vllm_priority",
        dtype="int",
        unit="",
        origin="optional",
        meaning="Priority sent to the server; lower is more urgent, may be negative.",
    ),
    _text("session_id", "base", "Session the request belongs to."),
    _count("round_index", "base", "Place of the request in its session, from 0.", unit="rounds"),
    _text(
        "prefix_group",
        "base",
        "Requests of one group share as many leading tokens as the shorter `prefix_length`.",
    ),
    Field(
        name="prefix_length",
        dtype="int",
        unit="tokens",
        origin="base",
        meaning="Leading tokens shared with the prefix group; an empty cell, or no such column, is 0.",
        minimum=0,
    ),
    Field(
        name="streaming",
        dtype="bool",
        unit="",
        origin="base",
        meaning="Whether the answer was asked for as a stream of events.",
    ),
    Field(
        name="input_tokens",
        dtype="int",
        unit="tokens",
        origin="base",
        meaning="Prompt tokens without the shared prefix.",
        required=True,
        nullable=False,
        minimum=0,
    ),
    Field(
        name="output_tokens",
        dtype="int",
        unit="tokens",
        origin="base",
        meaning="Tokens generated; in a workload, to be generated. Empty if not known of a failed request.",
        required=True,
        minimum=0,
    ),
    _count("text_tokens", "base", "Text tokens of a multimodal prompt.", unit="tokens"),
    _count("image_tokens", "base", "Image tokens of a multimodal prompt.", unit="tokens"),
    _count("audio_tokens", "base", "Audio tokens of a multimodal prompt.", unit="tokens"),
    _count("video_tokens", "base", "Video tokens of a multimodal prompt.", unit="tokens"),
    Field(
        name="reason_ratio",
        dtype="float",
        unit="fraction",
        origin="base",
        meaning="Share of the output that is reasoning.",
        minimum=0,
        maximum=1,
    ),
    _text("model", "base", "Model the request asked for; empty means the run's."),
    _time("deadline_us", "base", "When the client gives up, from the run's start.", zero="always"),
    _time("slo_target_us", "optional", "Target for the time to the first token.", zero="always"),
    _count(
        "server_input_tokens",
        "base",
        "Prompt tokens as the server counted them, prefix and chat template included.",
        unit="tokens",
        zero="always",
    ),
    Field(
        name="arrival_time_us",
        dtype="int",
        unit="µs",
        origin="base",
        meaning="When the request was due, from the run's start. Empty only where an answer decides it: in a "
        "closed loop or a session, after the first round, before it has run.",
        required=True,
        minimum=0,
    ),
    _time("send_time_us", "base", "When the request was sent.", zero="real"),
    _time(
        "first_chunk_time_us",
        "base",
        "When the first event came, which may carry no text (a role, an empty delta).",
        zero="always",
    ),
    _time("last_chunk_time_us", "base", "When the last event came, the usage event included.", zero="always"),
    _count("num_chunks", "base", "Events received.", unit="events", zero="simulated"),
    _text("status", "base", "Outcome of the request; empty in a workload.", choices=STATUSES),
    _text("error_message", "base", "What went wrong, in the words of the server or the client."),
    _text("finish_reason", "base", "Why the server stopped: stop, length, ..."),
    _text("x_request_id", "optional", "Identifier sent in the header of the same name."),
    _text("adapter", "optional", "LoRA adapter asked for."),
    _time(
        "think_time_us",
        "optional",
        "Pause between the answer to the session's previous round and this request.",
        zero="always",
    ),
    _time("content_first_time_us", "vtwin", "When the first event that carries text came."),
    _time(
        "last_token_time_us", "vtwin", "When the last event that carries text came, the usage event excluded."
    ),
    _count("num_token_chunks", "vtwin", "Events that carried text.", unit="events"),
    _count(
        "num_token_reads",
        "vtwin",
        "Reads that these events came in, where several came in one; empty: as many.",
        unit="reads",
    ),
    _count(
        "first_chunk_tokens",
        "vtwin",
        "Tokens of the first event with text, and of those in the same read. Empty: 1, or not known.",
        unit="tokens",
    ),
    _time(
        "first_token_early_us",
        "vtwin",
        "By how much the first event with text may have come before its time, at most: its read brought further ones, "
        "and has the time of the last. Empty: it came alone.",
    ),
    _count(
        "reasoning_tokens",
        "vtwin",
        "Of `output_tokens`, reasoning (`usage.completion_tokens_details.reasoning_tokens`).",
        unit="tokens",
    ),
    _count(
        "hidden_tokens",
        "vtwin",
        "Of `output_tokens`, reasoning that the server did not stream. Empty: none.",
        unit="tokens",
    ),
    _time(
        "visible_first_time_us",
        "vtwin",
        "First text that is no reasoning, of an answer that has reasoning. Empty: it has none.",
    ),
    _count(
        "num_tool_calls",
        "vtwin",
        "Tools that the answer called (`tool_calls`). Empty: none.",
        unit="calls",
    ),
    _count(
        "cached_input_tokens",
        "vtwin",
        "Prompt tokens the server found in its prefix cache (`usage.prompt_tokens_details.cached_tokens`).",
        unit="tokens",
    ),
    _time(
        "server_queue_us",
        "vtwin",
        "Time in the server's queue (vLLM's `queue_time_ms`), from the first step boundary on.",
    ),
    _time(
        "server_prefill_us",
        "vtwin",
        "From scheduling to the first token (vLLM's `time_to_first_token_ms`, which starts at scheduling).",
    ),
    _time("server_decode_us", "vtwin", "From the first token to the last (vLLM's `generation_time_ms`)."),
    _count(
        "max_tokens",
        "vtwin",
        "Output budget that was asked for: what is sent again, and what a failed request is simulated with.",
        unit="tokens",
    ),
    _time(
        "cancel_after_us", "vtwin", "When its client cuts the request, from its sending. Empty: it does not."
    ),
    _count(
        "cancel_after_tokens",
        "vtwin",
        "After how many tokens its client cuts the request. Empty: it does not.",
        unit="tokens",
    ),
    _time("cancel_time_us", "vtwin", "When its client cut the request (status `cancelled`)."),
    Field(
        name="dispatch_lag_us",
        dtype="int",
        unit="µs",
        origin="vtwin",
        meaning="Actual send minus intended send; the client's own lateness.",
    ),
    _time(
        "connection_wait_us",
        "vtwin",
        "Time spent opening or waiting for a connection; 0 when one was reused.",
    ),
    _time(
        "http_dns_us", "vtwin", "Of `connection_wait_us`, looking up the server's name. Empty: no look-up."
    ),
    _time(
        "http_connect_us",
        "vtwin",
        "Of `connection_wait_us`, opening the TCP connection. Empty: one was reused.",
    ),
    _time("http_tls_us", "vtwin", "Of `connection_wait_us`, the TLS handshake. Empty: none."),
    _time(
        "http_send_us",
        "vtwin",
        "From `send_time_us` until the client's machine had taken the request's last byte: longer than a moment where "
        "the server reads slowly.",
    ),
    _time("first_byte_time_us", "vtwin", "When the first byte of the response came."),
    _text(
        "phase", "vtwin", "Whether the request warmed the server up or counts; empty counts.", choices=PHASES
    ),
    Field(
        name="attempt",
        dtype="int",
        unit="",
        origin="vtwin",
        meaning="How often the request was sent: above 1 it was retried, and times from `send_time_us` on are "
        "those of the last time.",
        minimum=1,
    ),
    _count(
        "new_input_tokens",
        "vtwin",
        "Of the prompt, the tokens that this round added; before them stand the session's previous prompt and "
        "its answer. Empty where rounds do not build on each other.",
        unit="tokens",
    ),
    _text(
        "parent_request_id",
        "vtwin",
        "Request of an earlier row of the session that this one goes on from: it is sent `think_time_us` after that "
        "answer. Several may go on from one: branches. Empty: the request begins by itself, or `round_index` says.",
    ),
    _text(
        "awaited_request_ids",
        "vtwin",
        "Further requests of earlier rows, separated by spaces, whose answers it waits for, too: branches that join.",
    ),
    _count(
        "num_parent_hashes",
        "vtwin",
        "How many of the leading block hashes of `parent_request_id` the prompt begins with; `prefix_hashes` goes on "
        "behind them.",
        unit="blocks",
    ),
    _text(
        "prefix_hashes",
        "vtwin",
        "Hashes of the prompt's blocks of `hash_block_size` tokens, separated by spaces; equal means equal "
        "tokens up to that block's end. The last may cover a partial block.",
    ),
    _text(
        "images",
        "vtwin",
        "Where a prompt's images are: `position:tokens` or `position:tokens:content` of each, separated by spaces, by "
        "position from the prompt's start, prefix included. Equal contents are the same image; without one, it is "
        "shown nowhere else. Part of `image_tokens`.",
    ),
    Field(
        name="guided",
        dtype="bool",
        unit="",
        origin="vtwin",
        meaning="Whether the answer was held to a grammar (vLLM's structured outputs).",
    ),
    _time(
        "network_rtt_us",
        "vtwin",
        "Round trip between client and server, which a simulated client's times include.",
    ),
    Field(
        name="network_bandwidth_mbps",
        dtype="float",
        unit="Mbit/s",
        origin="vtwin",
        meaning="Bandwidth between client and server, 4 bytes a token; empty: no limit.",
        minimum=0,
    ),
    _time("scheduled_time_us", "vtwin", "When the request was first scheduled."),
    _count("num_preemptions", "vtwin", "How often the request was preempted.", unit="preemptions"),
    _time("preempted_us", "vtwin", "Time from being preempted to being scheduled again, all times together."),
    Field(
        name="length_capped",
        dtype="bool",
        unit="",
        origin="vtwin",
        meaning="Whether the server's `max_model_len` cut the answer short; empty is no.",
    ),
    _count(
        "num_cached_tokens",
        "vtwin",
        "Prompt tokens found in the simulator's prefix cache when first scheduled.",
        unit="tokens",
    ),
    _text(
        "cached_from",
        "vtwin",
        "Where these were found: on the GPU, in host memory or a shared store (cpu), or both; empty where none were or "
        "there is no such tier.",
        choices=("gpu", "cpu", "gpu+cpu"),
    ),
    _count(
        "num_loaded_tokens",
        "vtwin",
        "Of these, tokens that were loaded from host memory (native KV offloading).",
        unit="tokens",
    ),
    _time("kv_load_us", "vtwin", "Time from asking for blocks in host memory until they were there, summed."),
    _text("instance", "vtwin", "Instance that the request was sent to: its number, or `pool/number`."),
    _text(
        "prefill_instance",
        "vtwin",
        "Instance that computed the prompt, where `instance` only decoded; empty where it did both.",
    ),
    _time("prefill_end_time_us", "vtwin", "When the prefill instance's answer, one token, was there."),
    _time("kv_transfer_start_time_us", "vtwin", "When the decode instance asked for the prompt's KV."),
    _time("kv_transfer_end_time_us", "vtwin", "When the prompt's KV was there."),
    _time("gateway_queue_us", "vtwin", "Time in the queue in front of a cluster's instances."),
    Field(
        name="itl_mean_us",
        dtype="float",
        unit="µs",
        origin="vtwin",
        meaning="Mean time between the request's tokens.",
        minimum=0,
    ),
    Field(
        name="itl_p99_us",
        dtype="float",
        unit="µs",
        origin="vtwin",
        meaning="99th percentile of the time between the request's tokens.",
        minimum=0,
    ),
)

EVENT_FIELDS: Final[tuple[Field, ...]] = (
    Field(
        name="request_id",
        dtype="string",
        unit="",
        origin="base",
        meaning="Request the event belongs to.",
        required=True,
        nullable=False,
    ),
    Field(
        name="chunk_index",
        dtype="int",
        unit="",
        origin="base",
        meaning="Place of the event in its request, from 0.",
        required=True,
        nullable=False,
        minimum=0,
    ),
    Field(
        name="timestamp_us",
        dtype="int",
        unit="µs",
        origin="base",
        meaning="When the event came.",
        required=True,
        nullable=False,
        minimum=0,
    ),
    _count(
        "num_tokens",
        "vtwin",
        "Tokens the event carried: 0 for an event without text; empty where it was not counted (read as 1).",
        unit="tokens",
    ),
)

FIELDS: Final[dict[str, Field]] = {field.name: field for field in REQUEST_FIELDS}
REQUIRED_IN_MEMORY: Final = (
    "request_id",
    "arrival_time_us",
    "input_tokens",
    "output_tokens",
    "prefix_length",
)
