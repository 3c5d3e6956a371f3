"""The row of the trace that one finished request makes, and the rows of its events."""

from __future__ import annotations

from typing import TypeAlias

from observe.plan.send_plan import SendPlan
from observe.response.reading import Reading
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Exchange, ExchangeFailure, one_line
from traces import failure_status

Cell: TypeAlias = str | int | float | bool | None

WORKLOAD_COLUMNS = (
    *("request_id", "client_id", "tenant_id", "slo_class", "session_id", "round_index"),
    *(
        "prefix_group",
        "prefix_length",
        "input_tokens",
        "text_tokens",
        "image_tokens",
        "images",
        "audio_tokens",
    ),
    *(
        "video_tokens",
        "reason_ratio",
        "deadline_us",
        "cancel_after_us",
        "cancel_after_tokens",
        "slo_target_us",
        "arrival_time_us",
    ),
    *("think_time_us", "prefix_hashes", "new_input_tokens"),
    *("parent_request_id", "awaited_request_ids", "num_parent_hashes"),
)
"""The columns of a planned request: copied from the plan's trace."""

OUTCOME_COLUMNS = (
    *("streaming", "output_tokens", "server_input_tokens", "send_time_us", "first_chunk_time_us"),
    *("last_chunk_time_us", "num_chunks", "status", "error_message", "finish_reason", "x_request_id"),
    *("content_first_time_us", "last_token_time_us", "num_token_chunks", "cached_input_tokens"),
    *("server_queue_us", "server_prefill_us", "server_decode_us", "max_tokens", "dispatch_lag_us"),
    *("connection_wait_us", "first_byte_time_us", "phase", "attempt", "vllm_priority"),
    *("length_capped", "guided", "model", "adapter"),
    *("num_token_reads", "first_chunk_tokens", "reasoning_tokens", "hidden_tokens"),
    *("first_token_early_us", "cancel_time_us", "visible_first_time_us", "num_tool_calls"),
    *("http_dns_us", "http_connect_us", "http_tls_us", "http_send_us"),
)
"""The columns of its outcome, and of values sent in place of the workload's own."""


def outcome_cells(
    request: SentRequest, reading: Reading, *, plan: SendPlan, start_ns: int
) -> dict[str, Cell]:
    """Return the outcome columns of one request, times in µs from ``start_ns``."""

    def since_start(stamp: int | None) -> int | None:
        return None if stamp is None else max(stamp - start_ns, 0) // 1000

    exchange = request.exchange
    failure = failure_of(exchange, reading)
    stamps = reading.event_stamps
    lag_ns = None if exchange.dispatched_ns is None else exchange.dispatched_ns - request.due_ns
    return {
        "streaming": reading.streamed,
        "output_tokens": _output_tokens(reading, failed=failure is not None),
        "server_input_tokens": reading.server_input_tokens,
        "send_time_us": since_start(exchange.dispatched_ns),
        "first_chunk_time_us": since_start(stamps[0] if stamps and reading.streamed else None),
        "last_chunk_time_us": since_start(stamps[-1] if stamps else None),
        "num_chunks": len(stamps),
        "status": "ok" if failure is None else failure.status,
        "error_message": None if failure is None else failure.message or None,
        "finish_reason": reading.finish_reason,
        "x_request_id": exchange.x_request_id,
        "content_first_time_us": since_start(reading.content_first),
        "last_token_time_us": since_start(reading.last_token),
        "num_token_chunks": reading.num_token_chunks,
        "cached_input_tokens": reading.cached_input_tokens,
        "server_queue_us": _micros(reading.timings.queue_ms),
        "server_prefill_us": _micros(reading.timings.prefill_ms),
        "server_decode_us": _micros(reading.timings.decode_ms),
        "max_tokens": plan.max_tokens[request.row],
        "dispatch_lag_us": None if lag_ns is None else lag_ns // 1000,
        "connection_wait_us": None if exchange.dispatched_ns is None else exchange.connection_wait_ns // 1000,
        "first_byte_time_us": since_start(exchange.first_byte_ns),
        "vllm_priority": plan.priorities[request.row],
        **plan.sent_to(request.row),
        "length_capped": _is_length_capped(reading, _most_tokens(plan, request.row)) or None,
        "guided": request.row in plan.guided_rows or None,
        "attempt": request.num_attempts if request.num_attempts > 1 else None,
        "cancel_time_us": since_start(request.end_ns) if is_cancelled(failure) else None,
        "visible_first_time_us": since_start(reading.visible_first) if reading.reasoning_tokens else None,
        "num_tool_calls": reading.num_tool_calls or None,
        **_image_cells(plan, request.row, reading.server_input_tokens),
        **_http_cells(exchange),
        **_stream_cells(reading),
        **_session_cells(request, reading, plan=plan, start_ns=start_ns),
    }


