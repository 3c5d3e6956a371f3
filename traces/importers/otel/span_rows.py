"""Rows and header of a trace of spans, before they are put in order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from traces.header import Header, Network, ServerInfo, Source
from traces.importers.otel.llm_request import SpanRequest

SERVER: Final = "server"
CLIENT: Final = "client"

COLUMNS: Final = (
    *("request_id", "session_id", "round_index", "input_tokens", "output_tokens", "model", "arrival_time_us"),
    *("send_time_us", "status", "error_message", "finish_reason", "x_request_id", "content_first_time_us"),
    *(
        "last_token_time_us",
        "cached_input_tokens",
        "server_queue_us",
        "server_prefill_us",
        "server_decode_us",
    ),
    *("max_tokens", "trace_id", "seen_by"),
)
"""Columns of each request; the last two are not TraceV2's: the spans' trace, and the reporter of the request."""


def cells_of(request: SpanRequest, *, origin_us: int) -> dict[str, str | int | None]:
    """Return a request's row, by column; times count from ``origin_us``, a Unix time."""

    def since(time_us: int | None) -> int | None:
        return None if time_us is None or request.error is not None else time_us - origin_us

    start_us = request.start_us - origin_us
    return {
        "request_id": request.span_id,
        "session_id": request.conversation,
        "round_index": None,
        "input_tokens": request.input_tokens,
        "output_tokens": request.output_tokens,
        "model": request.model,
        "arrival_time_us": start_us,
        "send_time_us": start_us,
        "status": "ok" if request.error is None else "error",
        "error_message": request.error,
        "finish_reason": request.finish_reason,
        "x_request_id": request.x_request_id,
        "content_first_time_us": since(request.first_token_us),
        "last_token_time_us": since(request.last_token_us),
        "cached_input_tokens": request.cached_tokens,
        "server_queue_us": request.queue_us,
        "server_prefill_us": request.prefill_us,
        "server_decode_us": request.decode_us,
        "max_tokens": request.max_tokens,
        "trace_id": request.trace_id or None,
        "seen_by": SERVER if request.is_server else CLIENT,
    }


def header_of(
    *,
    origin_us: int,
    file: str,
    is_server: bool,
    models: Collection[str] = (),
    knows_cached: bool = False,
    notes: tuple[str, ...] = (),
) -> Header:
    """Return the header of a trace of spans. ``is_server``: reported by the server; ``models``: those that answered."""
    unknown = ["no text and no block hashes: which prompts share a prefix is not known"]
    if not knows_cached:
        unknown.append("no cached tokens: what the prefix cache saved is not known")
    if is_server:
        unknown.append("requests that failed or were aborted have no span")
        unknown.append("times are the server's own: there is no network in them")
    else:
        unknown.append("times are the client's, network included; time in the server's queue is not known")
    server = ServerInfo().learn("spans", type="vllm" if is_server else None)
    if len(models) == 1:
        server = server.learn("gen_ai.response.model", model=next(iter(models)))
    return Header(
        mode="real",
        start_unix_us=origin_us,
        server=server,
        network=Network(measured_rtt_ms=0.0 if is_server else None),
        source=Source(format="otel", file=file, notes=(*unknown, *notes)),
    )
