"""Responses, reasoning, tools and several choices: what is sent, and which times and tokens are whose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from observe.kinds import anthropic_messages as messages
from observe.kinds import responses
from observe.response.stream_reader import StreamReader
from observe.result.json_document import summarize_observed
from observe.result.summary_table import table
from observe.settings import ToolUse
from tests.observe.servers import Behaviour, observed, serving
from tests.observe.workloads import every, statuses, workload

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TOOLS = ToolUse(name="tools.json", tools=(TOOL,), choice="look")
SLOW = {"ttft_s": 0.03, "itl_s": 0.01}


async def test_a_response_is_measured_as_a_chat_is() -> None:
    async with serving(Behaviour(**SLOW, num_reasoning=2)) as server:  # type: ignore[arg-type]  # floats
        seen = await observed(server, workload(every(2000, 3), output_tokens=6), api="responses")
        body = server.requests[-1].body
    assert body["max_output_tokens"] == 6 and body["stream"] is True and body["store"] is False
    assert isinstance(body["input"][0]["content"], str)
    assert not {"messages", "max_tokens", "stream_options", "min_tokens"} & set(body)
    trace = seen.trace
    assert statuses(trace) == ["ok"] * 3
    for name, value in {"output_tokens": 6, "reasoning_tokens": 2, "cached_input_tokens": 4}.items():
        assert list(trace.column(name)) == [value] * 3
    assert list(trace.column("finish_reason")) == ["length"] * 3
    assert list(trace.column("num_token_chunks")) == [6] * 3
    summary = summarize_observed(trace)
    assert 30_000 <= (summary["ttft_us"]["mean"] or 0) < (summary["ttfo_us"]["mean"] or 0) - 15_000
    assert (summary["tpot_us"]["mean"] or 0) >= 9_000
    assert "TTFO, ms" in table(summary) and "reasoning tokens" in table(summary)


async def test_a_message_is_measured_as_a_chat_is() -> None:
    requests = workload(every(2000, 3), input_tokens=40, output_tokens=6).with_columns(
        vllm_priority=[0, 1, 2]
    )
    async with serving(Behaviour(**SLOW, num_reasoning=2)) as server:  # type: ignore[arg-type]  # floats
        seen = await observed(server, requests, api="messages")
        body = server.requests[-1].body
    assert set(body) == {"model", "messages", "max_tokens", "temperature", "stream"}
    assert body["max_tokens"] == 6 and isinstance(body["messages"][0]["content"], str)
    trace = seen.trace
    assert statuses(trace) == ["ok"] * 3
    known = {"output_tokens": 6, "reasoning_tokens": 2, "cached_input_tokens": 39, "server_input_tokens": 40}
    for name, value in known.items():
        assert list(trace.column(name)) == [value] * 3, name
    assert list(trace.column("finish_reason")) == ["length"] * 3
    assert list(trace.column("num_token_chunks")) == [6] * 3
    assert trace.column("vllm_priority").isna().all()
    summary = summarize_observed(trace)
    assert 30_000 <= (summary["ttft_us"]["mean"] or 0) < (summary["ttfo_us"]["mean"] or 0) - 15_000
    assert (summary["tpot_us"]["mean"] or 0) >= 9_000
    client = trace.header.client  # words are counted by what the server counts, the cached ones too
    assert client is not None and client.ignore_eos is False and "(measured)" in (client.prompt_source or "")
    assert any(
        "--api messages has no ignore_eos, min_tokens, priority: answers end" in note for note in seen.notes
    )


@pytest.mark.parametrize("api", ["responses", "messages"])
async def test_an_answer_in_one_piece_is_whole(api: str) -> None:
    async with serving() as server:
        seen = await observed(server, workload(every(1000, 2)), api=api, streaming=False)
    assert statuses(seen.trace) == ["ok", "ok"] and list(seen.trace.column("output_tokens")) == [5, 5]


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_reasoning_has_a_first_visible_token_of_its_own(api: str) -> None:
    async with serving(Behaviour(**SLOW, num_reasoning=3)) as server:  # type: ignore[arg-type]
        seen = await observed(server, workload(every(2000, 2), output_tokens=6), api=api)
    later = seen.trace.column("visible_first_time_us") - seen.trace.column("content_first_time_us")
    assert all(25_000 <= each < 200_000 for each in later)  # three gaps of 10 ms
    assert list(seen.trace.column("reasoning_tokens")) == [3, 3]


async def test_an_answer_without_reasoning_has_no_first_visible_time() -> None:
    async with serving() as server:
        seen = await observed(server, workload(every(1000, 2)), api="chat")
    assert seen.trace.column("visible_first_time_us").isna().all()
    assert "TTFO" not in table(summarize_observed(seen.trace))


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_tools_are_sent_and_answers_that_call_one_are_counted(api: str) -> None:
    behaviour = Behaviour(fault="tools only", fault_on=frozenset({0, 2}), num_calls=2)
    async with serving(behaviour) as server:
        seen = await observed(server, workload(every(1000, 3)), api=api, tools=TOOLS, probe=False)
        body = server.requests[-1].body
    called = [TOOL, {"type": "function", "function": {"name": "look"}}]
    if api == "responses":
        called = [{"type": "function", **each["function"]} for each in called]  # type: ignore[dict-item]
    if api == "messages":
        called = [{"name": "look", "input_schema": {"type": "object"}}, {"type": "tool", "name": "look"}]
    assert [*body["tools"], body["tool_choice"]] == called
    assert "ignore_eos" not in body and "min_tokens" not in body
    calls = seen.trace.column("num_tool_calls").fillna(0)
    assert statuses(seen.trace) == ["ok"] * 3
    summary = summarize_observed(seen.trace)
    assert list(calls) == ([2, 2, 2] if api != "chat" else [1, 0, 1])[: len(calls)] or api == "chat"
    assert summary["num_called_tools"] == int((calls > 0).sum()) > 0
    assert f"{summary['num_called_tools']} answers called one" in table(summary)


@pytest.mark.parametrize("usage", ["each", "last"])
@pytest.mark.parametrize("api", ["completions", "chat"])
async def test_choices_count_together_and_gaps_are_of_the_first(api: str, usage: str) -> None:
    behaviour = Behaviour(**SLOW, usage=usage)  # type: ignore[arg-type]  # one of its words
    async with serving(behaviour) as server:
        seen = await observed(server, workload(every(2000, 3), output_tokens=6), api=api, num_choices=4)
        body = server.requests[-1].body
    assert (body["n"], body["temperature"]) == (4, 1)
    trace = seen.trace
    assert list(trace.column("output_tokens")) == [24] * 3
    assert trace.column("length_capped").isna().all()
    summary = summarize_observed(trace)
    assert summary["num_choices"] == 4 and ", 4 answers a prompt" in table(summary)
    assert 30_000 <= (summary["ttft_us"]["mean"] or 0) < 100_000
    for name in ("itl_us", "tpot_us"):
        assert 9_000 <= (summary[name]["mean"] or 0) < 30_000, (
            "a choice's own: not a quarter, and not of its steps"
        )
    assert not [note for note in summary["notes"] if "more or fewer tokens" in note]


def test_choices_that_end_at_different_times_end_with_the_last() -> None:
    reader = StreamReader(num_choices=2, asked=3)
    for stamp, index, tokens in ((10, 1, 1), (20, 0, 1), (30, 0, 2), (40, 1, 2), (50, 1, 3)):
        choice: dict[str, Any] = {"index": index, "text": "x", "finish_reason": None}
        said = {"choices": [choice], "usage": {"completion_tokens": tokens}}
        reader.take(b"data: " + json.dumps(said).encode() + b"\n\n", stamp)
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]}
    reader.take(b"data: " + json.dumps(end).encode() + b"\n\n", 55)
    reader.take(b'data: {"choices": [], "usage": {"completion_tokens": 5}}\n\ndata: [DONE]\n\n', 60)
    found = reader.finish(60, whole=True)
    assert (found.content_first, found.last_token, found.output_tokens) == (10, 50, 5)
    assert [tokens for tokens in found.event_tokens if tokens] == [1, 1]


def test_a_token_without_text_is_not_the_first_visible_one() -> None:
    """The mark that opens the reasoning is a token that vLLM's parser sends no text of."""
    reader = StreamReader()
    for stamp, delta in ((10, {}), (20, {"reasoning": "r"}), (30, {"content": "x"})):
        said = {"choices": [{"index": 0, "delta": delta}], "usage": {"completion_tokens": stamp // 10}}
        reader.take(b"data: " + json.dumps(said).encode() + b"\n\n", stamp)
    found = reader.finish(40, whole=False)
    assert (found.content_first, found.visible_first, found.reasoning_tokens) == (10, 30, 1)


def test_a_schema_is_sent_as_each_server_takes_it() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}}
    said = json.loads(
        responses.body("responses", b"[]", {"model": "m", "response_format": form, "min_tokens": 5})
    )
    assert said == {
        "model": "m",
        "store": False,
        "input": [],
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {}}},
    }
    own = json.loads(responses.body("responses", b"[]", {"structured_outputs": {"json": {}}}))
    assert own["structured_outputs"] == {"json": {}}


