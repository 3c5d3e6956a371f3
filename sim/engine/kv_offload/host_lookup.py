"""How much of a request host memory has: the longest prefix beyond the GPU's own that all groups can go on from.

Full groups need every block of it, windows the last run that fills them. Each group may shorten what the ones before
have found, so windows are asked again until nothing changes (vllm 0.32.0
distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:_lookup_complete_chunks).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.kv_offload.contents import block_size_of, is_windowed, key_of, loses_last_block
from sim.engine.kv_offload.shared_store import is_in_store
from sim.engine.records.group_records import ALIGNED_STATE, SLIDING
from sim.engine.state import State
from sim.jit.compile import part, phase

WAITS = -1
"""In place of a number of tokens or blocks: a transfer of some of them is under way."""

ASK_NOBODY, ASK_WINDOWS, ASK_ALL = 0, 1, 2


@part
def chunk_of(s: State, request: int, group: int, index: int) -> int:
    """Return where the tier has a request's block or will have it, 0: nowhere."""
    key = key_of(s, request, group, index)
    return 0 if key == NEVER else s.cpu_slot_of_key[key]


@phase
def look_for(s: State, request: int, group: int, index: int) -> int:
    """Return 1 where the tier has a request's block, 0 where not, WAITS while it is being stored."""
    if s.engine[0].settings.has_shared_store:
        return is_in_store(s, key_of(s, request, group, index))
    chunk = chunk_of(s, request, group, index)
    if chunk == 0:
        return 0
    return WAITS if s.chunks[chunk].ref_cnt == NEVER else 1


@phase
def num_leading_blocks(s: State, request: int, group: int, first: int, end: int) -> int:
    """Return how many blocks in a row the tier has from ``first`` on; WAITS while one of them is being stored."""
    i, waits = first, False
    while i < end:
        found = look_for(s, request, group, i)
        if found == 0:
            break
        waits = waits or found == WAITS
        i += 1
    return WAITS if waits else i - first


@phase
def num_blocks_to_window(
    s: State, request: int, group: int, first: int, end: int, needed: int, needed_at_end: int
) -> int:
    """Return how many blocks from ``first`` on the last run ends that fills a window; WAITS while one is being stored.

    A run that begins at ``first`` may be shorter; one that ends at ``end`` has ``needed_at_end`` blocks.
    """
    in_a_row, waits, required = 0, False, needed_at_end
    for i in range(end - 1, first - 1, -1):
        found = look_for(s, request, group, i)
        if found == 0:
            in_a_row, waits, required = 0, False, needed
        else:
            in_a_row += 1
            waits = waits or found == WAITS
        if in_a_row == required:
            return WAITS if waits else i - first + required
    return WAITS if waits else in_a_row


@part
def blocks_in_window(s: State, group: int) -> int:
    """Return how many blocks a hit needs of a group with windows (get_sliding_window_size_in_chunks)."""
    g = s.kv_cache_groups[group]
    if g.kind == ALIGNED_STATE:
        return 1
    retains = g.kind == SLIDING and s.engine[0].settings.num_prefill_lookahead_tokens > 1
    return cdiv(g.window - retains, g.block_size)


@part
def blocks_in_window_at(s: State, group: int, num_tokens: int) -> int:
    """Return how many blocks a hit of so many tokens needs of a group with windows (load_window_size_in_chunks)."""
    g = s.kv_cache_groups[group]
    if g.num_blocks_for_hit == 0:
        return blocks_in_window(s, group)
    return max(blocks_in_window(s, group), cdiv(g.window - 1 + -num_tokens % g.block_size, g.block_size))


