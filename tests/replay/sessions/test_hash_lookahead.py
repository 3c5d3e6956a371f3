"""Blocks whose content covers tokens behind them: shared as far as prompts are known to be alike behind them, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import TwinConfig, simulate_trace
from replay.sessions.prefix_hashes import prefix_hashes
from sim import Blackbox, EngineConfig
from traces import Header, Trace, make_trace

NUM = 6


def contents(trace: Trace, *, block_size: int, lookahead: int) -> list[list[int]]:
    """Return each request's contents."""
    output = np.asarray(trace.cells("output_tokens").values, np.int64)
    chains = prefix_hashes(trace, output_tokens=output, block_size=block_size, lookahead=lookahead)
    rows = zip(chains.starts.tolist(), chains.counts.tolist(), strict=True)
    return [chains.ids[start : start + count].tolist() for start, count in rows]


def num_alike(a: list[int], b: list[int]) -> int:
    """Return how many leading contents two requests have in common; behind them there are none."""
    alike = [x == y for x, y in zip(a, b, strict=False)]
    num = alike.index(False) if False in alike else len(alike)
    assert not set(a[num:]) & set(b[num:])
    return num


def trace_of(header: Header, **columns: list[Any]) -> Trace:
    """Return requests that arrive one after another."""
    num = len(next(iter(columns.values())))
    usual = {"request_id": [str(row) for row in range(num)], "arrival_time_us": list(range(num))}
    return make_trace(header, {**usual, "output_tokens": [3] * num, **columns})


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=NUM, max_size=NUM),
    st.integers(1, 8),
    st.integers(0, 9),
)
def test_a_group_shares_blocks_up_to_its_prefix(
    lengths: list[tuple[int, int]], block_size: int, lookahead: int
) -> None:
    prefixes = [prefix for prefix, _ in lengths]
    trace = trace_of(
        Header(),
        prefix_group=["g"] * NUM,
        prefix_length=prefixes,
        input_tokens=[own for _, own in lengths],
    )
    found = contents(trace, block_size=block_size, lookahead=lookahead)
    for i in range(NUM):
        for j in range(i):
            shared = min(prefixes[i], prefixes[j])
            assert num_alike(found[i], found[j]) == max(shared - lookahead, 0) // block_size


HASH_LISTS = st.lists(st.integers(0, 2), min_size=1, max_size=4)


@pytest.mark.parametrize("goes_on", [False, True])
@given(st.lists(HASH_LISTS, min_size=NUM, max_size=NUM), st.integers(1, 3), st.integers(0, 9))
def test_recorded_hashes_that_differ_differ_from_their_first_token_on(
    goes_on: bool, branches: list[list[int]], per_hash: int, lookahead: int
) -> None:
    block_size = 4
    paths = [[str(branch[: i + 1]).replace(" ", "") for i in range(len(branch))] for branch in branches]
    size = block_size * per_hash
    columns: dict[str, list[Any]] = {
        "input_tokens": [size * len(path) for path in paths],
        "prefix_hashes": [" ".join(path) for path in paths],
    }
    if goes_on:
        columns["num_parent_hashes"] = [0] * NUM
    found = contents(
        trace_of(Header(hash_block_size=size), **columns), block_size=block_size, lookahead=lookahead
    )
    for i in range(NUM):
        for j in range(i):
            alike = [x == y for x, y in zip(paths[i], paths[j], strict=False)]
            shared = size * (alike.index(False) if False in alike else len(alike))
            assert num_alike(found[i], found[j]) == max(shared - lookahead, 0) // block_size


@given(st.lists(st.integers(1, 20), min_size=3, max_size=3), st.integers(1, 8), st.integers(0, 9))
def test_rounds_of_a_session_share_what_was_said(new: list[int], block_size: int, lookahead: int) -> None:
    prompts = [sum(new[: i + 1]) + 3 * i for i in range(3)]
    trace = trace_of(
        Header(session_context_growth="accumulate"),
        session_id=["s"] * 3,
        round_index=[0, 1, 2],
        new_input_tokens=new,
        input_tokens=prompts,
    )
    found = contents(trace, block_size=block_size, lookahead=lookahead)
    for i in range(2):
        said = prompts[i] + 3 - max(lookahead, 1)  # the KV of an answer's last token is never computed
        asked = prompts[i + 1] - lookahead
        assert num_alike(found[i], found[i + 1]) == max(min(said, asked), 0) // block_size


@pytest.mark.parametrize(("version", "cached"), [("0.32.0", 64), ("0.33.0", 80)])
def test_a_hit_beside_eagle_loses_its_last_block_up_to_0_32(version: str, cached: int) -> None:
    """85 tokens in common are 5 blocks of 16 and 5 tokens: 0.33 sees by these that the fifth block is alike."""
    engine = EngineConfig.for_version(
        version,
        num_speculative_tokens=2,
        synthetic_acceptance_rates=(0.5, 0.3),
        num_lookahead_tokens=2,
        use_eagle=True,
    )
    trace = trace_of(
        Header(), prefix_group=["g"] * 2, prefix_length=[85, 85], input_tokens=[20, 20]
    ).with_columns(arrival_time_us=[0, 10_000_000])
    simulated, _ = simulate_trace(trace, TwinConfig(engine=engine, latency=Blackbox(beta0=1000)))
    assert simulated.column("num_cached_tokens").tolist() == [0, cached]
