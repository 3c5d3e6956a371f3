"""Full blocks of groups enter the prefix cache; what only its own request could ask for is marked, not entered."""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.groups.checkpoints import is_transient, saved_block
from sim.engine.kv_cache.groups.keys import key_in_group, table_row
from sim.engine.kv_cache.groups.partial import (
    cache_state_of_prompt,
    enter_partial,
    remember_private_partial,
)
from sim.engine.kv_cache.groups.retention import is_retained, keeps_all
from sim.engine.kv_cache.groups.states import hand_state, last_state_to_keep
from sim.engine.kv_cache.partial_hashes import forget_partial
from sim.engine.kv_cache.prefix_cache import cdiv, give_private_keys, num_hashed_tokens, remember_hash
from sim.engine.records.group_records import ALIGNED_STATE, FROM_BLOCK_ENDS, FULL, NO_OWNER, UNSHARED
from sim.engine.state import State
from sim.jit.compile import part, phase

ENTERED_LATER = 1 << 31
"""In the place of a block whose content is its own request's: another block of it had the same before."""


@part
def mark_unshared(s: State, block: int, owner: int, place: int) -> None:
    """Note that a block's content is cached for its own request; ``place``: index * groups + group.

    The fields of the table's list are free in such a block: they say whose it is and where it stands.
    """
    b = s.blocks[block]
    b.hash_id, b.next_same_hash, b.previous_same_hash = UNSHARED, owner, place


@part
def enter_block(s: State, request: int, group: int, block: int, index: int) -> int:
    """Enter what a request has in its full block ``index``, or mark it where only itself could ask; return its key."""
    key = key_in_group(s, request, group, index)
    if key == NEVER:
        mark_unshared(s, block, request, index * s.engine[0].settings.num_kv_cache_groups + group)
    else:
        remember_hash(s, block, key)
    return key


