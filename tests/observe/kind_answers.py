"""Answers of the tests' server to requests that are no completions, as vLLM 0.32 gives them."""

from __future__ import annotations

import asyncio
import email
import email.message
import json
from collections.abc import Iterator
from typing import Any

SHAPES = {
    "/v1/embeddings": ("data", {"object": "embedding", "embedding": [0.25, -1.5, 0.0]}),
    "/pooling": ("data", {"object": "pooling", "data": [[0.25], [0.5]]}),
    "/classify": ("data", {"label": "yes", "probs": [0.25, 0.75], "num_classes": 2}),
    "/v1/rerank": ("results", {"document": {"text": "d"}, "relevance_score": 0.0}),
    "/v1/score": ("data", {"object": "score", "score": 0.0}),
}


def texts_of(body: dict[str, Any]) -> list[Any]:
    """Return the inputs of a request: of pairs each document with the query before it."""
    if "input" in body:
        said = body["input"]
        return [said] if isinstance(said, str) or isinstance(said[0], int) else list(said)
    first, second = ("query", "documents") if "query" in body else ("text_1", "text_2")
    return [f"{body[first]} {document}" for document in body[second]]


def pooled(path: str, body: dict[str, Any], *, missing: int = 0, empty: bool = False) -> dict[str, Any]:
    """Return the answer: a result an input, but for so many at the end; ``empty``: without their values."""
    holder, result = SHAPES[path]
    texts = texts_of(body)
    values = {"index": 0} if empty else result
    tokens = sum(len(text) if isinstance(text, list) else len(text.split()) for text in texts)
    results = [{**values, "index": place} for place in range(len(texts) - missing)]
    return {
        "model": body["model"],
        holder: results,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def response_events(
    body: dict[str, Any], *, reasoning: int, calls: int, fails: int
) -> Iterator[dict[str, Any]]:
    """Yield the events of a response: reasoning, then text or the calls of tools, then the end."""
    total = body["max_output_tokens"]
    whole: dict[str, Any] = {"object": "response", "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": whole}
    for _ in range(reasoning):
        yield {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "r"}
    if fails:
        failed = {**whole, "status": "failed", "error": {"code": "server_error", "message": "engine died"}}
        yield {"type": "response.failed", "response": failed}
        return
    for call in range(calls):
        item = {"type": "function_call", "name": "f", "arguments": ""}
        yield {"type": "response.output_item.added", "output_index": call + 1, "item": item}
    for number in range(reasoning + calls, total):
        if calls:
            yield {
                "type": "response.function_call_arguments.delta",
                "output_index": 1 + number % calls,
                "delta": "x",
            }
        else:
            yield {"type": "response.output_text.delta", "output_index": 1, "delta": "x"}
    usage = {
        "input_tokens": 9,
        "output_tokens": total,
        "total_tokens": 9 + total,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }
    why = {"reason": "max_output_tokens"}
    ended = {**whole, "status": "incomplete", "incomplete_details": why, "usage": usage}
    yield {"type": "response.completed", "response": ended}


def message_events(
    body: dict[str, Any], *, reasoning: int, calls: int, fails: int
) -> Iterator[dict[str, Any]]:
    """Yield the events of a message: thinking, then text or the calls of tools, then the end, as vLLM sends them."""
    total = body["max_tokens"]
    said = [message["content"] for message in body["messages"]]
    prompt = sum(len((each if isinstance(each, str) else each[0]["text"]).split()) for each in said)
    start = {"input_tokens": prompt, "output_tokens": 0}
    yield {"type": "message_start", "message": {"type": "message", "content": [], "usage": start}}
    kinds = ["thinking"] * bool(reasoning) + (["tool_use"] * calls or ["text"])
    left = total - reasoning
    for index, kind in enumerate(kinds):
        block = (
            {"type": kind, "name": "f", "id": f"call-{index}"}
            if kind == "tool_use"
            else {"type": kind, kind: ""}
        )
        yield {"type": "content_block_start", "index": index, "content_block": block}
        if fails:
            yield {"type": "error", "error": {"type": "internal_error", "message": "engine died"}}
            return
        number = {"thinking": reasoning, "text": left, "tool_use": left // max(calls, 1) - 1}[kind]
        delta = {
            "thinking": {"type": "thinking_delta", "thinking": "r"},
            "text": {"type": "text_delta", "text": "x"},
            "tool_use": {"type": "input_json_delta", "partial_json": "x"},
        }[kind]
        for _ in range(number):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if kind == "thinking":
            signed = {"type": "signature_delta", "signature": "s"}
            yield {"type": "content_block_delta", "index": index, "delta": signed}
        yield {"type": "content_block_stop", "index": index}
    usage = {"input_tokens": 1, "cache_read_input_tokens": prompt - 1, "output_tokens": total}
    why = {"stop_reason": "tool_use" if calls else "max_tokens", "stop_sequence": None}
    yield {"type": "message_delta", "delta": why, "usage": usage}
    yield {"type": "message_stop"}


def transcription_events(
    body: dict[str, Any], *, reasoning: int, calls: int, fails: int
) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a transcription, as vLLM sends them: usage counts the audio twice, as of some models."""
    assert not reasoning and not calls
    total = int(body["max_completion_tokens"])
    chunk = {"object": "transcription.chunk", "model": body["model"]}
    for number in range(1, total + 1):
        if fails and number == 2:
            yield {"error": {"message": "engine died", "type": "InternalServerError", "code": 500}}
            return
        ends = {"finish_reason": "length", "stop_reason": None} if number == total else {}
        said = {**chunk, "choices": [{"delta": {"content": "x"}, **ends}]}
        if body.get("stream_continuous_usage_stats") == "true":
            said["usage"] = {"prompt_tokens": 999, "completion_tokens": number, "total_tokens": 999 + number}
        yield said
    if body.get("stream_include_usage") == "true":
        usage = {"prompt_tokens": 999, "completion_tokens": total, "total_tokens": 999 + total}
        yield {**chunk, "choices": [], "usage": usage}


def whole_transcription(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the transcription in one piece whose chunks these are."""
    return {"text": "x" * len(events), "usage": {"type": "duration", "seconds": 1}}


def form_of(body: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a form (RFC 7578), as the standard library's reader of mail finds them; files are bytes."""
    mail = email.message_from_bytes(b"Content-Type: %b\r\n\r\n%b" % (content_type.encode(), body))
    found: dict[str, Any] = {}
    for part in mail.get_payload():
        assert isinstance(part, email.message.Message)
        said = part.get_payload(decode=True)
        assert isinstance(said, bytes)
        name = str(part.get_param("name", header="content-disposition"))
        found[name] = said if part.get_filename() else said.decode()
    return found


def whole_message(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the message in one piece whose events these are."""
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    whole = [{**block, **({} if block["type"] == "tool_use" else {block["type"]: "ab"})} for block in blocks]
    end = events[-2]
    return {"type": "message", "content": whole, **end["delta"], "usage": end["usage"]}


def whole_response(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the response in one piece whose events these are."""
    text = {"type": "message", "content": [{"type": "output_text", "text": "ab"}]}
    return {**events[-1]["response"], "output": [text]}


STREAMED = {
    "/v1/responses": (response_events, whole_response),
    "/v1/messages": (message_events, whole_message),
    "/v1/audio/transcriptions": (transcription_events, whole_transcription),
}
PATHS = frozenset({*SHAPES, *STREAMED})


def is_token(event: dict[str, Any]) -> bool:
    """Return whether a token goes out with an event: the others come with the one behind or before them."""
    if "type" not in event:
        return bool(event.get("choices"))
    if event["type"].startswith("content_block"):
        kind = (event.get("delta") or event.get("content_block") or {}).get("type")
        return kind in ("text_delta", "thinking_delta", "input_json_delta", "tool_use")
    return bool(event["type"].endswith((".delta", "output_item.added")))


async def write_streamed(
    writer: asyncio.StreamWriter, path: str, body: dict[str, Any], *, ttft_s: float, itl_s: float, **how: int
) -> None:
    """Write a response or a message as a stream, or in one piece."""
    events_of, whole_of = STREAMED[path]
    if str(body.get("stream")).lower() != "true":
        said = json.dumps(whole_of(list(events_of(body, **how)))).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    number_sent = 0
    for event in events_of(body, **how):
        await asyncio.sleep(0.0 if not is_token(event) else itl_s if number_sent else ttft_s)
        number_sent += is_token(event)
        name = f"event: {event['type']}\n" if "type" in event else ""
        piece = f"{name}data: {json.dumps(event)}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
