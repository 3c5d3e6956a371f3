"""Spans of a serialized ``ExportTraceServiceRequest``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from traces.importers.otel.span import SPAN_ID_BYTES, TRACE_ID_BYTES, WANTED, Span, Value, hex_id


def spans_of_protobuf(content: bytes) -> Iterator[Span]:
    """Return the spans of one message. Raises ValueError, in one line, at once, for other bytes."""
    try:
        message = ExportTraceServiceRequest.FromString(content)
    except DecodeError as fault:
        raise ValueError(
            "bytes that are no ExportTraceServiceRequest of protobuf, or not all of it"
        ) from fault
    return _spans(message)


def _spans(message: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in message.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    trace_id=hex_id(span.trace_id, TRACE_ID_BYTES),
                    span_id=hex_id(span.span_id, SPAN_ID_BYTES),
                    name=span.name,
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    has_failed=span.status.code == Status.STATUS_CODE_ERROR,
                    message=span.status.message,
                    attributes={
                        pair.key: _value(pair.value) for pair in span.attributes if pair.key in WANTED
                    },
                )


def _value(value: Any) -> Value:  # noqa: ANN401 - protobuf's classes have no types
    """Return a scalar, of a list its first; None for anything else."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return _value(value.array_value.values[0]) if value.array_value.values else None
    if kind not in ("string_value", "int_value", "double_value", "bool_value"):
        return None
    found: Value = getattr(value, kind)
    return found
