"""Slots for tokens: the prefix lookup and allocate_slots (vLLM's kv_cache_manager.py)."""

from __future__ import annotations

from sim.compile import part, phase
from sim.engine.blocks import get_new_block, remember_hash, touch
from sim.engine.optional.blis import num_tokens_to_look_up
from sim.engine.optional.cpu_tier import is_on_cpu, offload_next, take_from_cpu
from sim.engine.state import NEVER, State


@part
def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return (a + b - 1) // b


@part
def hash_of_block(s: State, request: int, index: int) -> int:
    """Return the table's key for the content of a request's block, NEVER where only itself could ask for it."""
    r = s.requests[request]
    if index < r.num_hashes:
        return s.hash_ids[r.hash_start + index]
    if r.private_start != NEVER:
        return r.private_start + index - r.num_hashes
    return NEVER


@part
def has_hashes_past(s: State, request: int, index: int) -> bool:
    """Return whether a request's blocks from ``index`` on must be entered into the table when they fill."""
    r = s.requests[request]
    return s.counters[0].enable_prefix_caching and (r.num_hashes > index or r.private_start != NEVER)


@part
def get_computed_blocks(s: State, request: int) -> int:
    """Fill ``hit_blocks`` with the longest cached prefix; return how many free blocks it takes.

    It takes those of its blocks that nobody holds, and one for each block that the CPU tier has.
    The last token is never taken from the cache, since its logits are needed: a fully cached prompt of k blocks
    computes its last block again (vllm 0.32.0 kv_cache_manager.py:get_computed_blocks).
    """
    e = s.counters[0]
    e.num_hit_blocks = 0
    num_evictable = 0
    if not e.enable_prefix_caching:
        return 0
    most = num_tokens_to_look_up(s, request) // e.block_size
    for i in range(min(most, len(s.hit_blocks))):
        key = hash_of_block(s, request, i)
        if key == NEVER or (s.hashes[key].oldest == 0 and not is_on_cpu(s, key)):
            break
        block = s.hashes[key].oldest
        s.hit_blocks[i] = block
        e.num_hit_blocks = i + 1
        if block == 0 or s.blocks[block].ref_cnt == 0:
            num_evictable += 1
    return num_evictable


@part
def cache_full_blocks(s: State, request: int, num_tokens: int) -> None:
    """Enter the full blocks among a request's first ``num_tokens`` into the prefix cache."""
    e, r = s.counters[0], s.requests[request]
    if not e.enable_prefix_caching or num_tokens < (r.num_cached_blocks + 1) * e.block_size:
        return
    num_full = min(num_tokens // e.block_size, r.num_blocks)
    if has_hashes_past(s, request, r.num_cached_blocks):
        for i in range(r.num_cached_blocks, num_full):
            key = hash_of_block(s, request, i)
            if key == NEVER:
                break
            remember_hash(s, s.block_table[r.slot, i], key)
    r.num_cached_blocks = num_full


@part
def append_new_block(s: State, request: int) -> None:
    """Give a request one more block."""
    r = s.requests[request]
    s.block_table[r.slot, r.num_blocks] = get_new_block(s)
    r.num_blocks += 1


@part
def allocate_slots(s: State, request: int, num_new_tokens: int) -> bool:
    """Give a running request the blocks for its next tokens; return False, changing nothing, when they lack."""
    e, r = s.counters[0], s.requests[request]
    total = r.num_computed_tokens + num_new_tokens
    needed = min(total + e.num_lookahead_tokens, e.max_model_len)
    if (
        needed > r.num_blocks * e.block_size
    ):  # rarely true, and a division costs more than the rest of the visit
        num_new_blocks = cdiv(needed, e.block_size) - r.num_blocks
        if num_new_blocks > e.num_free_blocks:
            return False
        for _ in range(num_new_blocks):
            if e.num_cpu_blocks > 0:
                offload_next(s)
            append_new_block(s, request)
    cache_full_blocks(s, request, min(total, r.num_tokens))
    return True


@part
def fits(s: State, request: int, num_new_tokens: int, num_evictable: int) -> bool:
    """Return whether a waiting request may be admitted with this first chunk behind its prefix hit.

    With ``scheduler_reserve_full_isl`` all its known tokens must fit, not only the chunk. Hit blocks that nobody
    holds sit in the free queue, so they are charged too. The watermark is kept free unless nothing runs.
    """
    e, r = s.counters[0], s.requests[request]
    charged = num_evictable - e.num_hit_blocks
    if e.num_running > 0:
        charged += e.watermark_blocks
    if e.scheduler_reserve_full_isl:
        full = cdiv(min(r.num_tokens, e.max_model_len), e.block_size)
        if max(full, e.num_hit_blocks) + charged > e.num_free_blocks:
            return False
    total = e.num_hit_blocks * e.block_size + num_new_tokens + e.num_lookahead_tokens
    total = min(total, e.max_model_len)
    return max(cdiv(total, e.block_size), e.num_hit_blocks) + charged <= e.num_free_blocks


@part
def give_private_keys(s: State, request: int) -> None:
    """Give a request keys of its own in the hash table, for its blocks that nobody else can ask for."""
    e, r = s.counters[0], s.requests[request]
    r.private_start = e.num_keys
    e.num_keys += cdiv(r.max_total_tokens, e.block_size) + 1


@phase
def reload_hits(s: State, request: int) -> None:
    """Bring the prefix hits that the CPU tier has back to the GPU, all of them out of the tier before any comes in."""
    e, r = s.counters[0], s.requests[request]
    for i in range(e.num_hit_blocks):
        if s.hit_blocks[i] == 0:
            take_from_cpu(s, hash_of_block(s, request, i))
    for i in range(e.num_hit_blocks):
        if s.hit_blocks[i] == 0:
            offload_next(s)
            s.block_table[r.slot, i] = get_new_block(s)
            remember_hash(s, s.block_table[r.slot, i], hash_of_block(s, request, i))


@part
def admit(s: State, request: int, num_new_tokens: int) -> None:
    """Give an admitted request its hit blocks and the blocks for its first chunk."""
    e, r = s.counters[0], s.requests[request]
    e.num_free_slots -= 1
    r.slot = s.free_slots[e.num_free_slots]
    for i in range(e.num_hit_blocks):
        if s.hit_blocks[i] != 0:
            touch(s, s.hit_blocks[i])
            s.block_table[r.slot, i] = s.hit_blocks[i]
    if e.num_cpu_blocks > 0:
        reload_hits(s, request)
        if r.private_start == NEVER:
            give_private_keys(s, request)
    r.num_blocks = r.num_cached_blocks = e.num_hit_blocks
    r.num_computed_tokens = e.num_hit_blocks * e.block_size
    allocate_slots(s, request, num_new_tokens)


@part
def remember_private_blocks(s: State, request: int) -> None:
    """Enter a request's own cached blocks into the table before it loses them, so that it can find them again.

    Nobody else can ask for these blocks, so until a preemption they need no entry, only the knowledge that they
    are hashed. This is what makes ordinary requests cheap; what vLLM would look up is the same.
    """
    e, r = s.counters[0], s.requests[request]
    if not e.enable_prefix_caching or r.private_start != NEVER:
        return
    give_private_keys(s, request)
    for i in range(r.num_hashes, r.num_cached_blocks):
        remember_hash(s, s.block_table[r.slot, i], r.private_start + i - r.num_hashes)
