"""The body of a post: reading its spans, within limits; and OTLP's answers to a sender. Pure."""

from __future__ import annotations

import json
from lazy_dataclasses import dataclass
from typing import Final, Literal

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from traces import quoted
from traces.importers.otel import Span, spans_of_json, spans_of_protobuf
from traces.strict.json_text import DAMAGED, TooLarge, parse_value, unpacked

Kind = Literal["protobuf", "json"]

KINDS: Final[dict[str, Kind]] = {"application/x-protobuf": "protobuf", "application/json": "json"}
CONTENT_TYPE: Final[dict[Kind, str]] = {kind: name for name, kind in KINDS.items()}
INVALID_ARGUMENT: Final = 3
"""gRPC's code of a body that should not be sent again."""
INTERNAL: Final = 13
"""gRPC's code of a server that has failed."""
UNAVAILABLE: Final = 14
"""gRPC's code of a busy server: OTLP's senders try again."""


@dataclass(slots=True)
class NotTaken(Exception):  # noqa: N818 - an answer, no fault
    """A post that is refused: the HTTP status, and why in one line."""

    status: int
    message: str
    code: int = INVALID_ARGUMENT


def kind_of(content_type: str) -> Kind:
    """Return the encoding of a body. Raises NotTaken."""
    if content_type not in KINDS:
        raise NotTaken(415, f"Content-Type: got {quoted(content_type)}, expected one of {', '.join(KINDS)}")
    return KINDS[content_type]


def check_packing(encoding: str) -> None:
    """Raise NotTaken for a Content-Encoding other than none and gzip."""
    if encoding not in ("", "identity", "gzip"):
        raise NotTaken(415, f"Content-Encoding: got {quoted(encoding)}, expected gzip or none")


def too_large(most: int) -> NotTaken:
    """Return the answer to a body that is too long."""
    return NotTaken(413, f"body: got more than {most:,} bytes, expected fewer (--max-body-bytes)")


def spans_of_body(raw: bytes, kind: Kind, *, packed: bool, most: int) -> list[Span]:
    """Return the spans of a body, which may unpack to ``most`` bytes. Raises NotTaken."""
    if packed:
        try:
            raw = b"".join(unpacked(raw, most=most))
        except TooLarge as fault:
            raise too_large(most) from fault
        except DAMAGED as fault:
            raise NotTaken(400, f"body: got {fault}, expected whole gzip") from fault
    try:
        return spans_of_json(parse_value(raw)) if kind == "json" else list(spans_of_protobuf(raw))
    except ValueError as fault:
        raise NotTaken(400, f"body: {fault}") from fault


def answer(kind: Kind, *, rejected: int = 0, why: str = "") -> bytes:
    """Return OTLP's answer to a post that was accepted, with its rejected spans."""
    if kind == "json":
        partial = (
            {"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": why}} if rejected else {}
        )
        return json.dumps(partial).encode()
    reply = ExportTraceServiceResponse()
    if rejected:
        reply.partial_success.rejected_spans = rejected
        reply.partial_success.error_message = why
    wire: bytes = reply.SerializeToString()
    return wire


def failure(kind: Kind, refusal: NotTaken) -> bytes:
    """Return OTLP's answer to a refused post: a ``google.rpc.Status``."""
    if kind == "json":
        return json.dumps({"code": refusal.code, "message": refusal.message}).encode()
    # A Status is an integer and a text, fields 1 and 2, on the wire the same as this message
    same = ExportTracePartialSuccess(rejected_spans=refusal.code, error_message=refusal.message)
    wire: bytes = same.SerializeToString()
    return wire
