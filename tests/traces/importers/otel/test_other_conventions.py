"""Spans by the names of OpenInference and OpenLLMetry, and spans with texts: counts are read, texts are passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.traces.importers.otel.spans import document, lines, request, span, vllm
from traces import Trace, convert, write_trace

SECRET = "the words of a person"  # noqa: S105  a text, no password


def open_inference(
    number: int, *, kind: str = "LLM", session: str | None = "s1", start_s: float = 0.0
) -> object:
    said: dict[str, object] = {
        "openinference.span.kind": kind,
        "llm.model_name": "qwen",
        "llm.token_count.prompt": 120,
        "llm.token_count.completion": 9,
        "llm.token_count.prompt_details.cache_read": 64,
        "llm.input_messages.0.message.content": SECRET,
        "input.value": SECRET,
        "output.value": SECRET,
    }
    said |= {} if session is None else {"session.id": session}
    return span(number, said, name="ChatCompletion", start_s=start_s)


def open_llmetry(number: int, *, kind: str = "chat", tokens: object = 30) -> object:
    said = {
        "llm.request.type": kind,
        "gen_ai.request.model": "m",
        "gen_ai.prompt.0.content": SECRET,
        "gen_ai.completion.0.content": SECRET,
        "gen_ai.usage.prompt_tokens": tokens,
        "gen_ai.usage.completion_tokens": 5,
        "traceloop.association.properties.session_id": "t1",
    }
    return span(number, said, name="openai.chat")


def read(tmp_path: Path, content: bytes) -> Trace:
    path = tmp_path / "spans.json"
    path.write_bytes(content)
    trace = convert("otel", path)
    write_trace(trace, tmp_path / "kept")
    assert SECRET not in "".join(each.read_text() for each in tmp_path.glob("kept*"))
    return trace


def test_openinferences_spans_have_counts_sessions_and_cached_tokens(tmp_path: Path) -> None:
    spans = [open_inference(1), open_inference(2, start_s=3.0), open_inference(3, kind="AGENT")]
    trace = read(tmp_path, lines([spans]))  # type: ignore[list-item]  # of protobuf
    assert trace.column("input_tokens").tolist() == [120, 120]
    assert trace.column("output_tokens").tolist() == [9, 9]
    assert trace.column("cached_input_tokens").tolist() == [64, 64]
    assert trace.column("session_id").tolist() == ["s1", "s1"]
    assert trace.column("round_index").tolist() == [0, 1]
    assert trace.column("model").tolist() == ["qwen", "qwen"]
    assert trace.header.source is not None
    assert any("what rounds share is not known" in note for note in trace.header.source.notes)


@pytest.mark.parametrize("tokens", [30, "30"])
def test_openllmetrys_spans_are_read_with_counts_as_numbers_or_text(tmp_path: Path, tokens: object) -> None:
    spans = [open_llmetry(1, tokens=tokens), open_llmetry(2, kind="rerank")]
    trace = read(tmp_path, lines([spans]))  # type: ignore[list-item]  # of protobuf
    assert trace.column("input_tokens").tolist() == [30]
    assert trace.column("session_id").tolist() == ["t1"]


def test_events_with_texts_are_passed_over(tmp_path: Path) -> None:
    said = document(vllm(1))
    events = [
        {
            "name": "gen_ai.content.prompt",
            "timeUnixNano": "1790000000000000000",
            "attributes": [{"key": "gen_ai.prompt", "value": {"stringValue": SECRET}}],
        },
        {"name": "gen_ai.choice", "attributes": "not even a list"},
    ]
    said["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["events"] = events
    trace = read(tmp_path, json.dumps(said).encode())
    assert trace.column("input_tokens").tolist() == [100]


def test_vllms_spans_of_one_conversation_are_its_rounds(tmp_path: Path) -> None:
    spans = [vllm(1, conversation__id="c1"), vllm(2, start_s=5.0, conversation__id="c1"), vllm(3)]
    trace = read(tmp_path, lines([spans]))
    by_id = dict(zip(trace.column("request_id"), trace.column("session_id").fillna(""), strict=True))
    assert sorted(by_id.values()) == ["", "c1", "c1"]
    assert trace.column("round_index").dropna().tolist() == [0, 1]
    assert request(*spans).resource_spans
