"""Sessions in numbers, from a trace of a few rows whose sums can be done by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay.sessions import prefix_hashes, results
from replay.sessions.prefix_hashes import HashedBlocks
from replay.sessions.reuse import KVReuse
from replay.sessions.session_summary import (
    _alone_at_end_frac,
    add_cost,
    cache_needs,
    session_rows,
    summarize_sessions,
)
from sim import UNBOUNDED, EngineConfig
from traces import Header, Trace, make_trace
from traces.tables.hash_chains import chained, own_hashes


def served(**changed: object) -> Trace:
    """Return two sessions, a warm-up request, and one that failed, in blocks of 4 tokens; times in µs."""
    columns: dict[str, object] = {
        "request_id": list("012345"),
        "session_id": ["a", "b", "a", "a", "a", "c"],
        "phase": ["main", "main", "main", "main", "warmup", "main"],
        "status": ["ok", "ok", "ok", "ok", "ok", "error"],
        "arrival_time_us": [0, 100, 500, 600, 0, 0],
        "send_time_us": [10, 100, 500, 600, 0, 0],
        "scheduled_time_us": [10, 100, 500, 600, 0, None],
        "content_first_time_us": [60, 150, 510, 660, 5, None],
        "last_token_time_us": [110, 300, 700, 650 + 150, 5, None],
        "input_tokens": [9, 9, 13, 13, 4, 9],
        "output_tokens": [2, 2, 2, 2, 2, None],
        "num_cached_tokens": [0, 4, 8, 8, 0, None],
        "prefix_hashes": ["1 2", "1 3", "1 2 4", "1 2 4", "9", "1 3"],
    }
    header = Header(tool="vtwin", mode="simulated", hash_block_size=4)
    return make_trace(header, {**columns, **changed})


def test_a_session_lasts_from_its_first_request_to_its_last_answer() -> None:
    found = results.session_results(served(), block_size=4)
    assert found is not None
    assert found.names == ["a", "b", "c"]
    assert found.num_requests.tolist() == [3, 1, 1]
    assert found.is_complete.tolist() == [True, True, False]
    assert found.duration_us.tolist()[:2] == [790, 200]
    assert found.model_us.tolist()[:2] == [100 + 300, 200]
    assert found.tool_us.tolist()[:2] == [390, 0]
    assert np.isnan([found.duration_us[2], found.model_us[2], found.tool_us[2]]).all()
    assert found.prompt_tokens.tolist() == [35, 9, 0]
    assert found.cached.tolist() == [16, 4, 0]
    assert found.shared.tolist() == [4 + 4, 4, 0]
    assert found.own.tolist() == [4 + 4, 0, 0]
    assert found.recomputed.tolist() == [4, 0, 0]


def test_every_session_that_was_answered_has_its_times_the_last_one_too() -> None:
    times = {
        "scheduled_time_us": [10, 100, 500, 600, 0, 30],
        "last_token_time_us": [110, 300, 700, 800, 5, 90],
    }
    more = {
        "content_first_time_us": [60, 150, 510, 660, 5, 40],
        "output_tokens": [2] * 6,
        "status": ["ok"] * 6,
    }
    found = results.session_results(served(**times, **more), block_size=4)
    assert found is not None
    assert found.duration_us.tolist() == [790, 200, 90]
    assert found.model_us.tolist() == [400, 200, 90]


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    """Even where a block is one token, and the prompt, too."""
    trace = served(input_tokens=[1, 1, 13, 13, 4, 9], prefix_hashes=["1", "1", "1", "1", "9", "1"])
    trace = trace.with_header(hash_block_size=1)
    chains = chained(own_hashes(trace.table))
    hits = results.ideal_hits(trace, chains, hash_block_size=1, block_size=1)
    assert hits.tolist()[:4] == [0, 0, 1, 1]


def test_without_hashes_what_is_cached_is_the_sessions_own_and_nothing_was_to_be_had() -> None:
    found = results.session_results(served(prefix_hashes=None), block_size=4)
    assert found is not None
    assert (found.own.tolist(), found.shared.tolist()) == ([16, 4, 0], [0, 0, 0])
    assert found.recomputed.tolist() == [0, 0, 0]
    assert results.session_results(served(session_id=None), block_size=4) is None
    unknown = results.session_results(served(num_cached_tokens=None), block_size=4)
    assert unknown is not None
    assert unknown.cached.tolist() == [0, 0, 0]


def test_the_summary_of_sessions() -> None:
    found = summarize_sessions(served(), block_size=4)
    assert found is not None
    assert (found["num_sessions"], found["num_complete"]) == (3, 2)
    assert found["duration_us"]["mean"] == 495
    assert found["cached_frac"] == 20 / 44
    assert found["cached_own_frac"] == 8 / 44
    assert found["cached_shared_frac"] == 12 / 44
    assert found["recomputed_frac"] == 4 / 44
    assert [(each["session_id"], each["duration_us"]) for each in found["slowest"]] == [
        ("a", 790),
        ("b", 200),
    ]
    assert found["slowest"][0]["cached_frac"] == 16 / 35
    assert found["slowest"][0]["recomputed_tokens"] == 4
    add_cost(found, gpu_hours=3.0, cost=None)
    assert (found["gpu_hours_per_session"], found["cost_per_session"]) == (1.5, None)
    add_cost(found, gpu_hours=3.0, cost=5.0)
    assert found["cost_per_session"] == 2.5
    none = summarize_sessions(served(status=["error"] * 6), block_size=4)
    assert none is not None
    add_cost(none, gpu_hours=3.0, cost=5.0)
    assert (none["cached_frac"], none["gpu_hours_per_session"]) == (None, None)


def test_one_session_alone_at_the_end() -> None:
    assert _alone_at_end_frac(served()) == pytest.approx(500 / 800)
    assert _alone_at_end_frac(served(session_id=["a"] * 6)) == 0
    assert _alone_at_end_frac(served(last_token_time_us=[None] * 6)) == 0
    assert _alone_at_end_frac(served(last_token_time_us=[0] * 6)) == 0
    assert _alone_at_end_frac(served(last_token_time_us=[1, 4, None, None, None, None])) == 0.75


def test_sessions_in_words() -> None:
    found = summarize_sessions(served(), block_size=4)
    assert found is not None
    found["duration_us"]["mean"], found["model_us"]["mean"] = 4_950_000.0, 3_000_000.0
    found["tool_us"]["mean"] = 1_950_000.0
    found["alone_at_end_frac"] = 0.0999
    add_cost(found, gpu_hours=3.0, cost=5.0)
    rows = session_rows(found)
    assert [head for head, _ in rows] == ["sessions", "", "", "", "  slowest", ""]
    text = "\n".join(words for _, words in rows)
    assert "2 of 3 complete, 4.950 s on average from first request to last answer" in text
    assert "of it 3 s for the model, 1.950 s for tools and people" in text
    assert "a: 0.001 s, 3 requests, 0 s for the model" in text
    assert "18.2% cached from their own rounds, 27.3% from what sessions share, 9.1% computed again" in text
    assert "1.5 GPU-hours a session, a cost of 2.5" in text
    assert "alone runs" not in text
    found["alone_at_end_frac"] = 0.1
    assert "(one session alone runs in the last 10% of the time)" in session_rows(found)[3][1]
    found["cached_frac"], found["recomputed_frac"] = 0.0, 0.1
    assert "computed again" in session_rows(found)[2][1]
    found["cached_frac"], found["recomputed_frac"] = 0.1, 0.0
    assert "computed again" in session_rows(found)[2][1]
    found["cached_frac"] = 0.0
    assert "computed again" not in "".join(words for _, words in session_rows(found))
    found["num_complete"] = 0
    assert session_rows(found) == [("sessions", "0 of 3 complete")]


def reuse(**changed: Any) -> KVReuse:  # noqa: ANN401
    usual = {
        "hits": np.array([0, 0, 5, 8, 10]),
        "num_prompt_tokens": 320,
        "block_size": 16,
        "largest": 3,
        "live": np.array([1, 4, 0]),
    }
    return KVReuse(**{**usual, **changed})


def test_what_caches_of_every_size_find() -> None:
    found = cache_needs(reuse(), EngineConfig(num_gpu_blocks=2))
    assert (found["num_gpu_blocks"], found["num_kept_blocks"]) == (2, 2)
    assert found["hit_frac"] == 5 * 16 / 320
    assert found["ideal_hit_frac"] == 0.5
    assert found["blocks_for"] == {"0.5": 3, "0.8": 3, "0.9": 4, "0.95": 4, "0.99": 4, "1": 4}
    assert found["most_live_blocks"] == 4
    assert found["curve"] == [(3, 0.4), (4, 0.5)]
    unlimited = cache_needs(reuse(), EngineConfig(num_gpu_blocks=UNBOUNDED))
    assert (unlimited["num_gpu_blocks"], unlimited["num_kept_blocks"], unlimited["hit_frac"]) == (0, 0, 0.5)
    assert unlimited["num_blocks_with_tier"] is None
    large = cache_needs(reuse(largest=9), EngineConfig(num_gpu_blocks=2))
    assert large["curve"] == [(4, 0.5)]
    assert large["blocks_for"]["0.5"] == 9
    assert [reuse().hit_frac(size) for size in (-1, 0, 3, 4, 9)] == [0, 0, 0.4, 0.5, 0.5]
    assert reuse(num_prompt_tokens=0).hit_frac(2) == 80
    none = cache_needs(reuse(hits=np.array([0]), largest=0, live=np.array([], np.int64)), EngineConfig())
    assert (none["curve"], none["most_live_blocks"]) == ([(1, 0.0)], 0)


def test_whole_blocks_of_a_prompt_and_how_far_behind_one_its_content_ends() -> None:
    blocks = HashedBlocks(size=4, lookahead=2)
    assert blocks.within(np.array([0, 1, 5, 6, 9, 10])).tolist() == [0, 0, 0, 1, 1, 2]
    assert [HashedBlocks(size=4, lookahead=each).shift for each in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert HashedBlocks(size=4).within(np.array([3, 4, 8])).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "dense"),
    [
        ([], []),
        ([7], [0]),
        ([5, 9, 5, 6], [0, 2, 0, 1]),
        ([5, 5 + 4 * 3, 6], [0, 2, 1]),
        ([5, 6 + 4 * 3, 6], [0, 2, 1]),
        ([-3, 10**15, 4], [0, 2, 1]),
    ],
)
def test_values_are_renumbered_densely(values: list[int], dense: list[int]) -> None:
    assert prefix_hashes._dense(np.array(values, np.int64)).tolist() == dense


def test_ranges_lie_one_behind_the_other() -> None:
    found = prefix_hashes.ranges(np.array([5, 0, 7]), np.array([2, 0, 3]))
    assert found.tolist() == [5, 6, 7, 8, 9]
    assert prefix_hashes.ranges(np.array([], np.int64), np.array([], np.int64)).tolist() == []


def chain_of(trace: Trace, **options: Any) -> list[list[int]]:  # noqa: ANN401
    found = prefix_hashes.prefix_hashes(trace, output_tokens=np.zeros(len(trace), np.int64), **options)
    return [
        found.ids[start : start + count].tolist()
        for start, count in zip(found.starts, found.counts, strict=True)
    ]


def test_recorded_hashes_are_cut_into_the_engines_blocks_as_far_as_others_share_them() -> None:
    rows = chain_of(served(), block_size=2)
    assert [len(each) for each in rows] == [4, 4, 6, 6, 0, 4]
    assert rows[0] == rows[2][:4]
    assert rows[2] == rows[3]
    assert rows[0][:2] == rows[1][:2]
    assert not set(rows[0][2:]) & set(rows[1])
    apart = chain_of(served(model=["x", "x", "x", "x", "x", "y"]), block_size=2)
    assert not set(apart[5]) & {number for each in apart[:5] for number in each}
    adapted = chain_of(served(adapter=[None, None, None, None, None, "a"]), block_size=4)
    assert adapted[0] == adapted[2][:2]
    assert not set(adapted[5]) & {number for each in adapted[:5] for number in each}
    with pytest.raises(prefix_hashes.TraceError, match="hash_block_size: got 4"):
        chain_of(served(), block_size=3)


def test_groups_share_the_shorter_ones_prefix() -> None:
    grouped = {
        "prefix_hashes": None,
        "prefix_group": ["g", "h", "g", None, "h", "g"],
        "prefix_length": [8, 4, 20, 8, 3, 9],
    }
    assert chain_of(served(**grouped), block_size=4) == [[0, 1], [5], [0, 1, 2, 3, 4], [], [], [0, 1]]


def test_what_sessions_say_themselves_is_not_what_a_group_begins_with() -> None:
    rounds = {
        "request_id": list("0123"),
        "session_id": ["z", "z", "b", "b"],
        "round_index": [0, 1, 0, 1],
        "arrival_time_us": [0, 1, 2, 3],
        "input_tokens": [4, 12, 16, 20],
        "new_input_tokens": [4, 8, 16, 4],
        "output_tokens": [1, 1, 1, 1],
        "prefix_group": ["g", "g", None, None],
        "prefix_length": [12, 12, 0, 0],
    }
    trace = make_trace(Header(tool="vtwin", mode="generated"), rounds)
    for hashes, grow in (
        ([None] * 4, True),
        (["1", None, "2", None], True),
        ([None, "1", None, None], False),
    ):
        assert prefix_hashes.sessions_grow(trace.with_columns(prefix_hashes=hashes)) == grow
    assert prefix_hashes._sessions(trace).first.tolist() == [0, 0, 2, 2]
    first, second, third, fourth = chain_of(trace, block_size=4)
    assert [len(each) for each in (first, second, third)] == [3, 3, 3]
    assert second[: len(first)] == first
    assert fourth[:3] == third[:3]
    assert not set(second) & {*third, *fourth}