@part
def mark_tail(s: State, request: int, group: int, num_tokens: int) -> None:
    """Give the block that the prompt's last hash ends in that hash; mark it where no lookup asks for it."""
    g, r = s.kv_cache_groups[group], s.requests[request]
    settings = s.engine[0].settings
    hash_size = settings.hash_block_size
    left = settings.leaves_token_behind_state * (1 - g.use_eagle)
    end = num_hashed_tokens(s, request, r.num_prompt_tokens - left) // hash_size * hash_size
    index = end // g.block_size
    have = s.group_rows[r.slot, group]
    if end <= 0 or end > num_tokens or end % g.block_size == 0 or index >= have.num_blocks:
        return
    block = s.block_table[table_row(s, request, group), index]
    if block == 0:
        return
    if settings.matches_inside_blocks:
        if s.partial_hashes[block].hash_id == NEVER:
            enter_partial(s, request, group, block, end // hash_size - 1)
    elif s.blocks[block].hash_id == NEVER:
        mark_unshared(s, block, NO_OWNER, 0)


@part
def mark_state_of_prompt(s: State, request: int, group: int, num_tokens: int) -> None:
    """Note that the state at the prompt's last hash is written in this step, while a request has just that cached.

    vLLM enters it anew in each step until the request's next state, and no request can hit it meanwhile
    (vllm 0.32.0 v1/core/single_type_kv_cache_manager.py:MambaManager._cache_partial_tail_block).
    """
    settings, r = s.engine[0].settings, s.requests[request]
    if num_tokens == 0 or num_tokens != last_state_to_keep(s, r.num_prompt_tokens, settings.hash_block_size):
        return
    index = cdiv(num_tokens, s.kv_cache_groups[group].block_size) - 1
    if index >= s.group_rows[r.slot, group].num_blocks:
        return
    if num_tokens % s.kv_cache_groups[group].block_size != 0:
        if settings.matches_inside_blocks:
            cache_state_of_prompt(s, request, group, num_tokens, index)
        return
    block = s.block_table[table_row(s, request, group), index]
    if settings.matches_inside_blocks and block != 0 and s.blocks[block].hash_id == NEVER:
        enter_block(s, request, group, block, index)
    if block != 0 and s.blocks[block].hash_id >= 0:
        s.step_of_key[s.blocks[block].hash_id] = s.engine[0].totals.num_steps


@phase
def cache_checkpoint(s: State, request: int, group: int) -> None:
    """Enter the state that was saved inside a request's last tokens, as what it holds, unless it is there."""
    have, row = s.group_rows[s.requests[request].slot, group], table_row(s, request, group)
    settings, size = s.engine[0].settings, s.kv_cache_groups[group].block_size
    place, block = have.checkpoint_place, s.block_table[row, have.checkpoint_block]
    if block == 0 or s.blocks[block].hash_id != NEVER:
        return
    if place % size == 0:
        key = enter_block(s, request, group, block, place // size - 1)
        if key == NEVER:
            s.blocks[block].previous_same_hash += ENTERED_LATER
    elif s.partial_hashes[block].hash_id == NEVER:
        enter_partial(s, request, group, block, place // settings.hash_block_size - 1)
        key = s.partial_hashes[block].hash_id
    else:
        return
    if key >= 0:
        s.step_of_key[key] = s.engine[0].totals.num_steps


@part
def cache_in_group(s: State, request: int, group: int, num_tokens: int) -> None:
    """Enter a request's full blocks in one group."""
    g, have = s.kv_cache_groups[group], s.group_rows[s.requests[request].slot, group]
    settings = s.engine[0].settings
    num_full, row = num_hashed_tokens(s, request, num_tokens) // g.block_size, table_row(s, request, group)
    saved = NEVER
    is_kept = False
    if settings.prefill_checkpoints > FROM_BLOCK_ENDS:
        saved = saved_block(s, request, group)
        is_kept = saved != NEVER and not is_transient(s, request, group, num_tokens)
    for i in range(have.num_cached_blocks, min(num_full, have.num_blocks)):
        block = s.block_table[row, i]
        if saved != NEVER and i == saved:
            if settings.hands_states and is_kept and block != 0:
                hand_state(s, request, group, have.checkpoint_place // g.block_size - 1, block)
            continue
        if block == 0 or not (keeps_all(s, group) or is_retained(s, request, group, i)):
            continue
        if settings.matches_inside_blocks:
            forget_partial(s, block)
        key = enter_block(s, request, group, block, i)
        if key != NEVER and g.kind == ALIGNED_STATE:
            s.step_of_key[key] = s.engine[0].totals.num_steps
            if settings.hands_states:
                hand_state(s, request, group, i, block)
    if is_kept:
        cache_checkpoint(s, request, group)
    have.num_cached_blocks = max(have.num_cached_blocks, num_full)
    if g.kind == FULL and g.num_hashes_per_block > 1 and settings.keeps_junctions:
        mark_tail(s, request, group, num_tokens)
    marks_state = settings.enters_prompt_state_anew or settings.matches_inside_blocks
    if g.kind == ALIGNED_STATE and marks_state and saved == NEVER:
        mark_state_of_prompt(s, request, group, num_tokens)


@part
def num_settled_tokens(s: State, num_tokens: int) -> int:
    """Return how many of a request's first ``num_tokens`` are not computed again, as several modules draft."""
    return max(0, num_tokens - max(0, s.engine[0].settings.num_prefill_lookahead_tokens - 1))


@phase
def cacheable_past_hit(s: State, group: int, num_tokens: int) -> int:
    """Return how many of a request's first ``num_tokens`` a group that drafts use may cache.

    A block more than a hit of all groups can reach, which a hit drops
    (vllm 0.32.0 v1/core/kv_cache_coordinator.py:HybridKVCacheCoordinator.get_num_cacheable_tokens).
    """
    num_settled = num_settled_tokens(s, num_tokens)
    aligned = num_settled - num_settled % s.engine[0].settings.hit_alignment
    return min(num_settled, aligned + s.kv_cache_groups[group].block_size)


@phase
def cache_in_groups(s: State, request: int, num_tokens: int) -> None:
    """Enter the full blocks among a request's first ``num_tokens``, as far as a hit of all groups can reach."""
    settings = s.engine[0].settings
    if not settings.enable_prefix_caching:
        return
    if settings.num_kv_cache_groups == 1:
        cache_in_group(s, request, 0, num_settled_tokens(s, num_tokens))
        return
    aligned = num_tokens
    if settings.caches_to_alignment and not settings.matches_inside_blocks:
        aligned -= num_tokens % settings.hit_alignment
    for group in range(settings.num_kv_cache_groups):
        num_cacheable = aligned
        if aligned > 0 and s.kv_cache_groups[group].caches_past_hit and not settings.matches_inside_blocks:
            num_cacheable = cacheable_past_hit(s, group, num_tokens)
        cache_in_group(s, request, group, num_cacheable)


@phase
def remember_private_blocks_of_groups(s: State, request: int) -> None:
    """Enter all cached blocks of a request that is about to lose them, let go or not, so that it can find them again.

    Until its first preemption no request can ask for them (``prefix_cache.remember_private_blocks``). What it has let
    go stands in the free queue, so all blocks are looked at.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    if not settings.enable_prefix_caching or r.private_start != NEVER:
        return
    give_private_keys(s, request)
    num_groups = settings.num_kv_cache_groups
    for block in range(1, len(s.blocks)):
        b = s.blocks[block]
        if b.hash_id == UNSHARED and b.next_same_hash == request:
            place = b.previous_same_hash
            if place < ENTERED_LATER:
                remember_hash(s, block, key_in_group(s, request, place % num_groups, place // num_groups))
        if settings.matches_inside_blocks:
            remember_private_partial(s, request, block)
    if settings.prefill_checkpoints > FROM_BLOCK_ENDS:
        for block in range(1, len(s.blocks)):
            b = s.blocks[block]
            if b.hash_id == UNSHARED and b.next_same_hash == request:
                place = b.previous_same_hash - ENTERED_LATER
                remember_hash(s, block, key_in_group(s, request, place % num_groups, place // num_groups))