@phase
def num_found(s: State, request: int, group: int, first: int, max_length: int) -> int:
    """Return how many blocks from ``first`` on a group finds of a hit of at most ``max_length`` tokens, or WAITS.

    A group with a drafting model's layers is asked for one more, of which the last is dropped; for one length once.
    """
    size = block_size_of(s, group)
    num_keys = s.requests[request].num_tokens // size
    num_dropped = 0
    if loses_last_block(s, group):
        num_dropped = 1 - s.kv_cache_groups[group].is_eagle_verified
    end = min(cdiv(min(max_length + num_dropped * size, num_keys * size), size), num_keys)
    if not is_windowed(s, group):
        num = num_leading_blocks(s, request, group, first, end)
    else:
        at_end = blocks_in_window_at(s, group, min(max_length, (end - num_dropped) * size)) + num_dropped
        needed = blocks_in_window(s, group) + num_dropped
        num = num_blocks_to_window(s, request, group, first, end, needed, at_end)
    if num > 0 and num_dropped > 0:
        s.kv_cache_groups[group].is_eagle_verified = 1
        num -= 1
    return num


@part
def drop_again(s: State) -> None:
    """Note that no group has lost the block for drafts: the hit has another length than when it did."""
    if s.engine[0].settings.has_kv_cache_groups:
        for group in range(s.engine[0].settings.num_kv_cache_groups):
            s.kv_cache_groups[group].is_eagle_verified = 0


@phase
def is_being_loaded(s: State, request: int, num_local_tokens: int, num_tokens: int) -> bool:
    """Return whether a request is loading a block that a hit of ``num_tokens`` needs, and no other may load it."""
    if s.engine[0].settings.has_shared_store:
        return False
    for group in range(s.engine[0].settings.num_kv_cache_groups):
        size = block_size_of(s, group)
        first, end = num_local_tokens // size, cdiv(num_tokens, size)
        if is_windowed(s, group):
            first = max(first, end - blocks_in_window_at(s, group, num_tokens))
        for i in range(first, end):
            chunk = chunk_of(s, request, group, i)
            if chunk != 0 and s.chunks[chunk].ref_cnt > 0:
                return True
    return False


@part
def longest_hit(s: State, request: int) -> int:
    """Return how long a hit of host memory can be at most.

    Where there are windows, the last token is left out: it is computed again, and a window must reach up to it. States
    are those at the ends of blocks.
    """
    settings = s.engine[0].settings
    length = s.requests[request].num_tokens - settings.has_windows
    if settings.aligns_states:
        length -= length % settings.block_size
    return length


@phase
def num_tokens_on_cpu(s: State, request: int, num_local_tokens: int) -> int:
    """Return how many tokens beyond those of the GPU's cache all groups can load, or WAITS.

    With full groups alone the last token may be among them: it is computed again.
    """
    settings = s.engine[0].settings
    length = longest_hit(s, request)
    drop_again(s)
    num_hit, waits, to_ask = 0, False, ASK_ALL
    while to_ask != ASK_NOBODY:
        asked, to_ask, has_asked_window = to_ask, ASK_NOBODY, False
        for k in range(settings.num_kv_cache_groups):
            group = s.store_order[k]
            if asked == ASK_WINDOWS and not is_windowed(s, group):
                continue
            size = block_size_of(s, group)
            length = min(length, s.requests[request].num_tokens // size * size)
            first, num = num_local_tokens // size, 0
            if length - num_local_tokens >= size:
                num = num_found(s, request, group, first, length)
            if num == WAITS:
                waits = True
            else:
                length = min(length, size * (first + num))
            if num == 0 or length - num_local_tokens < size:
                return 0
            if length - num_local_tokens < num_hit:
                if not loses_last_block(s, group):
                    drop_again(s)
                if waits:
                    waits, to_ask = False, ASK_ALL
                elif has_asked_window and to_ask == ASK_NOBODY:
                    to_ask = ASK_WINDOWS
            has_asked_window = has_asked_window or is_windowed(s, group)
            num_hit = length - num_local_tokens
    if waits or is_being_loaded(s, request, num_local_tokens, length):
        return WAITS
    return num_hit
