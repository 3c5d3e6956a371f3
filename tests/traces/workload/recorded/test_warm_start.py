"""``--warm-start``: sessions begun midway, against the whole replay of the same sessions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replay import TwinConfig, run
from sim import Blackbox, EngineConfig
from tests.observe.trees import trees
from traces import (
    ConfigError,
    Header,
    Trace,
    convert,
    has_tree,
    is_warmup,
    make_trace,
    session_tree,
    whole_hashes,
)
from traces.workload import SessionOptions, SessionStarts, started, workload_of
from traces.workload.recorded.warm_start import WarmStart

AGENTS = Path(__file__).parents[4] / "traces" / "samples" / "agents"
CODING = Path(__file__).parents[4] / "traces" / "samples" / "aiperf_agentic_code_20.jsonl"
TWIN = TwinConfig(
    engine=EngineConfig(max_num_seqs=64, num_gpu_blocks=400_000, max_model_len=1_000_000),
    latency=Blackbox(beta0=1000, beta1=1, beta2=1),
)


def midway(trace: Trace, share: float, **asked: int) -> Trace:
    return started(trace, SessionStarts(warm_start=WarmStart(low=share, high=share), **asked))


def hits(trace: Trace) -> dict[object, int]:
    simulated = run(trace, TWIN).trace
    ids, found = simulated.cells("request_id").values, simulated.cells("num_cached_tokens").filled(0)
    return dict(zip(ids.tolist(), found.tolist(), strict=True))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_what_is_left_finds_what_it_finds_in_the_whole_replay(share: float) -> None:
    """Growing prompts, an unlimited cache: the one prompt that warms up has all that the rest goes on from."""
    whole = started(workload_of(convert("mooncake", CODING)), SessionStarts(at_once=1))
    part = midway(whole, share, at_once=3)
    found, before = hits(part), hits(whole)
    counted = part.cells("request_id").values[~is_warmup(part)].tolist()
    assert 0 < len(counted) < len(whole)
    assert {name: found[name] for name in counted} == {name: before[name] for name in counted}


def test_a_tree_keeps_the_prompts_that_the_rest_goes_on_from() -> None:
    whole = convert("weka", AGENTS)
    part = midway(whole, 0.5)
    assert has_tree(part.table)
    row_of = {name: row for row, name in enumerate(whole.cells("request_id").values.tolist())}
    rows = [row_of[name] for name in part.cells("request_id").values.tolist()]
    texts = whole_hashes(whole.table)
    assert whole_hashes(part.table) == [texts[row] for row in rows]
    parents = session_tree(whole.table).parent[rows]
    kept = set(rows)
    assert all(parent in kept for parent in parents[~is_warmup(part)].tolist() if parent >= 0)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_each_session_of_a_tree_has_one_first_request(share: float) -> None:
    part = midway(trees(3), share, at_once=3)
    waiting, _ = session_tree(part.table).edges()
    first = np.setdiff1d(np.arange(len(part)), waiting)
    assert part.cells("session_id").codes()[0][first].tolist() == [0, 1, 2]
    assert is_warmup(part)[first].all()
    assert run(part, TWIN).summary["num_by_status"] == {"ok": len(part)}


def test_branches_that_go_on_warm_up_one_behind_the_other() -> None:
    """Two subagents are at work where the session is met: both prompts are sent, and the session has one first one."""
    names = ["root", "a1", "b1", "a2", "b2", "joined"]
    whole = make_trace(
        Header(mode="generated", hash_block_size=16),
        {
            "request_id": names,
            "session_id": ["s"] * 6,
            "arrival_time_us": [0, *[None] * 5],
            "parent_request_id": [None, "root", "root", "a1", "b1", "a2"],
            "awaited_request_ids": [*[None] * 5, "b2"],
            "input_tokens": [64, 96, 96, 128, 128, 160],
            "output_tokens": [3] * 6,
            "think_time_us": [None, *[1000] * 5],
            "prefix_hashes": ["1 2 3 4", "5 6", "7 8", "9 10", "11 12", "13 14"],
            "num_parent_hashes": [None, 4, 4, 6, 6, 8],
        },
    )
    part = midway(whole, 0.5, at_once=1)
    assert part.cells("request_id").values.tolist() == names[1:]
    assert is_warmup(part).tolist() == [True, True, False, False, False]
    assert part.cells("awaited_request_ids").values.tolist()[1] == "a1"
    assert hits(part) == {"a1": 0, "b1": 64, "a2": 96, "b2": 96, "joined": 128}


def test_rounds_that_say_their_own_hashes_keep_them() -> None:
    """Nothing here grows by itself: the prompt that warms up is the one that its round has."""
    whole = make_trace(
        Header(mode="generated", hash_block_size=16),
        {
            "request_id": ["a", "b", "c", "d"],
            "session_id": ["s"] * 4,
            "round_index": [0, 1, 2, 3],
            "arrival_time_us": [7, None, None, None],
            "input_tokens": [32, 48, 64, 80],
            "output_tokens": [3] * 4,
            "think_time_us": [None, 1, 1, 1],
            "prefix_hashes": ["1 2", "1 2 3", "1 2 3 4", "1 2 3 4 5"],
        },
    )
    part = midway(whole, 0.5)
    assert part.cells("prefix_hashes").values.tolist() == ["1 2 3", "1 2 3 4", "1 2 3 4 5"]
    assert part.cells("arrival_time_us").values[0] == 7
    assert hits(part) == {"b": 0, "c": 48, "d": 64}
    assert set(part.table.names) - set(whole.table.names) == {"phase"}


def test_only_those_that_are_under_way_at_once_begin_midway() -> None:
    part = midway(trees(3), 0.5, at_once=2)
    counts = np.bincount(part.cells("session_id").codes()[0])
    assert counts[2] == 6
    assert (counts[:2] < 6).all()
    assert set(part.cells("session_id").codes()[0][is_warmup(part)].tolist()) == {0, 1}


def test_a_share_of_nothing_changes_nothing_and_one_request_is_left() -> None:
    assert len(midway(trees(2), 0.0)) == 12
    assert (~is_warmup(midway(trees(2), 0.99))).sum() == 2


@pytest.mark.parametrize("text", ["1", "-0.1", "x", "0.5:0.2", "0.2:1", ":"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"--warm-start: got '{text}', expected a share below 1, or two"):
        SessionOptions(warm_start=text).starts(seed=1)


def test_it_cannot_be_combined_with_a_rate_of_sessions() -> None:
    with pytest.raises(ConfigError, match="--warm-start: cannot be combined with --session-rate"):
        SessionOptions(warm_start="0.5", session_rate=1.0).starts(seed=1)
