"""Tokens of an answer whose usage is absent, of zeros, or counts reasoning apart."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from observe.response.delta import unread_keys
from observe.response.reading import Reading
from observe.response.stream_reader import StreamReader

MS = 1_000_000


def read(*events: dict[str, Any], asked: int = 20, step_ms: int = 10) -> Reading:
    reader = StreamReader(asked=asked)
    for number, event in enumerate(events):
        reader.take(b"data: " + orjson.dumps(event) + b"\n\n", (100 + step_ms * number) * MS)
    reader.take(b"data: [DONE]\n\n", (100 + step_ms * len(events)) * MS)
    return reader.finish(0, whole=True)


def delta(reason: str | None = None, **said: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": reason}]}


def usage(**counts: object) -> dict[str, Any]:
    return {"choices": [], "usage": counts}


def texts(number: int, reason: str = "stop") -> list[dict[str, Any]]:
    return [delta(reason if left == 1 else None, content="x") for left in range(number, 0, -1)]


def test_hidden_reasoning_leaves_one_token_an_event() -> None:
    said = usage(prompt_tokens=8, completion_tokens=20, completion_tokens_details={"reasoning_tokens": 10})
    reading = read(*texts(10), said)
    assert (reading.output_tokens, reading.reasoning_tokens, reading.hidden_tokens) == (20, 10, 10)
    assert reading.event_tokens == [1] * 10 + [0]
    assert reading.first_chunk_tokens == 1


def test_a_usage_so_far_counts_hidden_tokens_at_the_first_text_and_they_are_taken_out_of_it() -> None:
    events = [{**event, "usage": {"completion_tokens": 11 + place}} for place, event in enumerate(texts(10))]
    said = usage(completion_tokens=20, completion_tokens_details={"reasoning_tokens": 10})
    assert read(*events, said).event_tokens == [1] * 10 + [0]


def test_reasoning_that_completion_tokens_leave_out_is_output_too() -> None:
    said = usage(
        prompt_tokens=8,
        completion_tokens=10,
        total_tokens=28,
        completion_tokens_details={"reasoning_tokens": 10},
    )
    reading = read(*texts(10), said)
    assert (reading.output_tokens, reading.hidden_tokens) == (20, 10)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("reasoning_content", "x"),
        ("reasoning", "x"),
        ("reasoning_details", [{"type": "reasoning.text", "text": "x"}]),
        ("thinking_blocks", [{"type": "thinking", "thinking": "x"}]),
    ],
)
def test_streamed_reasoning_is_text_and_is_counted_apart(key: str, said: object) -> None:
    reading = read(delta(**{key: said}), *texts(4), usage(completion_tokens=5))
    assert (reading.num_token_chunks, reading.reasoning_tokens, reading.hidden_tokens) == (5, 1, None)
    assert reading.content_first == 100 * MS


@pytest.mark.parametrize(("stated", "counted"), [(0, 3), (2, 2), (None, 3)])
def test_reasoning_that_usage_counts_as_none_is_counted_by_its_events(
    stated: int | None, counted: int
) -> None:
    """vLLM 0.32 states 0 where the model's template has begun the reasoning: ``deepseek_r1``, seen of a real server."""
    details = {"completion_tokens_details": {"reasoning_tokens": stated}}
    reading = read(*[delta(reasoning="x")] * 3, *texts(4), usage(completion_tokens=7, **details))
    assert (reading.reasoning_tokens, reading.visible_first) == (counted, 130 * MS)


def test_reasoning_in_one_piece_with_its_answer_that_usage_counts_as_none_is_unknown() -> None:
    reader = StreamReader(asked=20, streamed=False)
    choice = {"index": 0, "message": {"reasoning": "x x x", "content": "y y"}, "finish_reason": "stop"}
    counts = {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 0}}
    reader.take(orjson.dumps({"choices": [choice], "usage": counts}), 100 * MS)
    assert reader.finish(100 * MS, whole=True).reasoning_tokens is None


def test_an_encrypted_block_of_reasoning_is_no_text() -> None:
    hidden = delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "abc"}])
    said = usage(completion_tokens=9, completion_tokens_details={"reasoning_tokens": 5})
    reading = read(hidden, *texts(4), said)
    assert (reading.num_token_chunks, reading.hidden_tokens) == (4, 5)


@pytest.mark.parametrize("zeros", [True, False], ids=["zeros", "none"])
def test_without_usage_length_says_max_tokens_and_an_own_end_a_token_an_event(zeros: bool) -> None:
    said = [usage(prompt_tokens=0, completion_tokens=0)] if zeros else []
    assert (found := read(*texts(20, "length"), *said)).output_tokens == 20
    assert (found.counted_from, found.event_tokens[:20]) == ("max_tokens", [1] * 20)
    assert (found := read(*texts(10, "length"), *said)).output_tokens == 20
    assert set(found.event_tokens[:10]) == {None}
    found = read(*texts(7), *said)
    assert (found.output_tokens, found.counted_from, found.server_input_tokens) == (7, "events", None)


def test_zeros_with_every_event_are_no_counts() -> None:
    events = [
        {**event, "usage": {"completion_tokens": 0, "prompt_tokens": 0}} for event in texts(20, "length")
    ]
    found = read(*events)
    assert (found.output_tokens, found.event_tokens) == (20, [1] * 20)


def test_one_event_without_usage_says_nothing_of_its_tokens() -> None:
    assert read(*texts(1)).output_tokens is None


def test_events_within_a_fifth_of_a_millisecond_are_one_read() -> None:
    found = read(*texts(8), usage(completion_tokens=8), step_ms=0)
    assert (found.num_token_reads, found.first_chunk_tokens) == (1, 8)
    assert read(*texts(8), usage(completion_tokens=8)).num_token_reads == 8


def test_keys_that_nobody_reads_are_named_if_they_hold_something() -> None:
    assert unread_keys({"delta": {"content": "x", "thoughts": "y", "audio": None, "role": "a"}}) == {
        "thoughts"
    }
    assert unread_keys({"text": "x"}) == set()


def test_a_first_event_of_a_long_text_is_several_tokens_where_events_are_not_counted() -> None:
    opening, rest = delta(content="t" * 16), [delta(content="t" * 2)] * 12
    reading = read(opening, *rest, delta("stop"), usage(completion_tokens=20))
    assert (reading.first_chunk_tokens, reading.first_by_text) == (8, True)
    one_long_word = read(delta(content="t" * 5), *rest, delta("stop"), usage(completion_tokens=20))
    assert (one_long_word.first_chunk_tokens, one_long_word.first_by_text) == (None, False)
