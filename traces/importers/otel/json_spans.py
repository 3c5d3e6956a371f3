"""Spans of an ``ExportTraceServiceRequest`` as OTLP/JSON: ids in hex, 64-bit integers as text or as numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from traces.errors import quoted
from traces.importers.otel.span import SPAN_ID_BYTES, TRACE_ID_BYTES, WANTED, Span, Value, hex_id
from traces.strict.json_text import MOST_DIGITS, finite

_ERROR: Final = (2, "STATUS_CODE_ERROR")


def spans_of_json(document: object) -> list[Span]:
    """Return the spans of one document. Raises ValueError, in one line that names the place, for another shape."""
    if not isinstance(document, Mapping) or "resourceSpans" not in document:
        raise ValueError("resourceSpans: got none, expected an ExportTraceServiceRequest of OTLP")
    return list(_spans(document))


def _spans(document: Mapping[str, Any]) -> Iterator[Span]:
    for resource, at in _objects(document, "resourceSpans", ""):
        for scope, where in _objects(resource, "scopeSpans", at):
            for span, place in _objects(scope, "spans", where):
                yield _span(span, place)


def _span(span: Mapping[str, Any], where: str) -> Span:
    status = span.get("status") or {}
    if not isinstance(status, Mapping):
        _refuse(f"{where}.status", status, "an object")
    attributes: dict[str, Value] = {}
    for pair, place in _objects(span, "attributes", where):
        key = pair.get("key")
        if isinstance(key, str) and key in WANTED:
            attributes[key] = _value(pair.get("value"), place)
    return Span(
        trace_id=hex_id(span.get("traceId"), TRACE_ID_BYTES),
        span_id=hex_id(span.get("spanId"), SPAN_ID_BYTES),
        name=_text(span.get("name")),
        start_ns=_integer(span.get("startTimeUnixNano")) or 0,
        end_ns=_integer(span.get("endTimeUnixNano")) or 0,
        has_failed=status.get("code") in _ERROR,
        message=_text(status.get("message")),
        attributes=attributes,
    )


def _objects(parent: Mapping[str, Any], key: str, at: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield the objects of a list, each with its place; none where there is no list."""
    where = f"{at}.{key}" if at else key
    found = parent.get(key)
    if found is None:
        return
    if not isinstance(found, list):
        _refuse(where, found, "a list")
    for number, each in enumerate(found):
        if not isinstance(each, Mapping):
            _refuse(f"{where}[{number}]", each, "an object")
        yield each, f"{where}[{number}]"


def _value(value: object, where: str) -> Value:
    """Return a scalar, of a list its first; None for anything else."""
    if not isinstance(value, Mapping):
        _refuse(f"{where}.value", value, "an object")
    if "stringValue" in value:
        return _text(value["stringValue"]) or None
    if "intValue" in value:
        return _integer(value["intValue"])
    if "doubleValue" in value:
        with suppress(ValueError, TypeError):
            return finite(value["doubleValue"])
        return None
    if "boolValue" in value:
        return bool(value["boolValue"])
    found = value.get("arrayValue")
    values = found.get("values") if isinstance(found, Mapping) else None
    first = values[0] if isinstance(values, list) and values else None
    inner = isinstance(first, Mapping) and "arrayValue" not in first
    return _value(first, where) if inner else None


def _integer(value: object) -> int | None:
    """Return an int64 as JSON has it, None for any other value."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    if isinstance(value, str) and len(value) > MOST_DIGITS:
        return None
    with suppress(ValueError):
        return int(value)
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _refuse(where: str, value: object, expected: str) -> NoReturn:
    raise ValueError(f"{where}: got {quoted(value)}, expected {expected}")
