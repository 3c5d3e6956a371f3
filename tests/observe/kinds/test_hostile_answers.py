"""Whatever an answer of any kind holds, it is read to a result, and what is no answer has a fault."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.response.stream_reader import StreamReader
from observe.response.unstreamed import read_unstreamed
from observe.senders.request_kinds import KINDS
from traces.workload import Api

NAMES = (
    *(
        "type",
        "delta",
        "item",
        "response",
        "object",
        "output",
        "content",
        "text",
        "status",
        "usage",
        "error",
        "message",
    ),
    *(
        "input_tokens",
        "output_tokens",
        "incomplete_details",
        "reason",
        "output_index",
        "choices",
        "index",
        "finish_reason",
    ),
    *("content_block", "partial_json", "thinking", "stop_reason", "cache_read_input_tokens"),
    *("data", "results", "embedding", "score", "total_tokens", "tool_calls", "function", "name"),
)
WORDS = st.sampled_from(
    (
        *(
            "response.output_text.delta",
            "response.output_item.added",
            "response.completed",
            "response.failed",
            "error",
        ),
        *("transcript.text.delta", "transcript.text.done", "duration"),
        *("content_block_delta", "content_block_start", "message_start", "message_delta", "message"),
        *("text_delta", "thinking_delta", "input_json_delta", "thinking", "tool_use", "max_tokens"),
        *("response.function_call_arguments.delta", "response", "function_call", "failed", "incomplete", "x"),
    )
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**33)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=12,
)
EVENTS = st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=6), min_size=1, max_size=4)


@pytest.mark.parametrize("api", list(KINDS))
@given(events=EVENTS)
def test_any_json_is_read_in_every_kind(api: Api, events: list[dict[str, Any]]) -> None:
    own = KINDS[api].own()
    as_completion = None if own is None else own.as_completion(api, 1)
    reader = StreamReader(as_completion=as_completion, num_choices=2, asked=3)
    for place, said in enumerate(events):
        reader.take(b"data: " + orjson.dumps(said) + b"\n\n", 10 + place)
    found = reader.finish(20, whole=True)
    assert found.last_token is None or 10 <= found.last_token <= 20
    assert found.output_tokens is None or found.output_tokens >= 0
    assert len(found.event_tokens) == len(found.event_stamps)
    whole = StreamReader(streamed=False, as_completion=as_completion, asked=3)
    answer = read_unstreamed(whole, [orjson.dumps(events[0])], 30, whole=True)
    assert answer.content_first is None and answer.last_token in (None, 30)
    if not KINDS[api].generates and answer.fault is None:
        assert events[0].get("data") or events[0].get("results")
