"""Answers to requests that are no completions, and what senders in other processes and on other machines say.

Whatever an answer of these kinds holds, the trace can be read, and the rows of other requests are what they would have
been. Whatever bytes come from a sender, what was whole before them has been heard, and the end is an end.
"""

from __future__ import annotations

import asyncio
from functools import cache, partial
from typing import Any

import orjson

from observe.processes.messages import Answer, CounterReport, Lines, Ready, Refused, packed, receive
from observe.processes.progress_reports import Reporter
from observe.run.run_counts import Progress
from observe.senders.request_kinds import KINDS
from tests.fuzz.client_targets import NUMBERS, observed_answers, without_second
from tests.fuzz.target import Target, damaged
from tests.observe.kind_answers import pooled, response_events, transcription_events
from traces.workload import Api

POOLING: tuple[Api, ...] = ("embeddings", "pooling", "classify", "rerank", "score")
_ASKED: dict[str, Any] = {
    "model": "tiny",
    "max_output_tokens": 4,
    "input": ["a b"],
    "query": "q",
    "documents": ["a b"],
}
_FORM = {
    "model": "tiny",
    "max_completion_tokens": "4",
    "stream_include_usage": "true",
    "stream_continuous_usage_stats": "true",
}
_TOKENS = (
    *NUMBERS,
    b'"message"',
    b'"function_call"',
    b'"response.failed"',
    b'"response.completed"',
    b'"error"',
    b'{"index":0}',
)


def _pooled(api: Api) -> bytes:
    asked = _ASKED if api in ("rerank", "score") else {"model": "tiny", "input": ["a b"]}
    return orjson.dumps(pooled(KINDS[api].path, asked))


def _events(*, reasoning: int = 1, calls: int = 0, fails: int = 0) -> bytes:
    said = response_events(_ASKED, reasoning=reasoning, calls=calls, fails=fails)
    return b"".join(b"event: %b\ndata: %b\n\n" % (each["type"].encode(), orjson.dumps(each)) for each in said)


def _chunks(*, fails: int = 0) -> bytes:
    said = transcription_events(_FORM, reasoning=0, calls=0, fails=fails)
    return b"".join(b"data: %b\n\n" % orjson.dumps(each) for each in said)


def _response() -> bytes:
    *_, last = response_events(_ASKED, reasoning=1, calls=0, fails=0)
    text = {"type": "message", "content": [{"type": "output_text", "text": "ab"}]}
    called = {"type": "function_call", "name": "f", "arguments": "{}"}
    return orjson.dumps({**last["response"], "output": [text, called]})


@cache
def _others(api: Api, good: bytes, streaming: bool) -> str:
    reader = KINDS[api].own()
    assert reader is not None
    return without_second(
        observed_answers(b"", good=good, streaming=streaming, as_completion=reader.as_completion(api, 1))
    )


def _recorded(data: bytes, *, api: Api, good: bytes, streaming: bool) -> None:
    reader = KINDS[api].own()
    assert reader is not None
    trace = observed_answers(data, good=good, streaming=streaming, as_completion=reader.as_completion(api, 1))
    assert len(trace) == 3
    assert without_second(trace) == _others(api, good, streaming)


@cache
def _said() -> tuple[Answer, ...]:
    """Return what a sender says, but for its end."""
    progress = Progress(num_planned=3, start_ns=5)
    progress.note_launch(held_back=False)
    progress.status["ok"] += 1
    progress.dispatched_ns.append(10)
    return (
        Ready(library="sockets", clock_name="CLOCK_MONOTONIC"),
        Reporter(progress).report(),
        Lines(rows=b"1,2,3\n", events=b""),
        Refused(message="no room"),
    )


async def _heard(data: bytes) -> list[object]:
    reader, heard = asyncio.StreamReader(), list[object]()
    for start in range(0, len(data), 50):
        reader.feed_data(data[start : start + 50])
    reader.feed_eof()
    while (said := await receive(reader)) is not None:
        heard.append(said)
    return heard


def _messages(data: bytes) -> None:
    """All messages that were whole before the first damaged byte are heard; what is heard is a message of ours."""
    heard, whole = asyncio.run(_heard(data)), 0
    for message in _said():
        text = packed(message)
        if not data.startswith(text):
            break
        data, whole = data[len(text) :], whole + 1
    assert [repr(each) for each in heard[:whole]] == [repr(each) for each in _said()[:whole]]
    assert all(isinstance(each, Ready | CounterReport | Lines | Refused) for each in heard)


TARGETS = [
    *(
        Target(
            f"{api}-to-trace",
            damaged((_pooled(api),), _TOKENS),
            partial(_recorded, api=api, good=_pooled(api), streaming=False),
            4,
        )
        for api in POOLING
    ),
    Target(
        "responses-to-trace",
        damaged((_events(), _events(calls=2), _events(fails=1)), (*_TOKENS, b"data:")),
        partial(_recorded, api="responses", good=_events(), streaming=True),
        4,
    ),
    Target(
        "response-to-trace",
        damaged((_response(),), _TOKENS),
        partial(_recorded, api="responses", good=_response(), streaming=False),
        4,
    ),
    Target(
        "transcription-to-trace",
        damaged((_chunks(), _chunks(fails=1)), (*_TOKENS, b"data:", b'"transcript.text.done"')),
        partial(_recorded, api="transcriptions", good=_chunks(), streaming=True),
        4,
    ),
    Target("messages-of-senders", damaged((b"".join(map(packed, _said())),)), _messages),
]
