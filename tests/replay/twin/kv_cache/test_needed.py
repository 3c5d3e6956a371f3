"""The most blocks that a request holds, over all groups: with a block for what a kernel saves inside a chunk."""

from __future__ import annotations

from dataclasses import replace

from replay.twin.kv_cache.needed import blocks_needed
from sim import EngineConfig, KVCacheGroup


def test_a_state_that_is_saved_inside_a_chunk_takes_a_block_more() -> None:
    """vllm 0.32.0 v1/kv_cache_interface.py:MambaSpec.max_memory_usage_bytes."""
    state = KVCacheGroup(kind="state", mode="align")
    saved = replace(state, num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1)
    drafts = {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (0.5, 0.5)}
    found = [
        blocks_needed(EngineConfig(kv_cache_groups=(KVCacheGroup(kind="full"), group), **settings), 160)  # type: ignore[arg-type]  # checked by the class
        for group in (state, saved)
        for settings in ({}, drafts)
    ]
    assert found == [12, 14, 13, 15]
