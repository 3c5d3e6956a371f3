"""The hits of an LRU cache of every size: against a list that is one, and against the engine itself."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from replay.sessions.reuse import kv_reuse
from replay.sessions.session_summary import cache_needs, needs_rows
from sim import UNBOUNDED, Blackbox, EngineConfig, KVCacheGroup, Requests, simulate
from traces import four_digits

BLOCK = 16


def drawn_requests(seed: int, *, least_own: int = 0) -> Requests:
    """Return rounds of sessions that grow, branch and share a beginning, in a random order of the sessions."""
    rng = random.Random(seed)
    next_id = 100
    chains: list[list[int]] = [list(range(rng.randint(0, 6)))]
    rows: list[tuple[list[int], int, int]] = []
    for _ in range(rng.randint(3, 40)):
        before = rng.choice(chains)
        kept = before[: rng.choice([len(before), len(before), rng.randint(0, len(before))])]
        new = rng.randint(0, 5)
        chain = [*kept, *range(next_id, next_id + new)]
        next_id += new
        chains.append(chain)
        rows.append(
            (
                chain,
                len(chain) * BLOCK + rng.choice([least_own, least_own, rng.randrange(1, 40)]),
                rng.randint(1, 40),
            )
        )
    rows = [(chain, prompt, output) for chain, prompt, output in rows if prompt]
    ids = np.array([number for chain, _, _ in rows for number in chain], np.int64)
    counts = np.array([len(chain) for chain, _, _ in rows], np.int64)
    _, ids = np.unique(ids, return_inverse=True)
    return Requests(
        arrival_us=np.arange(len(rows)) * 10**9,
        prompt_tokens=np.array([prompt for _, prompt, _ in rows]),
        output_tokens=np.array([output for _, _, output in rows]),
        priority=np.zeros(len(rows), np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum(counts)]),
        hash_ids=ids.astype(np.int64),
    )


def lru_hits(requests: Requests, num_blocks: int, *, serves_partial: bool) -> list[int]:
    """Return the leading blocks that a list of the most recently used ones has of each prompt.

    ``serves_partial``: the partial block at a request's end takes one of them while it is served, and is then empty.
    """
    recent: list[object] = []  # the most recent last
    found = []
    for row in range(len(requests)):
        start, count = requests.hash_starts[row], requests.num_hashes[row]
        chain = requests.hash_ids[start : start + count].tolist()
        most = (int(requests.prompt_tokens[row]) - 1) // BLOCK
        hits = 0
        while hits < min(most, len(chain)) and chain[hits] in recent:
            hits += 1
        found.append(hits)
        total = int(requests.prompt_tokens[row] + requests.output_tokens[row]) - 1
        used = [*chain, *((row, place) for place in range(len(chain), total // BLOCK))]
        for block in reversed(used):
            if block in recent:
                recent.remove(block)
            recent.append(block)
        room = num_blocks - (serves_partial and total % BLOCK > 0)
        del recent[: max(len(recent) - room, 0)]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_every_size_of_cache_has_the_hits_of_a_list(seed: int) -> None:
    requests = drawn_requests(seed)
    reuse = kv_reuse(requests, np.arange(len(requests)), block_size=BLOCK)
    for num_blocks in range(reuse.largest, len(reuse.hits) + 3):
        hits = sum(lru_hits(requests, num_blocks, serves_partial=False))
        assert reuse.hit_frac(num_blocks) == hits * BLOCK / int(requests.prompt_tokens.sum())


@pytest.mark.parametrize("seed", range(8))
def test_the_engine_has_the_hits_of_a_list(seed: int) -> None:
    """One request after another: vLLM's free blocks are an LRU list, but for blocks without a hash.

    Each prompt ends behind its blocks: the last block of one that ends with it is computed again and is there twice.
    """
    requests = drawn_requests(seed, least_own=1)
    reuse = kv_reuse(requests, np.arange(len(requests)), block_size=BLOCK)
    for num_blocks in range(reuse.largest, len(reuse.hits) + 3, 3):
        config = EngineConfig(
            num_gpu_blocks=num_blocks + 1,
            max_num_seqs=4,
            max_num_batched_tokens=4096,
            max_model_len=2048,
            async_scheduling=False,
            enable_prefix_caching=True,
        )
        run = simulate(requests, config, Blackbox(beta0=100))
        assert (run.outcomes.num_cached_tokens // BLOCK).tolist() == lru_hits(
            requests, num_blocks, serves_partial=True
        )


def test_blocks_that_are_used_again_over_time() -> None:
    requests = Requests(
        arrival_us=np.zeros(3, np.int64),
        prompt_tokens=np.array([48, 64, 32]),
        output_tokens=np.ones(3, np.int64),
        priority=np.zeros(3, np.int64),
        hash_offsets=np.array([0, 0, 0]),
        hash_ids=np.arange(4),
        hash_counts=np.array([3, 4, 2]),
    )
    reuse = kv_reuse(requests, np.arange(3), block_size=BLOCK)
    assert reuse.live.tolist() == [3, 2, 0]
    assert (reuse.ideal_frac, reuse.blocks_for(1.0)) == ((48 + 16) / 144, 3)


@pytest.mark.parametrize(("kind", "num_kept"), [("native", 12), ("blis", 12 + 4)])
def test_host_memory_holds_what_the_gpu_has_given_up_or_all_of_it(kind: str, num_kept: int) -> None:
    """vLLM's own offloading keeps what is on the GPU, too; a curve says what so many blocks find."""
    requests = drawn_requests(3)
    reuse = kv_reuse(requests, np.arange(len(requests)), block_size=BLOCK)
    engine = EngineConfig(num_gpu_blocks=4, num_cpu_blocks=12, kv_offloading=kind)  # type: ignore[arg-type] # drawn
    needs = cache_needs(reuse, engine)
    assert needs["num_blocks_with_tier"] == num_kept
    assert needs["tier_hit_frac"] == reuse.hit_frac(num_kept)
    assert cache_needs(reuse, EngineConfig(num_gpu_blocks=4))["tier_hit_frac"] is None


