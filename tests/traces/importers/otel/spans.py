"""Spans made with the opentelemetry-proto package, as vLLM 0.32 and a framework of agents write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

START_NS = 1_790_000_000 * 10**9


def value_of(value: object) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[value_of(each) for each in value]))
    return AnyValue(string_value=str(value))


def span(
    number: int,
    attributes: Mapping[str, object],
    *,
    name: str = "llm_request",
    start_s: float = 0.0,
    took_s: float = 1.0,
    trace: int = 0,
    failed: str | None = None,
) -> ProtoSpan:
    """A span ``start_s`` after ``START_NS``; its id and, if none is given, its trace's are made of its number."""
    start_ns = START_NS + round(start_s * 1e6) * 1000
    return ProtoSpan(
        trace_id=(trace or 1000 + number).to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        name=name,
        kind=ProtoSpan.SPAN_KIND_SERVER,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + round(took_s * 1e6) * 1000,
        attributes=[KeyValue(key=key, value=value_of(value)) for key, value in attributes.items()],
        status=Status(code=Status.STATUS_CODE_ERROR, message=failed) if failed else None,
    )


def vllm(number: int, *, start_s: float = 0.0, trace: int = 0, **others: object) -> ProtoSpan:
    """vLLM's span of a request: 10 ms queued, first token after 50 ms, 100 tokens in, 5 out, 90 ms in all."""
    said: dict[str, object] = {
        "gen_ai.latency.time_to_first_token": 0.05,
        "gen_ai.latency.e2e": 0.09,
        "gen_ai.latency.time_in_queue": 0.01,
        "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.completion_tokens": 5,
        "gen_ai.latency.time_in_model_prefill": 0.035,
        "gen_ai.latency.time_in_model_decode": 0.04,
        "gen_ai.latency.time_in_model_inference": 0.075,
        "gen_ai.request.id": f"cmpl-r{number}-0",
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.max_tokens": 16,
        "gen_ai.request.n": 1,
    }
    said |= {f"gen_ai.{key.replace('__', '.')}": value for key, value in others.items()}
    said = {key: value for key, value in said.items() if value is not None}
    return span(number, said, start_s=start_s, took_s=0.095, trace=trace)


def chat(
    number: int, *, start_s: float = 0.0, trace: int = 0, failed: str | None = None, **others: object
) -> ProtoSpan:
    """A framework's span of a request, by the semantic conventions: 200 tokens in, 7 out, 2 s."""
    said: dict[str, object] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2026",
        "gen_ai.usage.input_tokens": 200,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.response.finish_reasons": ["stop"],
    }
    said |= {f"gen_ai.{key.replace('__', '.')}": value for key, value in others.items()}
    said = {key: value for key, value in said.items() if value is not None}
    return span(number, said, name="chat m", start_s=start_s, took_s=2.0, trace=trace, failed=failed)


def request(*spans: ProtoSpan) -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=Resource(attributes=[KeyValue(key="service.name", value=value_of("vllm"))]),
                scope_spans=[ScopeSpans(spans=spans)],
            )
        ]
    )


def protobuf(*spans: ProtoSpan) -> bytes:
    return request(*spans).SerializeToString()


def document(*spans: ProtoSpan) -> dict[str, Any]:
    """The same as OTLP/JSON, written by hand: protobuf's own JSON has ids in base64."""
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "vllm"}}]},
                "scopeSpans": [{"scope": {}, "spans": [_json_span(each) for each in spans]}],
            }
        ]
    }


def lines(requests: Iterable[Iterable[ProtoSpan]]) -> bytes:
    """As a collector's file exporter writes JSON: a document a line."""
    return b"".join(json.dumps(document(*each)).encode() + b"\n" for each in requests)


def _json_span(each: ProtoSpan) -> dict[str, Any]:
    return {
        "traceId": each.trace_id.hex(),
        "spanId": each.span_id.hex(),
        "name": each.name,
        "kind": 2,
        "startTimeUnixNano": str(each.start_time_unix_nano),
        "endTimeUnixNano": str(each.end_time_unix_nano),
        "attributes": [{"key": pair.key, "value": _json_value(pair.value)} for pair in each.attributes],
        "status": {"code": each.status.code, "message": each.status.message} if each.status.code else {},
    }


def _json_value(value: AnyValue) -> dict[str, Any]:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return {"arrayValue": {"values": [_json_value(each) for each in value.array_value.values]}}
    if kind == "int_value":
        return {"intValue": str(value.int_value)}
    names = {"string_value": "stringValue", "double_value": "doubleValue", "bool_value": "boolValue"}
    return {names[kind]: getattr(value, kind)}