def _image_cells(plan: SendPlan, row: int, counted: int | None) -> dict[str, Cell]:
    """Return where the images stand in a prompt that the server counts shorter than it was meant to be."""
    if plan.media is None or counted is None:
        return {}
    meant = plan.num_prompt_tokens(row) + plan.media.num_tokens(row)
    return {"images": plan.media.placed_images(row, counted)} if counted < meant else {}


def _http_cells(exchange: Exchange) -> dict[str, Cell]:
    """Return how long the phases of HTTP took that no other column tells, of those that the request had."""
    sent, dispatched = exchange.sent_ns, exchange.dispatched_ns
    took = {
        "http_dns_us": exchange.dns_ns,
        "http_connect_us": exchange.connect_ns,
        "http_tls_us": exchange.tls_ns,
        "http_send_us": None if sent is None or dispatched is None else sent - dispatched,
    }
    return {name: None if ns is None else ns // 1000 for name, ns in took.items()}


def _stream_cells(reading: Reading) -> dict[str, Cell]:
    """Return how the answer came where that is not a token an event and an event a read."""
    num_events, hidden, first = reading.num_token_chunks, reading.hidden_tokens, reading.first_chunk_tokens
    visible = None if reading.output_tokens is None else reading.output_tokens - (hidden or 0)
    is_usual = first is None or (first == 1 and num_events == visible)
    return {
        "num_token_reads": reading.num_token_reads if reading.num_token_reads < num_events else None,
        "first_chunk_tokens": None if is_usual else first,
        "reasoning_tokens": reading.reasoning_tokens,
        "hidden_tokens": hidden,
        "first_token_early_us": _early_us(reading),
    }


def _early_us(reading: Reading) -> int | None:
    """Return by how much the first event may have come before its stamp, None where it has a stamp of its own."""
    since, stamp = reading.content_first_since, reading.content_first
    return None if since is None or stamp is None or since >= stamp else (stamp - since) // 1000


def _session_cells(
    request: SentRequest, reading: Reading, *, plan: SendPlan, start_ns: int
) -> dict[str, Cell]:
    """Return the values of a session's later round that only the run knows: its due time and prompt length."""
    if request.is_paced:
        return {}
    due_us = max(request.due_ns - start_ns, 0) // 1000
    cells: dict[str, Cell] = {"arrival_time_us": None if plan.closed_loop is not None else due_us}
    sent = request.input_tokens if request.input_tokens is not None else reading.server_input_tokens
    if sent is not None and request.row in plan.extends_row:
        cells["input_tokens"] = max(sent - plan.prefix_tokens(request.row), 0)
    return cells


def _most_tokens(plan: SendPlan, row: int) -> int:
    """Return the tokens that all choices of a row may have."""
    return plan.max_tokens[row] * plan.shape.num_choices


def _is_length_capped(reading: Reading, max_tokens: int) -> bool:
    """Return whether the server ended the answer for its length before it had as many tokens as it was asked for."""
    return (
        reading.finish_reason == "length"
        and reading.output_tokens is not None
        and reading.output_tokens < max_tokens
    )


def failure_of(exchange: Exchange, reading: Reading) -> ExchangeFailure | None:
    """Return why the request has no whole answer: the connection's error, the stream's, or the server's.

    One that was cut when its answer had just ended has one.
    """
    if exchange.failure is not None and not (is_cancelled(exchange.failure) and reading.has_ended):
        return exchange.failure
    if reading.fault is not None:
        return ExchangeFailure(status="error", message=one_line(reading.fault))
    status = failure_status(reading.finish_reason)
    if status is None:
        return None
    message = (
        f"the server ended the answer with finish_reason {reading.finish_reason}, expected stop or length"
    )
    return ExchangeFailure(status=status, message=one_line(message))


def is_cancelled(failure: ExchangeFailure | None) -> bool:
    """Return whether the client cut the request as the workload asked."""
    return failure is not None and failure.status == "cancelled"


def _output_tokens(reading: Reading, *, failed: bool) -> int | None:
    """Return the received tokens: the server's count, 0 for a failure without any text, else unknown."""
    if reading.output_tokens is None and failed and reading.num_token_chunks == 0:
        return 0
    return reading.output_tokens


def _micros(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1000)


def event_rows(request_id: Cell, reading: Reading, *, start_ns: int) -> list[list[Cell]]:
    """Return a row per event: request, place, time in µs from ``start_ns``, tokens."""
    pairs = zip(reading.event_stamps, reading.event_tokens, strict=True)
    return [
        [request_id, number, max(stamp - start_ns, 0) // 1000, tokens]
        for number, (stamp, tokens) in enumerate(pairs)
    ]
