"""How many blocks a request takes in every group together: whether a cache can hold it at all."""

from __future__ import annotations

from sim import EngineConfig, KVCacheGroup, most_blocks_of

STATES_ALIGNED = 2
"""States that a request holds with prefix caching (vllm 0.32.0 v1/kv_cache_interface.py:MambaSpec)."""


def blocks_needed(engine: EngineConfig, num_tokens: int) -> int:
    """Return the most blocks that a request of this many tokens holds, over all groups.

    vllm 0.32.0 v1/kv_cache_interface.py:max_memory_usage_bytes of each kind: a window holds what it sees and the tokens
    in flight, one block more as it may begin within one.
    """
    if not engine.kv_cache_groups:
        return -(-num_tokens // engine.block_size)
    return sum(_of_group(group, engine, num_tokens) for group in engine.kv_cache_groups)


def _of_group(group: KVCacheGroup, engine: EngineConfig, num_tokens: int) -> int:
    if group.kind == "state":
        held = STATES_ALIGNED + group.num_prefill_checkpoint_blocks if group.mode == "align" else 1
        return held + engine.num_speculative_tokens
    size = group.block_size or engine.block_size
    whole = -(-num_tokens // size)
    in_flight = engine.max_num_batched_tokens * engine.max_concurrent_batches
    most = most_blocks_of(
        group,
        size=size,
        in_flight=in_flight,
        max_model_len=engine.max_model_len,
        retained=engine.num_retained_tokens,
    )
    return min(whole, most)
