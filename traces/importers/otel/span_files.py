"""Files of spans: a collector's, in any of its formats, or a folder of them.

JSON: one document, or one a line. Protobuf: one message, or a sequence of them, each behind its length: in four bytes,
the highest first, as the collector's file exporter writes it, or as a varint, as protobuf's libraries do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from traces.errors import TraceError
from traces.importers.otel.arrange import arranged
from traces.importers.otel.json_spans import spans_of_json
from traces.importers.otel.llm_request import LeftOut, SpanRequest, Tally, request_of
from traces.importers.otel.protobuf_spans import spans_of_protobuf
from traces.importers.otel.span import Span
from traces.importers.otel.span_rows import COLUMNS, cells_of, header_of
from traces.strict.json_text import parse_value, read_bytes
from traces.trace import Trace, make_trace

SUFFIXES: Final = (".json", ".jsonl", ".pb", ".binpb", ".proto", ".otlp")
MOST_BYTES: Final = 1 << 30
"""The most bytes of a file, unpacked: a collector begins another long before."""
_EXPECTED: Final = "spans as OTLP, JSON or protobuf"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_TAG: Final = 0x0A
"""The first byte of an ``ExportTraceServiceRequest``: its only field is the first one. It is also a line end."""
_PREFIX: Final = 4
_MOST_VARINT: Final = 5


def read_otel(path: Path) -> Trace:
    """Return the requests of all spans of a file, or of a folder's files, in the order of their starts.

    Times count from the first start. Raises TraceError, naming file and place, for content that is not OTLP, and if no
    span is of a request.
    """
    tally, requests = Tally(), dict[str, SpanRequest]()
    for file in _files(path):
        try:
            for span in _spans(read_bytes(file, expected=_EXPECTED, most=MOST_BYTES)):
                _take(span, requests, tally)
        except ValueError as fault:
            raise TraceError(f"{file}: {fault}") from fault
    if not requests:
        said = "; ".join(tally.notes()) or "no spans at all"
        raise TraceError(f"{path}: got no request ({said}), expected spans of vLLM or of clients of models")
    origin_us = min(each.start_us for each in requests.values())
    rows = [cells_of(each, origin_us=origin_us) for each in requests.values()]
    header = header_of(origin_us=origin_us, file=path.name, is_server=False)
    trace = make_trace(header, {name: [row[name] for row in rows] for name in COLUMNS})
    return arranged(trace, notes=tally.notes())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(
        file for file in path.iterdir() if file.is_file() and file.name.removesuffix(".gz").endswith(SUFFIXES)
    )
    if not found:
        raise TraceError(f"{path}: got no file of spans, expected one that ends in {', '.join(SUFFIXES)}")
    return found


def _take(span: Span, requests: dict[str, SpanRequest], tally: Tally) -> None:
    request = request_of(span)
    if request is None:
        tally.num_other += 1
    elif isinstance(request, LeftOut):
        tally.left_out[request] += 1
    elif request.span_id in requests:
        tally.num_repeated += 1
    else:
        tally.num_requests += 1
        requests[request.span_id] = request


def _spans(content: bytes) -> Iterator[Span]:
    """Yield a file's spans. Raises ValueError."""
    if content.startswith(_ZSTD):
        raise ValueError(f"got a file packed with zstd, expected {_EXPECTED} (`zstd -d` unpacks it)")
    text = content.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        return
    if text[:1] in (b"{", b"[") and not _is_message(content):
        yield from _of_text(text)
        return
    for number, message in enumerate(_messages(content), start=1):
        try:
            yield from spans_of_protobuf(message)
        except ValueError as fault:
            raise ValueError(f"message {number}: got {fault}, expected {_EXPECTED}") from fault


def _is_message(content: bytes) -> bool:
    """Return whether a file is a bare message of protobuf, which may look like text at its beginning."""
    if content[0] != _TAG:
        return False
    try:
        spans_of_protobuf(content)
    except ValueError:
        return False
    return True


def _of_text(text: bytes) -> Iterator[Span]:
    """Yield the spans of one document, or of one a line."""
    first = text.split(b"\n", 1)[0]
    try:
        parse_value(first)
    except ValueError:
        yield from _of_document(text, "")
        return
    for number, line in enumerate(text.split(b"\n"), start=1):
        if line.strip():
            yield from _of_document(line, f"line {number}: ")


def _of_document(text: bytes, where: str) -> list[Span]:
    try:
        document = parse_value(text)
    except ValueError as fault:
        raise ValueError(f"{where}got no JSON ({fault}), expected {_EXPECTED}") from fault
    try:
        return spans_of_json(document)
    except ValueError as fault:
        raise ValueError(f"{where}{fault}") from fault


def _messages(content: bytes) -> list[bytes]:
    """Return the messages of a file: itself, or each of a sequence. Raises ValueError if one is not whole."""
    if _is_message(content):
        return [content]
    try:
        return list(_sequence(content, fixed=content[0] == 0))
    except ValueError:
        if content[0] != _TAG:
            raise
        return [content]  # cut off, or damaged: its reader will report that


def _sequence(content: bytes, *, fixed: bool) -> Iterator[bytes]:
    place, number = 0, 0
    while place < len(content):
        number += 1
        start, length = _length(content, place, fixed=fixed)
        place = start + length
        if length == 0 or place > len(content):
            left = max(len(content) - start, 0)
            raise ValueError(f"message {number}: got {left:,} bytes of {length:,}, expected {_EXPECTED}")
        yield content[start:place]


def _length(content: bytes, place: int, *, fixed: bool) -> tuple[int, int]:
    """Return where a message begins, and its length, which stands at ``place``."""
    if fixed:
        return place + _PREFIX, int.from_bytes(content[place : place + _PREFIX], "big")
    length = 0
    for digit, byte in enumerate(content[place : place + _MOST_VARINT]):
        length |= (byte & 0x7F) << (7 * digit)
        if byte < 0x80:
            return place + digit + 1, length
    return place + _MOST_VARINT, length
