"""Which event moves which time, and what an event's tokens are."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from observe.response.reading import Reading
from observe.response.stream_reader import StreamReader

DONE = b"data: [DONE]\n\n"


def sse(event: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(event) + b"\n\n"


def text(words: str, *, total: int | None = None, finish: str | None = None) -> bytes:
    event: dict[str, Any] = {"choices": [{"index": 0, "text": words, "finish_reason": finish}]}
    if total is not None:
        event["usage"] = {"prompt_tokens": 9, "completion_tokens": total}
    return sse(event)


def chat(delta: dict[str, Any], *, total: int | None = None, finish: str | None = None) -> bytes:
    event: dict[str, Any] = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if total is not None:
        event["usage"] = {"prompt_tokens": 9, "completion_tokens": total}
    return sse(event)


def usage(total: int) -> bytes:
    return sse({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": total}})


def read(*blobs: bytes, whole: bool = True) -> Reading:
    """Read the blobs, the k-th stamped 10 * (k + 1)."""
    reader = StreamReader()
    for number, blob in enumerate(blobs):
        reader.take(blob, 10 * (number + 1))
    return reader.finish(10 * len(blobs), whole=whole)


def test_a_plain_completion_has_one_token_per_event_and_its_usage_moves_no_time() -> None:
    reading = read(text("a"), text("b"), text("c", finish="length"), usage(3), DONE)
    assert reading.fault is None
    assert (reading.content_first, reading.last_token) == (10, 30)
    assert reading.event_stamps == [10, 20, 30, 40]
    assert reading.event_tokens == [1, 1, 1, 0]
    assert (reading.output_tokens, reading.server_input_tokens) == (3, 9)
    assert reading.num_token_chunks == 3
    assert reading.finish_reason == "length"
    assert not reading.counted_by_event


def test_a_role_of_its_own_is_the_first_chunk_but_not_the_first_text() -> None:
    reading = read(
        chat({"role": "assistant", "content": ""}), chat({"content": "hi"}, finish="stop"), usage(1), DONE
    )
    assert reading.event_stamps[0] == 10
    assert (reading.content_first, reading.last_token) == (20, 20)
    assert reading.event_tokens == [0, 1, 0]


def test_an_early_role_with_counted_usage_of_zero_carries_nothing() -> None:
    reading = read(
        chat({"role": "assistant", "content": ""}, total=0), chat({"content": "hi"}, total=1), DONE
    )
    assert reading.content_first == 20
    assert reading.event_tokens == [0, 1]


def test_a_role_that_comes_with_text_is_the_first_text() -> None:
    assert read(chat({"role": "assistant", "content": "hi"}), DONE).content_first == 10


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
    ],
)
def test_reasoning_refusal_and_tool_calls_are_output(delta: dict[str, Any]) -> None:
    reading = read(chat({"role": "assistant"}), chat(delta), chat({}, finish="stop"), DONE)
    assert (reading.content_first, reading.last_token) == (20, 20)


def test_an_empty_first_text_is_not_the_first_token() -> None:
    assert read(text(""), text("a", finish="stop"), DONE).content_first == 20


def test_an_empty_text_whose_usage_counts_a_token_is_a_token() -> None:
    reading = read(text("", total=1), text("ab", total=2), text("", total=2, finish="length"), usage(2), DONE)
    assert reading.content_first == 10
    assert reading.last_token == 20
    assert reading.event_tokens == [1, 1, 0, 0]
    assert reading.counted_by_event


def test_several_tokens_in_one_event_are_counted_from_its_usage() -> None:
    reading = read(
        text("a", total=1), text("bcd", total=4), text("e", total=5, finish="length"), usage(5), DONE
    )
    assert reading.event_tokens == [1, 3, 1, 0]
    assert reading.num_token_chunks == 3


def test_tokens_per_event_are_unknown_when_only_the_sum_is_given_and_differs() -> None:
    reading = read(text("abcd"), text("efgh", finish="length"), usage(8), DONE)
    assert reading.event_tokens == [None, None, 0]
    assert reading.output_tokens == 8


def test_usage_that_comes_only_with_the_last_text_counts_no_single_event() -> None:
    reading = read(text("ab"), text("cd"), text("ef", total=6, finish="length"), DONE)
    assert reading.event_tokens == [None, None, None]
    assert not reading.counted_by_event
    ones = read(text("a"), text("b"), text("c", total=3, finish="length"), DONE)
    assert ones.event_tokens == [1, 1, 1]
    assert ones.output_tokens == 3


def test_events_are_never_counted_as_tokens_when_usage_is_missing() -> None:
    reading = read(text("a"), text("b", finish="length"), DONE)
    assert reading.output_tokens is None
    assert reading.event_tokens == [None, None]
    assert reading.fault is None


def test_several_events_in_one_blob_share_its_stamp() -> None:
    assert read(text("a") + text("b"), text("c", finish="stop"), DONE).event_stamps == [10, 10, 20]


def test_cached_tokens_and_the_servers_own_timings_are_kept() -> None:
    closing = {
        "choices": [],
        "system_fingerprint": "vllm-1",
        "usage": {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}},
        "metrics": {"queue_time_ms": 0.5, "time_to_first_token_ms": 12.25, "generation_time_ms": 100},
    }
    reading = read(text("a", finish="stop"), sse(closing), DONE)
    assert reading.cached_input_tokens == 8
    assert reading.system_fingerprint == "vllm-1"
    assert (reading.timings.queue_ms, reading.timings.prefill_ms, reading.timings.decode_ms) == (
        0.5,
        12.25,
        100.0,
    )


def test_an_error_within_the_stream_is_the_answers_fault_and_what_came_before_is_kept() -> None:
    reading = read(text("a"), sse({"error": {"message": "engine died", "code": 500}}), DONE)
    assert reading.fault == "server said: engine died"
    assert reading.content_first == 10


def test_a_malformed_event_is_named_by_its_number() -> None:
    reading = read(text("a"), b"data: {oops\n\n", text("b", finish="stop"), DONE)
    assert reading.fault == "event 1: got '{oops', expected a JSON object"
    assert reading.event_stamps == [10, 30]


def test_a_stream_that_just_stops_is_not_a_whole_answer() -> None:
    assert read(text("a"), text("b")).fault == "stream ended after 2 events without finish_reason or [DONE]"


def test_a_cut_stream_is_not_judged_by_its_end() -> None:
    assert read(text("a"), text("b"), whole=False).fault is None


def test_done_alone_or_a_finish_reason_alone_ends_an_answer() -> None:
    assert read(text("a"), DONE).fault is None
    assert read(text("a", finish="stop")).fault is None


def test_a_body_that_is_no_event_stream_is_quoted() -> None:
    fault = read(b"<html>busy</html>").fault
    assert fault == "body without an event: got '<html>busy</html>', expected text/event-stream"
    assert read(b"").fault == "body without an event: got '', expected text/event-stream"
    assert read(b'{"error":"overloaded"}').fault == "server said: overloaded"


def test_a_cut_anywhere_changes_only_stamps() -> None:
    body = b"".join(
        [text("a", total=1), text("é\n", total=3), text("", total=3, finish="length"), usage(3), DONE]
    )
    for cut in range(len(body)):
        reading = read(body[:cut], body[cut:])
        assert reading.fault is None
        assert reading.event_tokens == [1, 2, 0, 0], cut
        assert reading.output_tokens == 3


def test_usage_that_falls_counts_no_event() -> None:
    """A count that goes back is no count of what came, not of the event that it came with either."""
    reading = read(text("a", total=3), text("b", total=2), text("c", total=4, finish="length"), DONE)
    assert not reading.counted_by_event
    assert reading.output_tokens == 4
    assert reading.event_tokens == [None, None, None]


def test_a_finish_reason_is_kept_when_later_choices_have_none() -> None:
    reading = read(text("a", finish="length"), text(""), usage(1), DONE)
    assert reading.finish_reason == "length"
