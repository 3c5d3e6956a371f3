"""Spans of OpenTelemetry, as vLLM and frameworks of agents write them (OTLP), to a measured trace.

``read_otel`` reads files; a receiver uses the single steps: ``spans_of_json``,
``spans_of_protobuf``, ``request_of``, ``cells_of``, ``arranged``.
"""

from traces.importers.otel.arrange import arranged
from traces.importers.otel.json_spans import spans_of_json
from traces.importers.otel.llm_request import LeftOut, SpanRequest, Tally, request_of
from traces.importers.otel.protobuf_spans import spans_of_protobuf
from traces.importers.otel.span import Span
from traces.importers.otel.span_files import read_otel
from traces.importers.otel.span_rows import COLUMNS, cells_of, header_of

__all__ = [
    "COLUMNS",
    "LeftOut",
    "Span",
    "SpanRequest",
    "Tally",
    "arranged",
    "cells_of",
    "header_of",
    "read_otel",
    "request_of",
    "spans_of_json",
    "spans_of_protobuf",
]
