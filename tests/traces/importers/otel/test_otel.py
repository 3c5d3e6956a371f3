"""Spans of vLLM and of clients as a measured trace: files of every kind, row by row, and hostile ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

import vtwin
from tests.traces.importers.otel.spans import (
    START_NS,
    chat,
    document,
    lines,
    protobuf,
    request,
    span,
    vllm,
)
from traces import Trace, TraceError, check_trace, format_of, read_trace, request_metrics, write_trace
from traces.conversion import convert
from traces.importers.otel.llm_request import LeftOut, SpanRequest, request_of
from traces.importers.otel.span import Span


def converted(tmp_path: Path, content: bytes, name: str = "spans.json") -> Trace:
    path = tmp_path / name
    path.write_bytes(content)
    return convert("otel", path)


def column(trace: Trace, name: str) -> list[Any]:
    return [
        None if missing else cell
        for cell, missing in zip(trace.column(name), trace.column(name).isna(), strict=True)
    ]


def notes(trace: Trace) -> str:
    assert trace.header.source is not None
    return "; ".join(trace.header.source.notes)


THREE = (vllm(2, start_s=0.5), vllm(3, start_s=0.25), vllm(1))
"""As they come: not in the order of their starts."""


def varint(number: int) -> bytes:
    digits = b""
    while number > 0x7F:
        digits += bytes([number & 0x7F | 0x80])
        number >>= 7
    return digits + bytes([number])


ENCODINGS: dict[str, Callable[[], bytes]] = {
    "a line each": lambda: lines([THREE[:2], THREE[2:]]),
    "one line": lambda: json.dumps(document(*THREE)).encode(),
    "one document": lambda: b"\n " + json.dumps(document(*THREE), indent=1).encode(),
    "protobuf": lambda: protobuf(*THREE),
    "behind four bytes": lambda: b"".join(
        len(each).to_bytes(4, "big") + each for each in (protobuf(*THREE[:2]), protobuf(*THREE[2:]))
    ),
    "behind a varint": lambda: b"".join(
        varint(len(each)) + each for each in (protobuf(*THREE[:2]), protobuf(*THREE[2:]))
    ),
    "gzip": lambda: gzip.compress(lines([THREE])),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_spans_of_vllm_are_rows_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    trace = converted(tmp_path, ENCODINGS[encoding]())
    assert column(trace, "request_id") == [f"{number:016x}" for number in (1, 3, 2)]
    assert column(trace, "arrival_time_us") == column(trace, "send_time_us") == [0, 250_000, 500_000]
    assert column(trace, "content_first_time_us") == [50_000, 300_000, 550_000]
    assert column(trace, "last_token_time_us") == [90_000, 340_000, 590_000]
    assert column(trace, "server_queue_us") == [10_000] * 3
    assert column(trace, "server_prefill_us") == [35_000] * 3
    assert column(trace, "server_decode_us") == [40_000] * 3
    assert (column(trace, "input_tokens"), column(trace, "output_tokens")) == ([100] * 3, [5] * 3)
    assert column(trace, "max_tokens") == [16] * 3
    assert column(trace, "x_request_id") == ["r1", "r3", "r2"]
    assert column(trace, "status") == ["ok"] * 3
    assert column(trace, "session_id") == column(trace, "round_index") == [None] * 3
    header = trace.header
    assert (header.mode, header.start_unix_us) == ("real", START_NS // 1000)
    assert (header.server.type, header.network.measured_rtt_ms) == ("vllm", 0.0)
    assert "no block hashes" in notes(trace)
    assert "no cached tokens" in notes(trace)
    write_trace(trace, tmp_path / "t")
    assert check_trace(tmp_path / "t") == []
    assert list(request_metrics(read_trace(tmp_path / "t"))["queue_us"]) == [10_000.0] * 3


def test_spans_of_clients_are_rows_with_what_they_say(tmp_path: Path) -> None:
    spans = [
        chat(1, response__time_to_first_chunk=0.5, usage__cache_read__input_tokens=64),
        chat(2, start_s=1.0, failed="overloaded", usage__output_tokens=None),
        span(
            3,
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 9},
            name="invoke_agent a",
        ),
        span(4, {"gen_ai.operation.name": "execute_tool"}, name="execute_tool t"),
    ]
    trace = converted(tmp_path, lines([spans]))
    assert column(trace, "status") == ["ok", "error"]
    assert column(trace, "error_message") == [None, "overloaded"]
    assert column(trace, "output_tokens") == [7, None]
    assert column(trace, "content_first_time_us") == [500_000, None]
    assert column(trace, "last_token_time_us") == [2_000_000, None]
    assert column(trace, "cached_input_tokens") == [64, None]
    assert column(trace, "finish_reason") == ["stop", "stop"]
    assert column(trace, "model") == ["m-2026"] * 2
    assert trace.header.server.model == "m-2026"
    assert trace.header.network.measured_rtt_ms is None
    assert "2 spans are of other work than requests to a model: left out" in notes(trace)
    assert "no cached tokens" not in notes(trace)


def test_beside_the_servers_own_spans_those_of_clients_only_name_the_conversation(tmp_path: Path) -> None:
    spans = [
        chat(1, trace=7, conversation__id="talk"),
        vllm(2, trace=7, start_s=0.1),
        vllm(3, trace=7, start_s=0.9),
        vllm(4, trace=8, start_s=0.2),
        vllm(5, trace=9, start_s=0.4),
        vllm(6, trace=9, start_s=0.3),
    ]
    trace = converted(tmp_path, protobuf(*spans), "spans.pb")
    assert column(trace, "request_id") == [f"{number:016x}" for number in (2, 4, 6, 5, 3)]
    shared = f"{9:032x}"
    assert column(trace, "session_id") == ["talk", None, shared, shared, "talk"]
    assert column(trace, "round_index") == [0, None, 0, 1, 1]
    assert column(trace, "arrival_time_us")[0] == 100_000
    assert "1 spans of clients, beside the server's own: left out" in notes(trace)


def test_a_span_counts_once_and_what_lacks_tokens_or_times_is_told_of(tmp_path: Path) -> None:
    spans = [
        vllm(1),
        vllm(1),
        vllm(2, usage__prompt_tokens=None),
        vllm(3, usage__completion_tokens=-1),
        vllm(4, usage__completion_tokens=2**31),
        vllm(5, usage__completion_tokens="many"),
        span(6, {"gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 1}, took_s=-3.0),
        vllm(7, start_s=-1.7e9),
        vllm(0),
    ]
    trace = converted(tmp_path, lines([spans]))
    assert column(trace, "request_id") == [f"{1:016x}"]
    for said in (
        "1 spans came a second time",
        "1 spans have no token counts",
        "3 spans have impossible token counts",
        "2 spans have impossible times",
        "1 spans have no span id",
    ):
        assert said in notes(trace)


def test_a_latency_that_cannot_be_is_unknown(tmp_path: Path) -> None:
    spans = [
        vllm(1, latency__time_in_queue=-1.0),
        vllm(2, latency__time_to_first_token=0.2),
        vllm(3, latency__e2e=float("nan")),
        vllm(4, latency__time_in_model_decode=float("inf")),
        vllm(5, usage__prompt_tokens=10**9),
    ]
    trace = converted(tmp_path, protobuf(*spans))
    assert column(trace, "server_queue_us") == [None, *[10_000] * 4]
    assert column(trace, "content_first_time_us") == [50_000, None, *[50_000] * 3]
    assert column(trace, "last_token_time_us") == [90_000, 90_000, 95_000, 90_000, 90_000]
    assert column(trace, "server_decode_us") == [40_000, 40_000, 40_000, None, 40_000]
    assert column(trace, "input_tokens")[-1] == 10**9


def test_a_folder_is_one_trace_and_other_files_in_it_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "traces-2026.json").write_bytes(lines([[vllm(2, start_s=1.0)]]))
    (tmp_path / "in" / "traces.jsonl.gz").write_bytes(gzip.compress(lines([[vllm(1), vllm(2, start_s=1.0)]])))
    (tmp_path / "in" / "README.md").write_text("spans")
    trace = convert("otel", tmp_path / "in")
    assert column(trace, "arrival_time_us") == [0, 1_000_000]


def test_a_file_of_spans_tells_itself_apart(tmp_path: Path) -> None:
    for name in ("spans.json", "spans.jsonl"):
        (tmp_path / name).write_bytes(lines([THREE]))
        assert format_of(tmp_path / name) == "otel"


def test_the_command_tells_what_is_left_out_and_the_answer_is_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spans.jsonl").write_bytes(lines([[vllm(1), vllm(2, usage__prompt_tokens=None)]]))
    asked = [
        "trace",
        "convert",
        str(tmp_path / "spans.jsonl"),
        "--from",
        "otel",
        "--output",
        str(tmp_path / "t"),
    ]
    assert vtwin.main(asked) == 0
    assert "note: 1 spans have no token counts: left out" in " ".join(capsys.readouterr().err.split())
    assert len(read_trace(tmp_path / "t")) == 1


WHOLE = protobuf(*THREE)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "cut off": (WHOLE[:-5], "no ExportTraceServiceRequest"),
    "damaged": (WHOLE[:40] + b"\xff" * 40 + WHOLE[80:], "no ExportTraceServiceRequest"),
    "a length without end": (b"\x00\x00\xff\xff" + WHOLE, "message 1: got"),
    "a length cut off": (len(WHOLE).to_bytes(4, "big") + WHOLE + b"\0\0", "message 2: got 0 bytes"),
    "noise": (bytes(range(1, 255)) * 20, "spans.pb"),
    "no OTLP": (b'{"requests": []}', "line 1: resourceSpans: got none"),
    "a list": (b"[1, 2]", "line 1: resourceSpans: got none"),
    "spans that are none": (
        b'{"resourceSpans": {"a": 1}}',
        "line 1: resourceSpans: got {'a': 1}, expected a list",
    ),
    "a span that is none": (
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [7]}]}]}',
        r"line 1: resourceSpans\[0\].scopeSpans\[0\].spans\[0\]: got 7, expected an object",
    ),
    "a second line cut off": (lines([THREE]) + b'{"resourceSpans": [', "line 2: got no JSON"),
    "deep": (b'{"resourceSpans": ' + b"[" * 100_000, "got no JSON"),
    "deep values": (
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "gen_ai.latency.e2e", "value": '
        + b'{"arrayValue": {"values": [' * 5000
        + b"]}}" * 5000
        + b"}]}]}]}]}",
        "got no",
    ),
    "empty": (b"", "no spans at all"),
    "no request": (protobuf(), "no spans at all"),
    "only other work": (protobuf(span(1, {}, name="GET /")), "1 spans are of other work"),
    "zstd": (b"\x28\xb5\x2f\xfd....", "zstd -d"),
    "half a gzip file": (gzip.compress(WHOLE)[:60], "whole gzip file"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_one_line_and_exit_code_3(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content, expected = HOSTILE[case]
    path = tmp_path / "spans.pb"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=expected) as raised:
        convert("otel", path)
    assert str(raised.value).isprintable()
    assert vtwin.main(["trace", "convert", str(path), "--from", "otel", "--output", str(tmp_path / "t")]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    assert not (tmp_path / "t.yaml").exists()


def test_a_bomb_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.importers.otel.span_files.MOST_BYTES", 1_000_000)
    (tmp_path / "bomb.json").write_bytes(gzip.compress(b" " * 2_000_000))
    with pytest.raises(TraceError, match="more than 1,000,000 bytes"):
        convert("otel", tmp_path / "bomb.json")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("startTimeUnixNano", "-5"),
        ("startTimeUnixNano", "9" * 400),
        ("startTimeUnixNano", 1.5),
        ("startTimeUnixNano", True),
        ("endTimeUnixNano", None),
        ("spanId", 7),
        ("spanId", "x" * 16),
        ("attributes", [{"key": "gen_ai.usage.input_tokens", "value": {"intValue": [1]}}]),
    ],
)
def test_a_field_of_the_wrong_type_costs_its_span(tmp_path: Path, key: str, value: object) -> None:
    good, bad = chat(1), chat(2, start_s=1.0)
    said = document(good, bad)
    said["resourceSpans"][0]["scopeSpans"][0]["spans"][1][key] = value
    trace = converted(tmp_path, json.dumps(said).encode())
    assert column(trace, "request_id") == [f"{1:016x}"]


def test_a_trace_through_spans_is_the_same_trace(tmp_path: Path) -> None:
    """Written as vLLM would tell of it and read again, every column that spans can carry is as it was."""
    once = converted(
        tmp_path, lines([[vllm(n, start_s=n * 0.37, usage__prompt_tokens=50 + n) for n in range(1, 40)]])
    )
    spans: list[ProtoSpan] = []
    for row in once.requests.to_dict("records"):
        seconds = {
            "latency__time_to_first_token": row["content_first_time_us"] - row["send_time_us"],
            "latency__e2e": row["last_token_time_us"] - row["send_time_us"],
            "latency__time_in_queue": row["server_queue_us"],
            "latency__time_in_model_prefill": row["server_prefill_us"],
            "latency__time_in_model_decode": row["server_decode_us"],
        }
        number = int(row["request_id"], 16)
        start_s = (once.header.start_unix_us - START_NS // 1000 + row["send_time_us"]) / 1e6
        spans.append(
            vllm(
                number,
                start_s=start_s,
                usage__prompt_tokens=int(row["input_tokens"]),
                **{name: us / 1e6 for name, us in seconds.items()},
            )
        )
    again = converted(tmp_path, request(*reversed(spans)).SerializeToString(), "again.pb")
    assert again.header.start_unix_us == once.header.start_unix_us
    assert again.requests.equals(once.requests)


def test_an_answer_of_one_token_and_a_failed_one_of_none_are_rows(tmp_path: Path) -> None:
    spans = [
        vllm(1, usage__completion_tokens=1),
        vllm(2, start_s=1.0, usage__completion_tokens=0),
    ]
    trace = converted(tmp_path, lines([spans]))
    assert column(trace, "output_tokens") == [1]
    failed = converted(tmp_path, lines([[chat(3, failed="gone", usage__output_tokens=0)]]), "failed.json")
    assert column(failed, "status") == ["error"]
    assert column(failed, "output_tokens") == [0]
    assert "1 spans have impossible token counts: left out" in notes(trace)


def test_a_list_of_none_is_no_value_and_of_lists_neither(tmp_path: Path) -> None:
    document_ = document(vllm(1))
    attributes = document_["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"]
    attributes.append({"key": "gen_ai.response.finish_reasons", "value": {"arrayValue": {"values": []}}})
    attributes.append({"key": "gen_ai.request.model", "value": {"arrayValue": {"values": "m"}}})
    trace = converted(tmp_path, json.dumps(document_).encode())
    assert column(trace, "finish_reason") == [None]
    assert column(trace, "model") == [None]


def request_with(**attributes: object) -> SpanRequest | LeftOut | None:
    said = {f"gen_ai.{key.replace('__', '.')}": value for key, value in attributes.items()}
    usual: dict[str, Any] = {
        "gen_ai.latency.e2e": 0.09,
        "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.completion_tokens": 5,
    }
    return request_of(
        Span(
            trace_id="1",
            span_id="2",
            name="llm_request",
            start_ns=START_NS,
            end_ns=START_NS + 95_000_000,
            has_failed=False,
            message="",
            attributes={key: value for key, value in (usual | said).items() if value is not None},  # type: ignore[misc]
        )
    )


def read(**attributes: object) -> SpanRequest:
    found = request_with(**attributes)
    assert isinstance(found, SpanRequest)
    return found


def test_the_ends_of_what_a_span_may_say() -> None:
    assert read().last_token_us == START_NS // 1000 + 90_000
    assert read(latency__e2e=None).last_token_us == START_NS // 1000 + 95_000
    assert read(latency__e2e=0.0).last_token_us == START_NS // 1000
    assert read(latency__e2e=1e6).last_token_us == START_NS // 1000 + 10**12
    assert request_with(latency__e2e=1.1e6, usage__prompt_tokens=1) is not LeftOut.BAD_TIMES
    assert read(latency__time_to_first_token=0.09).first_token_us == START_NS // 1000 + 90_000
    assert read(latency__time_to_first_token=0.0).first_token_us == START_NS // 1000
    assert read(latency__time_to_first_token=0.090001).first_token_us is None
    assert read(latency__time_in_queue=True).queue_us is None
    assert read(usage__prompt_tokens=0).input_tokens == 0
    assert read(usage__prompt_tokens="12").input_tokens == 12
    assert read(usage__prompt_tokens=1 << 30).input_tokens == 1 << 30
    assert request_with(usage__prompt_tokens=(1 << 30) + 1) is LeftOut.BAD_TOKENS
    assert request_with(usage__prompt_tokens=1.5) is LeftOut.BAD_TOKENS
    assert request_with(usage__completion_tokens="x") is LeftOut.BAD_TOKENS
    assert request_with(usage__completion_tokens=None) is LeftOut.NO_TOKENS
    assert read(request__max_tokens=0).max_tokens is None
    assert read(request__max_tokens=1).max_tokens == 1
    assert read(usage__cache_read__input_tokens=100).cached_tokens == 100
    assert read(usage__cache_read__input_tokens=101).cached_tokens is None
    assert read(request__id="cmpl-r-0").x_request_id == "r"
    assert read(request__id="chatcmpl-r-0").x_request_id == "r-0"
