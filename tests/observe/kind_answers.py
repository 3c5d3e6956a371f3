"""Answers of the tests' server to requests that are no completions, as vLLM 0.32 gives them."""

from __future__ import annotations

import asyncio
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
PATHS = frozenset({*SHAPES, "/v1/responses"})


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


async def write_response(
    writer: asyncio.StreamWriter, body: dict[str, Any], *, ttft_s: float, itl_s: float, **how: int
) -> None:
    """Write a response as a stream, or in one piece."""
    if not body.get("stream"):
        *_, last = response_events(body, **how)
        text = {"type": "message", "content": [{"type": "output_text", "text": "ab"}]}
        said = json.dumps({**last["response"], "output": [text]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for number, event in enumerate(response_events(body, **how)):
        await asyncio.sleep((0.0, ttft_s)[number] if number < 2 else itl_s)
        piece = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
