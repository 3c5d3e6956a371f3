"""What will be sent: exact lengths, shared content where it is shared, and none where it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.plan.prompts import (
    BLOCK,
    COMMON_WORDS,
    GROUP,
    OWN,
    TOKEN_HIGH,
    TOKEN_LOW,
    Segment,
    TokenPrompts,
    WordPrompts,
    draw,
    key_of,
)
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from tests.observe.workloads import every, workload
from traces import ClosedLoop, Trace, TraceError

SHAPE = BodyShape(api="completions", model="tiny")


def plan_of(
    trace: Trace, *, salt: int = 1, shape: BodyShape = SHAPE, prebuild_bytes: int = 1 << 20
) -> SendPlan:
    return make_plan(trace, prompts=TokenPrompts(salt), shape=shape, prebuild_bytes=prebuild_bytes)


def bodies(plan: SendPlan) -> list[dict[str, Any]]:
    return [json.loads(plan.take_body(row)) for row in range(len(plan))]


def common_prefix(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def test_a_body_pins_the_output_and_asks_for_counted_tokens() -> None:
    body = bodies(plan_of(workload([0], input_tokens=3, output_tokens=7)))[0]
    prompt = body.pop("prompt")
    assert len(prompt) == 3
    assert body == {
        "model": "tiny",
        "max_tokens": 7,
        "min_tokens": 7,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_a_row_may_name_its_model_and_priority_where_the_server_has_it() -> None:
    trace = workload([0, 0, 0], model=["other", "unknown", None], vllm_priority=[-1, None, 0])
    shape = BodyShape(api="completions", model="tiny", row_models=frozenset({"tiny", "other"}))
    sent = bodies(plan_of(trace, shape=shape))
    assert [body["model"] for body in sent] == ["other", "tiny", "tiny"]
    assert [body.get("priority") for body in sent] == [-1, None, 0]


@given(lengths=st.lists(st.integers(1, 700), min_size=1, max_size=8), salt=st.integers(0, 2**48))
def test_every_prompt_has_exactly_its_length_in_ordinary_tokens(lengths: list[int], salt: int) -> None:
    trace = workload([0] * len(lengths)).with_columns(input_tokens=lengths)
    for body, length in zip(bodies(plan_of(trace, salt=salt)), lengths, strict=True):
        assert len(body["prompt"]) == length
        assert all(TOKEN_LOW <= token < TOKEN_HIGH for token in body["prompt"])


def test_what_the_server_once_counted_is_sent_again_of_a_measured_row_alone() -> None:
    """The server adds its chat template to a workload's prompts once more."""
    trace = workload([0, 0], input_tokens=8, server_input_tokens=[21, 21], status=[None, "ok"])
    assert [len(body["prompt"]) for body in bodies(plan_of(trace))] == [8, 21]


def test_a_workload_whose_answers_ended_early_is_sent_with_its_budgets() -> None:
    trace = workload([0] * 3, max_tokens=[64, None, 64], status=[None, None, "ok"])
    assert list(plan_of(trace).max_tokens) == [64, 5, 5]


def test_requests_of_a_prefix_group_share_as_many_tokens_as_the_shorter_prefix() -> None:
    trace = workload(
        [0] * 4, input_tokens=40, prefix_group=["a", "a", "b", None], prefix_length=[64, 32, 64, 0]
    )
    one, two, other, alone = (body["prompt"] for body in bodies(plan_of(trace)))
    assert [len(prompt) for prompt in (one, two, other, alone)] == [104, 72, 104, 40]
    assert common_prefix(one, two) == 32
    assert common_prefix(one, other) < 3
    assert common_prefix(one, alone) < 3


def test_equal_block_hashes_share_content_and_the_last_may_be_partial() -> None:
    hashes = ["1 2 3", "1 2 4", "1 9", "7 2 3"]
    trace = workload([0] * 4, prefix_hashes=hashes, header={"hash_block_size": 16}).with_columns(
        input_tokens=[40, 48, 30, 40]
    )
    first, second, third, fourth = (body["prompt"] for body in bodies(plan_of(trace)))
    assert [len(prompt) for prompt in (first, second, third, fourth)] == [40, 48, 30, 40]
    assert common_prefix(first, second) == 32
    assert common_prefix(first, third) == 16
    assert common_prefix(first, fourth) < 3
    assert first[16:] == fourth[16:]


def test_tokens_beyond_the_hashes_are_the_requests_own() -> None:
    trace = workload([0, 0], input_tokens=40, prefix_hashes=["1", "1"], header={"hash_block_size": 16})
    one, two = (body["prompt"] for body in bodies(plan_of(trace)))
    assert common_prefix(one, two) == 16


