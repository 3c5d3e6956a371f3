"""Answers that state what cannot be: unknown in their own row, nothing in any other, and a trace that can be read."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import chain
from typing import Any

import orjson
import pytest

from observe import Settings, observe_trace, observe_with, parse_endpoint
from observe.record.recorder import read_exchange
from observe.response.stated_values import milliseconds, short_text, token_count, token_ids
from observe.result.json_document import summarize_observed
from observe.senders.exchange import AnswerLimit, Exchange
from tests.observe.plan.test_conversations import sessions
from tests.observe.raw_server import HEAD, chunk
from tests.observe.servers import Behaviour, serving
from tests.observe.workloads import statuses, workload
from traces import ClosedLoop, Trace, read_trace

UNTRUE: dict[str, tuple[dict[str, Any], str]] = {
    # what the last event says beside its text, and the field that is told of
    "an infinite queue": ({"usage": {}, "metrics": {"queue_time_ms": 1e308}}, "queue_time_ms"),
    "a negative queue": ({"usage": {}, "metrics": {"queue_time_ms": -5}}, "queue_time_ms"),
    "a prefill of words": (
        {"usage": {}, "metrics": {"time_to_first_token_ms": "soon"}},
        "time_to_first_token_ms",
    ),
    "tokens beyond int64": ({"usage": {"completion_tokens": 1 << 63}}, "completion_tokens"),
    "tokens beyond any context": ({"usage": {"completion_tokens": 10**18}}, "completion_tokens"),
    "more tokens than bytes": ({"usage": {"completion_tokens": 1_000_000}}, "completion_tokens"),
    "negative tokens": ({"usage": {"completion_tokens": -1}}, "completion_tokens"),
    "half a token": ({"usage": {"completion_tokens": 1.5}}, "completion_tokens"),
    "true tokens": ({"usage": {"completion_tokens": True}}, "completion_tokens"),
    "prompt tokens beyond int64": ({"usage": {"prompt_tokens": 1 << 63}}, "prompt_tokens"),
    "negative cached tokens": ({"usage": {"prompt_tokens_details": {"cached_tokens": -3}}}, "cached_tokens"),
    "a fingerprint of two lines": ({"system_fingerprint": "a\n::error::b"}, "system_fingerprint"),
    "a reason with an escape": ({"finish_reason": "\x1b[2Jstop"}, "finish_reason"),
}


def in_turn(number: int) -> Trace:
    """Requests one after another: the server's n-th is the trace's n-th."""
    return workload([None] * number, header={"closed_loop": ClosedLoop(concurrency=1)})


def answer(said: dict[str, Any]) -> bytes:
    reason = said.pop("finish_reason", "length")
    event = {"choices": [{"text": "x", "finish_reason": reason}], **said}
    return HEAD + chunk(b"data: " + orjson.dumps(event) + b"\n\n") + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


async def test_no_answer_spoils_the_run(tmp_path: Any) -> None:  # noqa: ANN401
    raw = {2 * row + 1: answer(dict(said)) for row, (said, _) in enumerate(UNTRUE.values())}
    number = 2 * len(UNTRUE) + 1
    async with serving(Behaviour(raw=raw)) as server:
        trace = await observe_trace(in_turn(number), url=server.url, output=tmp_path / "t", api="completions")
    assert list(read_trace(tmp_path / "t").column("status")) == statuses(trace)
    assert statuses(trace) == ["ok"] * number
    good = trace.requests.iloc[::2]
    assert set(good["output_tokens"]) == {5}
    assert set(good["server_input_tokens"]) == {8}
    bad = trace.requests.iloc[1::2]
    for column in ("server_queue_us", "server_prefill_us"):
        assert bad[column].isna().all(), column
    unknown = [field in ("completion_tokens", "finish_reason") for _, field in UNTRUE.values()]
    assert bad["output_tokens"].isna().tolist() == unknown
    client = trace.header.client
    assert client is not None
    (told,) = [note for note in client.notes if note.startswith("impossible values")]
    for _, field in UNTRUE.values():
        assert field in told
    summary = summarize_observed(trace)
    assert summary["output_token_throughput"] is None  # of some answers the tokens are not known


async def test_token_ids_that_are_none_leave_the_session_going() -> None:
    said = {
        "choices": [{"text": "x", "token_ids": "abc", "finish_reason": "length"}],
        "usage": {"completion_tokens": 1},
    }
    body = HEAD + chunk(b"data: " + orjson.dumps(said) + b"\n\ndata: [DONE]\n\n") + b"0\r\n\r\n"
    async with serving(Behaviour(raw={1: body})) as server:  # 0 asks whether the server names its tokens
        settings = Settings(endpoint=parse_endpoint(server.url))
        trace = (await observe_with(sessions([0], 3, think_us=0), settings)).trace
    assert statuses(trace) == ["ok"] * 3


def test_fields_are_what_they_say_or_unknown() -> None:
    assert [token_count(value) for value in (0, 7, (1 << 31) - 1)] == [0, 7, (1 << 31) - 1]
    assert {token_count(value) for value in (-1, 1 << 31, 1.0, True, "7", None, [])} == {None}
    assert [milliseconds(value) for value in (0, 1.5, 10**10)] == [0, 1.5, 1e10]
    nan, inf = float("nan"), float("inf")
    assert {milliseconds(value) for value in (-0.1, nan, inf, 1e308, 10**400, True, "1", None)} == {None}
    assert token_ids([1, 2]) == (1, 2)
    assert {token_ids(value) for value in ("abc", [1, "a"], [1.0], [-1], {"a": 1}, None)} == {None}
    assert short_text("tiny-1 \u65e5") == "tiny-1 \u65e5"
    assert {short_text(value) for value in ("", "a\nb", "a" * 201, "\u202e", "\x00", 7, None)} == {None}


def test_time_per_event_stays_flat() -> None:
    """What 20,000 events cost each, in one answer, is what 2,000 cost each."""

    def cost_of(number: int) -> float:
        event = b'data: {"choices":[{"text":"a"}],"usage":{"completion_tokens":1}}\n\n'
        best = float("inf")
        for _ in range(3):
            exchange = Exchange(
                x_request_id="", blobs=[event * 20] * (number // 20), stamps=list(range(number // 20))
            )
            before = time.process_time()
            asyncio.run(read_exchange(exchange, asked=number))
            best = min(best, time.process_time() - before)
        return best / number

    assert cost_of(40_000) < 4 * cost_of(4_000)


@pytest.mark.parametrize("plain", [True, False], ids=["sockets", "aiohttp"])
async def test_an_endless_answer_is_cut_and_the_others_go_on(
    plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("observe.senders.choose_sender.is_direct_http", lambda _: plain)
    monkeypatch.setattr(
        "observe.run.dispatch.answer_limit", lambda _: AnswerLimit(num_bytes=1 << 30, num_lines=999)
    )
    async with serving(Behaviour(fault="endless", fault_on=frozenset({1}))) as server:
        trace = await observe_trace(in_turn(3), url=server.url)
    assert statuses(trace) == ["ok", "error", "ok"]
    assert "endless answer: more than 999 lines" in str(trace.column("error_message").iloc[1])


async def test_two_interrupts_end_a_run_whatever_the_server_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "observe.run.dispatch.answer_limit", lambda _: AnswerLimit(num_bytes=1 << 50, num_lines=1 << 50)
    )
    monkeypatch.setattr("observe.record.recorder._LINES_AFTER_ABORT", 1000)
    async with serving(Behaviour(fault="endless", fault_on=frozenset({0, 1}))) as server:
        settings = Settings(endpoint=parse_endpoint(server.url))
        run = asyncio.create_task(observe_with(workload([0] * 3), settings, handle_signals=True))
        await server.received(3)
        for after_s in (0.1, 0.15):
            asyncio.get_running_loop().call_later(after_s, os.kill, os.getpid(), signal.SIGINT)
        began = time.monotonic()
        seen = await run
    assert time.monotonic() - began < 5
    assert seen.interrupted
    assert sorted(statuses(seen.trace)) == ["aborted", "aborted", "ok"]
    assert [*chain(seen.trace.column("num_chunks"))].count(0) == 2
