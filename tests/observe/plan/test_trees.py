"""Sessions that branch, as a plan: who waits for whom, what prompts share, and when sessions begin."""

from __future__ import annotations

import tracemalloc

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from observe.plan.prompts import BLOCK, Blocks, Segment, TokenPrompts, WordPrompts, draw, num_tokens
from observe.plan.request_body import BodyShape
from observe.plan.send_plan import SendPlan, make_plan
from tests.examples import examples
from tests.observe.trees import tree, trees
from traces import ConfigError, Trace, TraceError, make_trace, own_hashes
from traces.workload import SessionOptions, started, workload_of
from traces.workload.recorded.scaling import clip_lengths


def plan_of(trace: Trace, *, salt: int = 1) -> SendPlan:
    return make_plan(
        trace,
        prompts=TokenPrompts(salt),
        shape=BodyShape(api="completions", model="m"),
        prebuild_bytes=1 << 20,
    )


def prompts_of(plan: SendPlan) -> list[list[int]]:
    return [orjson.loads(plan.prompt(row)) for row in range(len(plan))]


def common(one: list[int], other: list[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def test_requests_wait_for_their_parent_and_for_what_they_await() -> None:
    plan = plan_of(tree())
    assert plan.waits_for == {1: (0,), 2: (0,), 3: (0,), 4: (1, 2, 3), 5: (4,)}
    assert list(plan.chains) == [(0, 1, 2, 3, 4, 5)]
    assert plan.begins_of(plan.chains[0]) == (0,)
    assert plan.due_us == [0, None, None, None, None, None]
    assert not plan.awaited_rows
    assert not plan.extends_row


def test_prompts_share_what_their_hashes_share_and_nothing_else() -> None:
    plan = plan_of(tree())
    root, one, two, three, joined, last = prompts_of(plan)
    assert [len(each) for each in (root, one, two, three, joined, last)] == [70, 84, 100, 40, 132, 164]
    # blocks of 16: the root has 4 and a tail of 6; the tail is its own
    assert common(root, one) == 64
    assert common(root, two) == 48
    assert common(root, three) == 32
    assert common(one, two) == 48
    assert common(one, joined) == 80
    assert common(joined, last) == 128
    again = prompts_of(plan_of(tree(), salt=1))
    assert again == [root, one, two, three, joined, last]
    assert common(prompts_of(plan_of(tree(), salt=2))[0], root) < 3


def test_equal_hashes_are_equal_tokens_in_other_sessions_and_without_parents_too() -> None:
    two = prompts_of(plan_of(trees(2)))
    assert common(two[0], two[6]) == 32  # both begin with blocks 1 and 2
    assert common(two[1], two[7]) == 32


def test_no_prompt_of_a_tree_is_made_before_it_is_due() -> None:
    assert plan_of(trees(3)).built == {}


def test_a_plan_of_long_prompts_is_small() -> None:
    tokens, number = 100_000, 200
    trace = tree()
    columns = {
        name: trace.cells(name).take(np.zeros(number, np.int64)) for name in ("session_id", "output_tokens")
    }
    long = make_trace(
        trace.header,
        columns
        | {
            "request_id": [str(row) for row in range(number)],
            "arrival_time_us": [0] + [None] * (number - 1),
            "input_tokens": [tokens] * number,
            "parent_request_id": [None, *(str(row) for row in range(number - 1))],
            "num_parent_hashes": [None] + [tokens // 16] * (number - 1),
            "prefix_hashes": [" ".join(map(str, range(tokens // 16)))] + [None] * (number - 1),
        },
    )
    tracemalloc.start()
    plan = plan_of(long)
    plan.build_body(number - 1)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 5 << 20  # one prompt's JSON is half a megabyte, all of them a hundred
    assert len(orjson.loads(plan.prompt(number - 1))) == tokens


@examples(60)
@given(
    salt=st.integers(0, 2**48),
    keys=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6),
    lengths=st.lists(st.integers(0, 40), min_size=6, max_size=6),
)
def test_blocks_drawn_together_are_the_blocks_drawn_one_by_one(
    salt: int, keys: list[int], lengths: list[int]
) -> None:
    sizes = np.array(lengths[: len(keys)], np.int64)
    blocks = Blocks(np.array(keys, np.uint64), sizes)
    apart = [draw(salt, Segment(BLOCK, key, int(size)), 3000) for key, size in zip(keys, sizes, strict=True)]
    assert draw(salt, blocks, 3000).tolist() == np.concatenate(apart).tolist()
    assert num_tokens([blocks]) == sizes.sum()
    longer = [draw(salt, Segment(BLOCK, key, 50), 3000)[:size] for key, size in zip(keys, sizes, strict=True)]
    assert np.concatenate(longer).tolist() == np.concatenate(apart).tolist()


def test_tokens_of_blocks_are_spread_evenly() -> None:
    drawn = draw(3, Blocks(np.arange(2000, dtype=np.uint64), np.full(2000, 64)), 3000)
    counts = np.bincount(drawn, minlength=3000)
    expected = len(drawn) / 3000
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2 - 2999) < 5 * (2 * 2999) ** 0.5


def test_words_of_equal_hashes_are_equal_too() -> None:
    words = WordPrompts(
        salt=1,
        words=tuple(f"w{i}" for i in range(50)),
        anchor="A",
        tokens_per_word=1.0,
        overhead=3,
        lead=2,
        chat=True,
        source="",
    )
    plan = make_plan(tree(), prompts=words, shape=BodyShape(api="chat", model="m"))
    root, one = (orjson.loads(plan.prompt(row))[0]["content"].split(" ") for row in (0, 1))
    assert len(root) == 70 - 3 + 1  # and the anchor
    assert root[:62] == one[:62]
    assert root[:64] != one[:64]


def test_a_waiting_request_outside_a_session_is_refused() -> None:
    with pytest.raises(TraceError, match=r"row 2, session_id: got an empty cell"):
        plan_of(tree().without_columns("session_id"))


def test_what_a_tree_cannot_have_is_told_and_not_recorded() -> None:
    plan = plan_of(tree().with_columns(new_input_tokens=[None, 5, 5, 5, 5, 5]))
    assert plan.notes[0].startswith("5 requests of sessions that branch build on answers (new_input_tokens)")
    assert "new_input_tokens" not in plan.trace.table


def test_sessions_begin_as_they_are_asked_to() -> None:
    trace = workload_of(trees(3, every_us=500_000))
    assert plan_of(trace).due_us[::6] == [0, 500_000, 1_000_000]
    users = plan_of(started(trace, SessionOptions(sessions="2").starts(seed=1)))
    assert users.closed_loop is not None
    assert (users.closed_loop.concurrency, users.due_us[::6]) == (2, [0, 0, None])
    drawn = plan_of(started(trace, SessionOptions(session_rate=2.0).starts(seed=1)))
    gaps = np.diff([due for due in drawn.due_us[::6] if due is not None])
    assert drawn.due_us[0] == 0
    assert (gaps > 0).all()
    halved = SessionOptions(think_time_scale=0.5, max_think_time=0.03).starts(seed=1)
    assert plan_of(started(trace, halved)).think_us[:6] == [0, 30_000, 25_000, 0, 15_000, 15_000]
    with pytest.raises(ConfigError, match=r"^--sessions: cannot be combined with --session-rate"):
        SessionOptions(sessions="2", session_rate=1.0).starts(seed=1)


def test_an_observed_tree_is_a_workload_whose_answers_decide() -> None:
    sent = trees(2).with_columns(arrival_time_us=[0, 7, 7, 7, 7, 7] * 2)
    assert workload_of(sent).cells("arrival_time_us").is_known.tolist() == [True, *[False] * 5] * 2


def test_clipped_prompts_keep_of_each_other_what_is_left() -> None:
    clipped = clip_lengths(trees(2), prompt=90)
    whole = prompts_of(plan_of(trees(2)))
    assert [len(each) for each in prompts_of(plan_of(clipped))] == [70, 84, 90, 40, 90, 90] * 2
    assert own_hashes(clipped.table).counts[:6].tolist() == [4, 5, 6, 2, 6, 6]
    for cut, full in zip(prompts_of(plan_of(clipped)), whole, strict=True):
        hashed = len(cut) // 16 * 16 if len(cut) == 90 else 0
        assert cut[:hashed] == full[:hashed]
    shorter = clip_lengths(trees(1), prompt=20)
    assert own_hashes(shorter.table).counts.tolist() == [2] * 6