@pytest.mark.parametrize(("interval", "left"), [(None, 2 * 6), (0, 6 + 2 * 2)])
def test_groups_of_layers_share_what_one_server_keeps(interval: int | None, left: int) -> None:
    """Prompts of 6 blocks leave so many in two groups; at its fullest one has 12, which takes some of 40 away."""
    requests = Requests(
        arrival_us=np.zeros(2, np.int64),
        prompt_tokens=np.full(2, 6 * BLOCK),
        output_tokens=np.ones(2, np.int64),
        priority=np.zeros(2, np.int64),
        hash_offsets=np.zeros(2, np.int64),
        hash_ids=np.arange(6),
        hash_counts=np.full(2, 6),
    )
    reuse = kv_reuse(requests, np.arange(2), block_size=BLOCK)
    groups = (KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=BLOCK + 2))
    engine = EngineConfig(
        num_gpu_blocks=40,
        block_size=BLOCK,
        kv_cache_groups=groups,
        prefix_cache_retention_interval=interval,
        max_num_batched_tokens=2048,
    )
    needs = cache_needs(reuse, engine)
    assert needs["num_gpu_blocks"] == 40
    assert needs["num_kept_blocks"] == (40 - (12 - left)) * 6 // left
    assert needs["hit_frac"] == reuse.hit_frac(needs["num_kept_blocks"])
    on_host = cache_needs(reuse, replace(engine, num_cpu_blocks=80, kv_offloading="native"))
    assert on_host["num_blocks_with_tier"] == 80 * 6 // left
    kept = needs["num_kept_blocks"] * BLOCK / 1e6
    assert f"keeps, its groups of layers together, {four_digits(kept)}:" in needs_rows(needs)[1][1]
    whole = cache_needs(reuse, EngineConfig(num_gpu_blocks=40, block_size=BLOCK))
    assert whole["num_kept_blocks"] == 40
    assert "one server here has" in needs_rows(whole)[1][1]


def prompts_of(lengths: list[int], outputs: list[int], hashes: list[int]) -> Requests:
    """Requests whose prompts all begin alike, with so many hashed blocks each."""
    return Requests(
        arrival_us=np.zeros(len(lengths), np.int64),
        prompt_tokens=np.array(lengths),
        output_tokens=np.array(outputs),
        priority=np.zeros(len(lengths), np.int64),
        hash_offsets=np.zeros(len(lengths), np.int64),
        hash_ids=np.arange(max(hashes)),
        hash_counts=np.array(hashes),
    )


def test_a_prompt_s_last_token_is_computed_and_an_answer_s_last_has_no_block() -> None:
    """Two equal prompts of three blocks: of 48 tokens two blocks are found, of 49 three."""
    for length, found in ((48, 2), (49, 3), (33, 2)):
        reuse = kv_reuse(prompts_of([length] * 2, [1, 1], [3, 3]), np.arange(2), block_size=BLOCK)
        assert reuse.ideal_frac == found * BLOCK / (2 * length)
    for output, blocks in ((16, 4), (17, 4), (18, 5)):  # 48 tokens and all but the last of the answer
        reuse = kv_reuse(prompts_of([48] * 2, [output] * 2, [3, 3]), np.arange(2), block_size=BLOCK)
        assert reuse.largest == blocks


def test_a_cache_of_no_size_finds_nothing_and_a_larger_one_no_more_than_all() -> None:
    reuse = kv_reuse(prompts_of([49] * 2, [1, 1], [3, 3]), np.arange(2), block_size=BLOCK)
    assert reuse.hit_frac(0) == reuse.hit_frac(-5) == 0
    assert reuse.hit_frac(10**9) == reuse.ideal_frac == 48 / 98


def test_what_a_cache_needs_is_at_least_the_largest_request_and_told_in_servers() -> None:
    reuse = kv_reuse(prompts_of([49] * 2, [100, 1], [3, 3]), np.arange(2), block_size=BLOCK)
    needs = cache_needs(reuse, EngineConfig(num_gpu_blocks=4, block_size=BLOCK))
    assert reuse.largest == 10
    assert set(needs["blocks_for"].values()) == {10}
    assert needs["most_live_blocks"] == 3
    assert needs["curve"][-1] == (len(reuse.hits) - 1, reuse.ideal_frac)
    rows = needs_rows(needs)
    assert "95% of them take 2.500 such servers" in rows[1][1]
    assert "an unlimited cache would find 49.0% of prompt tokens" in rows[0][1]
    without = cache_needs(reuse, EngineConfig(num_gpu_blocks=UNBOUNDED, block_size=BLOCK))
    assert (without["num_gpu_blocks"], without["hit_frac"]) == (0, reuse.ideal_frac)
    assert len(needs_rows(without)) == 1
