"""Slots for tokens: the prefix lookup and allocate_slots (vLLM's kv_cache_manager.py)."""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.blocks import get_new_block, touch
from sim.engine.kv_cache.cpu_tier import is_on_cpu, offload_next, take_from_cpu
from sim.engine.kv_cache.prefix_cache import (
    cache_full_blocks,
    cdiv,
    give_private_keys,
    hash_of_block,
    remember_hash,
)
from sim.engine.optional.blis import num_tokens_to_look_up
from sim.engine.records.batching_records import VLLM_V0
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def get_computed_blocks(s: State, request: int) -> int:
    """Fill ``hit_blocks`` with the longest cached prefix; return how many free blocks it takes.

    It takes those of its blocks that no request holds, and one for each block that the CPU tier has.
    The last token is never taken from the cache, since its logits are needed: a fully cached prompt of k blocks
    computes its last block again (vllm 0.32.0 kv_cache_manager.py:get_computed_blocks). A drafter that reads hidden
    states has one block more computed again (single_type_kv_cache_manager.py:find_longest_cache_hit).
    """
    settings, current = s.engine[0].settings, s.engine[0].current_step
    current.num_hit_blocks = 0
    num_evictable = 0
    if not settings.enable_prefix_caching:
        return 0
    most = num_tokens_to_look_up(s, request) // settings.block_size
    for i in range(min(most, len(s.hit_blocks))):
        key = hash_of_block(s, request, i)
        if key == NEVER or (s.hashes[key].oldest == 0 and not is_on_cpu(s, key)):
            break
        block = s.hashes[key].oldest
        s.hit_blocks[i] = block
        current.num_hit_blocks = i + 1
        if block == 0 or s.blocks[block].ref_cnt == 0:
            num_evictable += 1
    if settings.use_eagle and current.num_hit_blocks > 0:
        current.num_hit_blocks -= 1
        block = s.hit_blocks[current.num_hit_blocks]
        if block == 0 or s.blocks[block].ref_cnt == 0:
            num_evictable -= 1
    return num_evictable


@part
def append_new_block(s: State, request: int) -> None:
    """Give a request one more block."""
    r = s.requests[request]
    s.block_table[r.slot, r.num_blocks] = get_new_block(s)
    r.num_blocks += 1


@part
def allocate_slots(s: State, request: int, num_new_tokens: int) -> bool:
    """Give a running request the blocks for its next tokens; return False, only counting it, when they lack."""
    settings, queues, r = s.engine[0].settings, s.engine[0].queues, s.requests[request]
    total = r.num_computed_tokens + num_new_tokens
    needed = min(total + settings.num_lookahead_tokens, settings.max_model_len)
    if (
        needed > r.num_blocks * settings.block_size
    ):  # rarely true, and a division costs more than the rest of the visit
        num_new_blocks = cdiv(needed, settings.block_size) - r.num_blocks
        if num_new_blocks > queues.num_free_blocks:
            s.engine[0].totals.num_kv_allocation_failures += 1
            return False
        for _ in range(num_new_blocks):
            if settings.num_cpu_blocks > 0:
                offload_next(s)
            append_new_block(s, request)
    cache_full_blocks(s, request, min(total, r.num_tokens))
    return True


@phase
def allocate_first_chunk(s: State, request: int, num_new_tokens: int) -> None:
    """Give an admitted request the blocks for its first chunk alone (vLLM before 0.23)."""
    settings, r = s.engine[0].settings, s.requests[request]
    total = r.num_computed_tokens + num_new_tokens
    while r.num_blocks * settings.block_size < min(total, settings.max_model_len):
        append_new_block(s, request)
    cache_full_blocks(s, request, min(total, r.num_tokens))


@part
def fits(s: State, request: int, num_new_tokens: int, num_evictable: int) -> bool:
    """Return whether a waiting request may be admitted with this first chunk behind its prefix hit; count where not.

    With ``scheduler_reserve_full_isl`` all its known tokens must fit, not only the chunk. Hit blocks that no
    request holds sit in the free queue, so they are charged too. The watermark is kept free unless nothing runs.
    """
    settings, queues, current, r = (
        s.engine[0].settings,
        s.engine[0].queues,
        s.engine[0].current_step,
        s.requests[request],
    )
    totals = s.engine[0].totals
    charged = num_evictable - current.num_hit_blocks
    is_v0 = settings.batching == VLLM_V0  # charges a prompt's blocks, cached and in use or not
    if is_v0:
        charged = 0
    if queues.num_running > 0 or is_v0:
        charged += settings.watermark_blocks
    if settings.scheduler_reserve_full_isl:
        full = cdiv(min(r.num_tokens, settings.max_model_len), settings.block_size)
        if max(full, current.num_hit_blocks) + charged > queues.num_free_blocks:
            totals.num_kv_allocation_failures += 1
            return False
    total = current.num_hit_blocks * settings.block_size + num_new_tokens
    total += settings.num_first_lookahead_tokens
    total = min(total, settings.max_model_len)
    if max(cdiv(total, settings.block_size), current.num_hit_blocks) + charged > queues.num_free_blocks:
        totals.num_kv_allocation_failures += 1
        return False
    return True


@phase
def reload_hits(s: State, request: int) -> None:
    """Bring the prefix hits that the CPU tier has back to the GPU, all of them out of the tier before any comes in."""
    current, r = s.engine[0].current_step, s.requests[request]
    for i in range(current.num_hit_blocks):
        if s.hit_blocks[i] == 0:
            take_from_cpu(s, hash_of_block(s, request, i))
    for i in range(current.num_hit_blocks):
        if s.hit_blocks[i] == 0:
            offload_next(s)
            s.block_table[r.slot, i] = get_new_block(s)
            remember_hash(s, s.block_table[r.slot, i], hash_of_block(s, request, i))


@part
def admit(s: State, request: int, num_new_tokens: int) -> None:
    """Give an admitted request its hit blocks and the blocks for its first chunk."""
    settings, queues, current, r = (
        s.engine[0].settings,
        s.engine[0].queues,
        s.engine[0].current_step,
        s.requests[request],
    )
    queues.num_free_slots -= 1
    r.slot = s.free_slots[queues.num_free_slots]
    for i in range(current.num_hit_blocks):
        if s.hit_blocks[i] != 0:
            touch(s, s.hit_blocks[i])
            s.block_table[r.slot, i] = s.hit_blocks[i]
    if settings.num_cpu_blocks > 0:
        reload_hits(s, request)
    if (settings.num_cpu_blocks > 0 or settings.has_kv_offloading) and r.private_start == NEVER:
        give_private_keys(s, request)
    r.num_blocks = r.num_cached_blocks = current.num_hit_blocks
    r.num_computed_tokens = current.num_hit_blocks * settings.block_size
    if settings.num_first_lookahead_tokens == settings.num_lookahead_tokens:
        allocate_slots(s, request, num_new_tokens)
    else:
        allocate_first_chunk(s, request, num_new_tokens)


@phase
def reserve(s: State, request: int, num_blocks: int) -> None:
    """Give a request blocks until it has so many."""
    while s.requests[request].num_blocks < num_blocks:
        append_new_block(s, request)