def test_every_other_event_of_a_response_is_empty() -> None:
    for kind in ("response.in_progress", "response.content_part.done", "response.output_text.done", None, 5):
        assert responses.read({"type": kind, "text": "all of it"}) == {}
    assert "error" in responses.read({"type": "error", "message": "boom"})
    assert (
        responses.read({"object": "response", "output": None}) == "output: got none, expected a list of items"
    )
    stopped = responses.read({"type": "response.completed", "response": {"status": "completed"}})
    assert isinstance(stopped, dict) and stopped["finish_reason"] == "stop"


def test_a_message_has_its_system_text_its_tools_and_its_schema_where_the_api_has_them() -> None:
    prompt = json.dumps(
        [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    ).encode()
    guided: dict[str, object] = {"structured_outputs": {"json": {"type": "object"}}}
    fields = {
        "model": "m",
        "max_tokens": 5,
        "ignore_eos": True,
        "min_tokens": 5,
        "stream_options": {},
        **guided,
    }
    said = json.loads(messages.body("messages", prompt, fields))
    schema = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    assert said == {
        "model": "m",
        "max_tokens": 5,
        "system": "be brief",
        "messages": [{"role": "user", "content": "hi"}],
        "output_config": schema,
    }
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    own = json.loads(messages.body("messages", b"[]", {"response_format": form}))
    assert own["output_config"] == schema
    quoted = json.dumps([{"role": "user", "content": 'say "system"'}]).encode()
    assert "system" not in json.loads(messages.body("messages", quoted, {"model": "m"}))
    for choice, sent in (
        ("required", {"type": "any"}),
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
    ):
        own = json.loads(messages.body("messages", b"[]", {"tools": [TOOL], "tool_choice": choice}))
        assert own["tool_choice"] == sent


def test_every_other_event_of_a_message_is_empty() -> None:
    signature = {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "s"}}
    for event in (
        {"type": "ping"},
        {"type": "message_stop"},
        {"type": "content_block_stop"},
        signature,
        {"type": 5},
    ):
        assert messages.read(event) == {}
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}
    assert messages.read(overloaded) == {"error": overloaded["error"]}
    assert messages.read({"type": "message"}) == "content: got none, expected a list of blocks"


def test_a_message_s_prompt_is_what_was_new_and_what_a_cache_had() -> None:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 5,
        "cache_creation_input_tokens": 7,
        "output_tokens": 2,
    }
    said = messages.read({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
    assert said == {
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 15, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 5}},
    }
    refused = messages.read({"type": "message_delta", "delta": {"stop_reason": "refusal"}})
    assert refused == {"finish_reason": "refusal"}


def test_the_blocks_of_a_whole_message_are_text_thinking_and_calls() -> None:
    blocks = [
        {"type": "thinking", "thinking": "so", "signature": "s"},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
        {"type": "tool_use", "name": "look", "input": {}},
        "none of these",
    ]
    said = messages.read({"type": "message", "content": blocks, "stop_reason": "tool_use"})
    assert isinstance(said, dict)
    assert said["choices"][0]["message"] == {
        "reasoning": "so",
        "content": "ab",
        "tool_calls": [{"index": 0, "function": {"name": "look"}}],
    }
    assert said["finish_reason"] == "tool_calls"
