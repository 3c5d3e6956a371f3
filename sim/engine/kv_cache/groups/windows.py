"""Blocks that no later token reads: let go as windows move, chunks end and states follow each other."""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.blocks import insert_free
from sim.engine.kv_cache.groups.keys import table_row
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.records.group_records import ALIGNED_STATE, CHUNKED, SLIDING
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def num_skipped_tokens(s: State, group: int, num_tokens: int) -> int:
    """Return how many leading tokens the next one does not read, behind ``num_tokens`` (get_num_skipped_tokens)."""
    g = s.kv_cache_groups[group]
    if g.kind == SLIDING:
        return max(0, num_tokens - g.window + 1)
    if g.kind == CHUNKED:
        return num_tokens // g.window * g.window
    if g.kind == ALIGNED_STATE:
        return max(0, num_tokens - 1)
    return 0


@part
def release(s: State, block: int, front: int, goes_first: int) -> int:
    """Drop a reference; return behind which block of the free queue the next one without content goes.

    What is cached goes to the back, the rest to the front where it ``goes_first`` (``blocks.free_blocks``).
    """
    settings, b = s.engine[0].settings, s.blocks[block]
    b.ref_cnt -= 1
    if b.ref_cnt > 0:
        return front
    s.engine[0].queues.num_free_blocks += 1
    is_kept = b.hash_id >= 0 or (b.hash_id != NEVER and not settings.recycle_private_first)
    if settings.matches_inside_blocks and not is_kept:
        key = s.partial_hashes[block].hash_id
        is_kept = key >= 0 or (key != NEVER and not settings.recycle_private_first)
    if is_kept or not goes_first:
        insert_free(s, block, s.blocks[0].previous_free)
        return front
    insert_free(s, block, front)
    return block


@phase
def let_copies_go(s: State) -> None:
    """Free both blocks of each copy that a step made, as one list, group by group (_free_cow_retained_blocks)."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    front = 0
    for group in range(settings.num_kv_cache_groups):
        for i in range(current.num_block_copies):
            pair = s.block_copies[i]
            if pair.group == group:
                front = release(s, pair.source, front, settings.frees_unhashed_blocks_first)
                front = release(s, pair.destination, front, settings.frees_unhashed_blocks_first)
    if current.num_block_copies > 0:
        queues.head_is_blocked = 0
    current.num_block_copies = 0


@part
def let_go_before(s: State, request: int, group: int, num_blocks: int) -> None:
    """Free a request's first blocks in a group, the last of them first, up to those that went before."""
    row, goes_first = table_row(s, request, group), s.engine[0].settings.frees_skipped_first
    front = 0
    for i in range(num_blocks - 1, -1, -1):
        block = s.block_table[row, i]
        if block == 0:
            break
        front = release(s, block, front, goes_first)
        s.block_table[row, i] = 0


@part
def let_states_go_before(s: State, request: int, group: int, num_blocks: int) -> None:
    """Free a request's first states, the last of them first; there are gaps between them."""
    row, have = table_row(s, request, group), s.group_rows[s.requests[request].slot, group]
    front = 0
    for i in range(num_blocks - 1, have.num_retired_blocks - 1, -1):
        block = s.block_table[row, i]
        if block != 0:
            front = release(s, block, front, s.engine[0].settings.frees_skipped_first)
            s.block_table[row, i] = 0
    have.num_retired_blocks = max(have.num_retired_blocks, num_blocks)


@part
def let_last_state_go(s: State, request: int, group: int, num_processed: int) -> None:
    """Free the state before the newest: it was copied when the newest began."""
    have = s.group_rows[s.requests[request].slot, group]
    last = have.last_state_block
    if last == NEVER or last >= cdiv(num_processed, s.kv_cache_groups[group].block_size) - 1:
        return
    row = table_row(s, request, group)
    if s.block_table[row, last] != 0:
        release(s, s.block_table[row, last], 0, s.engine[0].settings.frees_unhashed_blocks_first)
        s.block_table[row, last] = 0


@phase
def let_skipped_go(s: State, request: int, group: int, num_processed: int) -> None:
    """Free the blocks that no token reads once ``num_processed`` tokens are computed, those in flight not counted.

    Where those are counted, all drafts under way are taken to fail: a state before them may be needed.
    """
    g, over_gaps = s.kv_cache_groups[group], s.engine[0].settings.retires_states_over_gaps
    if g.kind == ALIGNED_STATE and s.engine[0].settings.excludes_tokens_in_flight == 0:
        num_processed = max(0, num_processed - s.engine[0].settings.num_speculative_tokens)
    num_skipped = num_skipped_tokens(s, group, num_processed)
    if num_skipped > 0:
        num_blocks = min(
            num_skipped // g.block_size, s.group_rows[s.requests[request].slot, group].num_blocks
        )
        if g.kind == ALIGNED_STATE and over_gaps:
            let_states_go_before(s, request, group, num_blocks)
        else:
            let_go_before(s, request, group, num_blocks)
    if g.kind == ALIGNED_STATE:
        let_last_state_go(s, request, group, num_processed)


@phase
def has_to_let_go(s: State, request: int, group: int, num_processed: int) -> bool:
    """Return whether ``let_skipped_go`` would let go of anything."""
    g, have = s.kv_cache_groups[group], s.group_rows[s.requests[request].slot, group]
    row = table_row(s, request, group)
    num_blocks = min(num_skipped_tokens(s, group, num_processed) // g.block_size, have.num_blocks)
    lets_last_go = num_blocks > 0 and s.block_table[row, num_blocks - 1] != 0
    if g.kind != ALIGNED_STATE:
        return lets_last_go
    last = have.last_state_block
    is_last_old = last != NEVER and last < cdiv(num_processed, g.block_size) - 1
    if s.engine[0].settings.retires_states_over_gaps:
        lets_last_go = num_blocks > have.num_retired_blocks
    return lets_last_go or (is_last_old and s.block_table[row, last] != 0)
