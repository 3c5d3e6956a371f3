"""What a request holds in all groups: counted block by block, by hand, and in an engine that is full."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, HeldBlocks, KVCacheGroup, Requests, simulate
from sim.held_blocks import Floats

FULL, STATE = KVCacheGroup(kind="full"), KVCacheGroup(kind="state")
SLIDING, CHUNKED = KVCacheGroup(kind="sliding", window=128), KVCacheGroup(kind="chunked", chunk=96)
ALIGNED = KVCacheGroup(kind="state", mode="align")
WIDE = KVCacheGroup(kind="full", block_size=64)
MIXES = [
    (FULL, SLIDING, SLIDING),
    (CHUNKED, CHUNKED, FULL),
    (SLIDING, WIDE),
    (*[STATE] * 6, FULL),
    (SLIDING, KVCacheGroup(kind="sliding", window=8, block_size=4), WIDE),
]


def columns(*rows: tuple[int, int]) -> tuple[Floats, Floats]:
    """Return prompts and answers as columns."""
    return np.array([float(p) for p, _ in rows]), np.array([float(o) for _, o in rows])


def counted(group: KVCacheGroup, prompt: int, output: int, *, ahead: int, drafts: int = 0) -> int:
    """Return the blocks of one group, summed over the iterations of an answer: a set of blocks per iteration."""
    size, total = group.block_size or 16, 0
    for computed in range(prompt, prompt + output):
        settled = max(computed - ahead, 0)
        first = {
            "full": 0,
            "sliding": max(settled - group.window + 1, 0),
            "chunked": settled // max(group.chunk, 1) * group.chunk,
        }
        kept = {token // size for token in range(first.get(group.kind, 0), computed + 1)}
        total += 1 + drafts if group.kind == "state" else len(kept)
    return total


@pytest.mark.parametrize("num_batches", [1, 2])
@pytest.mark.parametrize("groups", MIXES)
def test_the_average_is_that_of_blocks_counted_one_by_one(
    groups: tuple[KVCacheGroup, ...], num_batches: int
) -> None:
    """A prompt of one chunk, and one that windows hold at once: its tokens in flight are counted by hand."""
    held = HeldBlocks(
        block_size=16, groups=groups, chunk_tokens=512, num_batches=num_batches, tokens_per_decode=3
    )
    for prompt, output in ((5, 9), (250, 77), (1000, 1)):
        ahead, chunks = num_batches - 1, -(-prompt // 512)
        decoding = sum(counted(group, prompt, output, ahead=ahead, drafts=2) for group in groups)
        begun = sum(counted(group, prompt, 1, ahead=ahead, drafts=2) for group in groups)
        whole = sum(
            3 if group.kind == "state" else -(-prompt // (group.block_size or 16)) for group in groups
        )
        expected = (decoding + chunks * begun + num_batches * max(whole - begun, 0)) / (output + chunks)
        assert held.on_average(*columns((prompt, output))) == pytest.approx(expected, rel=1e-12)
        total = np.array([float(prompt + output)])
        last = sum(counted(group, prompt + output - 1, 1, ahead=ahead, drafts=2) for group in groups)
        assert held.at_end(total).tolist() == [last]


def test_one_full_group_holds_whole_blocks_of_the_mean_tokens() -> None:
    """(10 · 105 + 30 · 315) / 40 is 262.5 tokens: 17 blocks of 16; nothing is kept free for the newest."""
    held, lengths = HeldBlocks(block_size=16), columns((100, 10), (300, 30))
    assert held.on_average(*lengths) == 17
    assert [held.num_requests(n, *lengths) for n in (16, 17, 169, 170)] == [0, 1, 9, 10]
    assert held.at_end(np.array([16.0, 16.5, 17.0])).tolist() == [1, 2, 2]
    assert (held.fullest(17), held.longest(3), held.kept(33, interval=0)) == (2, 48, 2)


def test_what_a_request_holds_at_its_fullest_by_hand() -> None:
    """A window of 128 and 2 · 64 tokens in flight are 255 tokens: 16 blocks, one more as it may begin within one."""
    held = HeldBlocks(block_size=16, groups=(FULL, SLIDING), chunk_tokens=64, num_batches=2)
    assert [held.fullest(n) for n in (16, 272, 273, 1600)] == [2, 34, 35, 117]
    assert [held.longest(n) for n in (1, 2, 34, 117, 118)] == [0, 16, 272, 1600, 1616]
    states = HeldBlocks(block_size=16, groups=(STATE, FULL), tokens_per_decode=4)
    assert states.fullest(160) == 4 + 10
    aligned = HeldBlocks(block_size=16, groups=(ALIGNED, FULL), tokens_per_decode=4)
    assert aligned.fullest(160) == 5 + 10


def test_the_newest_needs_the_blocks_of_its_whole_prompt() -> None:
    """A prompt of 640 tokens takes 40 blocks in both groups, and 49 once it decodes: 31 stay free for the newest."""
    held = HeldBlocks(block_size=16, groups=(FULL, SLIDING), chunk_tokens=2048)
    each = held.on_average(*columns((640, 100_000)))
    for number in (1, 2, 5):
        least = int(np.ceil(number * each + max(80 - each, 0)))
        assert held.num_requests(least, *columns((640, 100_000))) == number
        assert held.num_requests(least - 1, *columns((640, 100_000))) == number - 1


@pytest.mark.parametrize(
    ("group", "interval", "kept"),
    [
        (FULL, 0, 62),
        (CHUNKED, 0, 62),
        (SLIDING, None, 62),
        (SLIDING, 0, 16),
        (SLIDING, 256, 24),
        (ALIGNED, None, 62),
        (ALIGNED, 0, 2),
        (ALIGNED, 256, 3),
    ],
)
def test_what_a_prompt_of_a_thousand_tokens_leaves(
    group: KVCacheGroup, interval: int | None, kept: int
) -> None:
    held = HeldBlocks(block_size=16, groups=(FULL, group))
    assert held.kept(1000, interval=interval) == 62 + kept


@pytest.mark.parametrize("groups", [*MIXES, (*[ALIGNED] * 6, FULL)])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_full_engine_holds_as_many_as_the_formula_says(
    groups: tuple[KVCacheGroup, ...], is_async: bool
) -> None:
    """1,500 requests of 640 + 100 tokens at once, 4,800 blocks: the mean number that run, within 5 %."""
    engine = EngineConfig(
        max_num_seqs=1024,
        max_num_batched_tokens=4096,
        num_gpu_blocks=4801,
        max_model_len=2048,
        kv_cache_groups=groups,
        enable_prefix_caching=ALIGNED in groups,
        async_scheduling=is_async,
        prefix_cache_retention_interval=0,
    )
    n = 1500
    requests = Requests(
        arrival_us=np.zeros(n, np.int64),
        prompt_tokens=np.full(n, 640),
        output_tokens=np.full(n, 100),
        priority=np.zeros(n, np.int64),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    done = simulate(requests, engine, Blackbox(beta0=1000)).outcomes
    low, high = np.quantile(done.last_token_us, 0.2), float(done.scheduled_us.max())
    there = np.minimum(done.last_token_us, high) - np.maximum(done.scheduled_us, low)
    running = float(np.clip(there - done.preempted_us, 0, None).sum() / (high - low))
    formula = HeldBlocks.of(engine).num_requests(4800, *columns((640, 100)))
    as_one = HeldBlocks(block_size=16).num_requests(4800, *columns((640, 100)))
    assert formula == pytest.approx(running, rel=0.05, abs=1)
    assert abs(as_one / running - 1) > 0.1


def test_a_state_that_is_saved_inside_a_chunk_takes_a_block_more() -> None:
    """vllm 0.32.0 v1/kv_cache_interface.py:MambaSpec.max_memory_usage_bytes."""
    state = KVCacheGroup(kind="state", mode="align")
    saved = replace(state, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)
    drafts = {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (0.5, 0.5)}
    found = [
        HeldBlocks.of(EngineConfig(kv_cache_groups=(KVCacheGroup(kind="full"), group), **settings)).fullest(
            160
        )  # type: ignore[arg-type]  # checked by the class
        for group in (state, saved)
        for settings in ({}, drafts)
    ]
    assert found == [12, 14, 13, 15]