def test_another_salt_gives_other_prompts_and_the_same_salt_the_same() -> None:
    trace = workload([0], input_tokens=50)
    first, again, other = (bodies(plan_of(trace, salt=salt))[0]["prompt"] for salt in (5, 5, 6))
    assert first == again
    assert common_prefix(first, other) < 3


@given(
    salt=st.integers(0, 2**48),
    key=st.integers(0, 2**64 - 1),
    length=st.integers(0, 300),
    more=st.integers(0, 300),
)
def test_a_longer_draw_of_a_key_begins_with_the_shorter(salt: int, key: int, length: int, more: int) -> None:
    short = draw(salt, Segment(GROUP, key, length), 3000)
    longer = draw(salt, Segment(GROUP, key, length + more), 3000)
    assert short.tolist() == longer[:length].tolist()


def test_kinds_of_segments_do_not_meet() -> None:
    drawn = [draw(1, Segment(kind, 5, 20), 3000).tolist() for kind in (OWN, GROUP, BLOCK)]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]
    assert key_of("a") != key_of("b")


def test_bodies_beyond_the_budget_are_built_in_their_turn_and_are_the_same() -> None:
    trace = workload(every(10, 6), input_tokens=30)
    early, late = plan_of(trace), plan_of(trace, prebuild_bytes=0)
    assert len(early.built) == 6
    assert late.built == {}
    assert [early.take_body(row) for row in range(6)] == [late.take_body(row) for row in range(6)]
    assert early.built == {}


def test_rows_are_sent_in_the_order_of_their_times() -> None:
    assert list(plan_of(workload([30, 10, 20, 10])).chains) == [(1,), (3,), (2,), (0,)]


def test_a_closed_loop_plans_its_first_round_and_nothing_else() -> None:
    loop = ClosedLoop(concurrency=2, think_time_us=500)
    plan = plan_of(workload([0, 100, 200, None], header={"closed_loop": loop}))
    assert list(plan.due_us) == [0, 100, None, None]
    assert list(plan.think_us) == [500] * 4


def test_a_failed_row_is_sent_again_as_it_had_been_asked() -> None:
    trace = workload([0] * 4, status=["ok", "error", "timeout", None], max_tokens=[9, 9, None, None])
    trace = trace.with_columns(output_tokens=[4, 0, 2, 6])
    assert list(plan_of(trace).max_tokens) == [4, 9, 2, 6]


def test_an_empty_prompt_is_sent_as_one_token_and_noted() -> None:
    plan = plan_of(workload([0, 0], input_tokens=0))
    assert [len(body["prompt"]) for body in bodies(plan)] == [1, 1]
    assert plan.notes == ("2 prompts of 0 tokens are sent as 1 token",)


@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (workload([]), "got no requests"),
        (workload([0, None]), "row 2, arrival_time_us: got an empty cell"),
        (workload([0]).with_columns(output_tokens=[None]), "row 1, output_tokens: got an empty cell"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_row(trace: Trace, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        plan_of(trace)


def words(*, ratio: float = 1.0, overhead: int = 7, lead: int = 3) -> WordPrompts:
    return WordPrompts(
        salt=1,
        words=COMMON_WORDS,
        anchor="A",
        tokens_per_word=ratio,
        overhead=overhead,
        lead=lead,
        chat=True,
        source="test",
    )


@given(
    shared=st.integers(0, 300),
    own=st.integers(1, 300),
    overhead=st.integers(0, 20),
    ratio=st.sampled_from([1.0, 1.3, 2.0]),
)
def test_words_and_overhead_together_make_the_length(
    shared: int, own: int, overhead: int, ratio: float
) -> None:
    prompts = words(ratio=ratio, overhead=overhead, lead=overhead // 2)
    counts = prompts.word_counts([shared, own])
    tokens = sum(counts) * ratio + overhead
    assert min(counts) >= 0
    if shared + own > overhead + ratio:
        assert abs(tokens - (shared + own)) <= ratio / 2
    else:
        assert sum(counts) == 1
    assert counts[0] * ratio + overhead // 2 <= max(shared, overhead // 2) + ratio / 2


def test_a_chat_prompt_is_one_message_of_words() -> None:
    message = json.loads(words().render([Segment(GROUP, 1, 40), Segment(OWN, 2, 20)]))
    other = json.loads(words().render([Segment(GROUP, 1, 40), Segment(OWN, 3, 20)]))
    assert [entry["role"] for entry in message] == ["user"]
    one, two = message[0]["content"].split(" "), other[0]["content"].split(" ")
    assert len(one) == len(two) == 1 + 60 - 7
    assert one[:38] == two[:38]
    assert one[38:44] != two[38:44]
