"""The longest cached prefix on which all groups agree (vLLM's find_longest_cache_hit of coordinator and managers).

A kind of group either takes the length in hand or shortens it; they are asked in turn until nothing changes. Groups
of one kind and the same numbers have a block together or not at all.

Where drafts read hidden states, the last block of a hit is computed again in the groups that they use. Such a group is
asked for one block more than the length in hand, of which the last is dropped; for one length it is dropped once.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.groups.keys import key_in_group
from sim.engine.kv_cache.groups.partial import hit_inside_block
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.records.group_records import ALIGNED_STATE, CHUNKED, FULL, SLIDING
from sim.engine.state import State
from sim.jit.compile import part, phase


@phase
def has_block(s: State, request: int, first: int, index: int) -> bool:
    """Return whether all groups like ``first`` have a request's block cached."""
    lookahead = s.engine[0].settings.num_hash_lookahead_tokens
    if lookahead > 1:
        end = (index + 1) * s.kv_cache_groups[first].block_size
        if end + lookahead > s.requests[request].num_tokens:
            return False  # it has no hash yet
    group = first
    while group != NEVER:
        key = key_in_group(s, request, group, index)
        if key == NEVER or s.hashes[key].oldest == 0:
            return False
        group = s.kv_cache_groups[group].next_alike
    return True


@part
def take_block(s: State, request: int, first: int, index: int) -> None:
    """Put the cached block of each group like ``first`` into the hit."""
    group = first
    while group != NEVER:
        s.group_hits[group, index] = s.hashes[key_in_group(s, request, group, index)].oldest
        group = s.kv_cache_groups[group].next_alike


@part
def leave_out(s: State, first: int, start: int, end: int) -> None:
    """Take blocks ``start`` to ``end`` off the hit of each group like ``first``."""
    group = first
    while group != NEVER:
        for i in range(start, end):
            s.group_hits[group, i] = 0
        group = s.kv_cache_groups[group].next_alike


@part
def is_aligned(s: State, num_tokens: int) -> bool:
    """Return whether a hit of all groups can end here."""
    return num_tokens % s.engine[0].settings.hit_alignment == 0


@part
def last_aligned(s: State, block_size: int, num_blocks: int) -> int:
    """Return the largest number of blocks, at most so many, at which a hit of all groups can end."""
    while not is_aligned(s, num_blocks * block_size):
        num_blocks -= 1
    return num_blocks


@part
def num_blocks_of_full(s: State, request: int, first: int, most: int, num_dropped: int) -> int:
    """Return how many leading blocks are there, the last one dropped or not, at a place where a hit can end."""
    num_blocks = 0
    while num_blocks < most and has_block(s, request, first, num_blocks):
        take_block(s, request, first, num_blocks)
        num_blocks += 1
    size = s.kv_cache_groups[first].block_size
    num_tokens = max(num_blocks - num_dropped, 0) * size
    return cdiv(num_tokens - num_tokens % s.engine[0].settings.hit_alignment, size)


@part
def num_blocks_of_sliding(s: State, request: int, first: int, most: int, num_dropped: int) -> int:
    """Return at how many blocks the last run ends that fills a window; at the beginning a shorter one will do.

    A run whose last block is dropped has one more. What is left of it then may end where no hit can, so it is cut.
    """
    g = s.kv_cache_groups[first]
    leave_out(s, first, 0, most)
    in_a_row, num_blocks = 0, NEVER
    for i in range(most - 1, -1, -1):
        if not has_block(s, request, first, i):
            in_a_row = 0
            continue
        if in_a_row == 0 and not is_aligned(s, (i + 1 - num_dropped) * g.block_size):
            continue
        take_block(s, request, first, i)
        in_a_row += 1
        if in_a_row >= g.num_blocks_for_hit + num_dropped:
            num_blocks = i + in_a_row
            break
    if num_blocks == NEVER:
        num_blocks = last_aligned(s, g.block_size, in_a_row)
    if num_dropped > 0 and num_blocks > 0:
        num_blocks = last_aligned(s, g.block_size, num_blocks - 1)
    return num_blocks


@part
def num_blocks_of_chunked(s: State, request: int, first: int, most: int, max_length: int) -> int:
    """Return how many blocks there are from the beginning of the last token's chunk on; those before count unseen."""
    g = s.kv_cache_groups[first]
    num_blocks = max_length // g.window * g.window // g.block_size
    leave_out(s, first, 0, num_blocks)
    while num_blocks < most and has_block(s, request, first, num_blocks):
        take_block(s, request, first, num_blocks)
        num_blocks += 1
    return num_blocks


@part
def num_blocks_of_state(s: State, request: int, first: int, most: int) -> int:
    """Return at how many blocks the last cached state is."""
    g = s.kv_cache_groups[first]
    for i in range(most - 1, -1, -1):
        if is_aligned(s, (i + 1) * g.block_size) and has_block(s, request, first, i):
            leave_out(s, first, 0, i)
            take_block(s, request, first, i)
            return i + 1
    return 0


@part
def note_hit(s: State, first: int, length: int) -> int:
    """Note and return the length of the hit of the groups like ``first``."""
    group, num_blocks = first, cdiv(length, s.kv_cache_groups[first].block_size)
    while group != NEVER:
        s.kv_cache_groups[group].num_hit_blocks = num_blocks
        s.kv_cache_groups[group].hit_length = length
        group = s.kv_cache_groups[group].next_alike
    return length


@phase
def find_hit_of_kind(s: State, request: int, first: int, max_length: int, num_dropped: int) -> int:
    """Return the longest hit of the groups like ``first``, in tokens, at most ``max_length``; note its blocks.

    ``num_dropped``: 1 where one block more may match, the last of which is dropped; a state is never dropped.
    """
    g, settings = s.kv_cache_groups[first], s.engine[0].settings
    looks_further = settings.drops_last_block_once and settings.num_kv_cache_groups > 1
    keeps_within = g.kind == ALIGNED_STATE and settings.ends_states_at_hit == 1
    if num_dropped > 0 and not keeps_within and looks_further:
        num_tokens = s.requests[request].num_tokens
        hashed = num_tokens // settings.hash_block_size * settings.hash_block_size
        longest = hashed if settings.looks_past_hit else num_tokens - 1
        dropped = settings.hash_block_size if settings.matches_inside_blocks else g.block_size
        max_length = min(max_length + dropped, longest)
    max_length = min(max_length, s.group_hits.shape[1] * g.block_size)
    if settings.matches_inside_blocks:
        return note_hit(s, first, hit_inside_block(s, request, first, max_length, num_dropped))
    most = max_length // g.block_size
    num_blocks = 0
    if g.kind == FULL:
        num_blocks = num_blocks_of_full(s, request, first, most, num_dropped)
    elif g.kind == SLIDING:
        num_blocks = num_blocks_of_sliding(s, request, first, most, num_dropped)
    elif g.kind == CHUNKED:
        num_blocks = num_blocks_of_chunked(s, request, first, most, max_length)
    elif g.kind == ALIGNED_STATE:
        num_blocks = num_blocks_of_state(s, request, first, most)
    return note_hit(s, first, num_blocks * g.block_size)


@part
def shorten(s: State, request: int, first: int, length: int) -> int:
    """Return the hit of the groups like ``first``, at most ``length``; the block for drafts is dropped once for it."""
    g = s.kv_cache_groups[first]
    num_dropped = g.use_eagle * (1 - g.is_eagle_verified)
    found = find_hit_of_kind(s, request, first, length, num_dropped)
    if num_dropped > 0:
        g.is_eagle_verified = s.engine[0].settings.drops_last_block_once
    elif found < length:
        for group in range(s.engine[0].settings.num_kv_cache_groups):
            s.kv_cache_groups[group].is_eagle_verified = 0
    return found


@part
def cut_full(s: State, first: int, length: int) -> int:
    """Return the hit of full groups that were asked already, at most ``length``; up to 0.25 it is not asked again."""
    g = s.kv_cache_groups[first]
    if s.engine[0].settings.ends_states_at_hit:
        return min(length, g.hit_length)
    return length // g.block_size * g.block_size


@phase
def find_hits(s: State, request: int) -> None:
    """Look up a waiting request's prefix in all groups: ``num_hit_blocks``, in hashes, is what they agree on.

    The last token is never taken from the cache (``allocate_slots.get_computed_blocks``).
    """
    settings, current = s.engine[0].settings, s.engine[0].current_step
    current.num_hit_blocks = current.shared_prefix_boundary = 0
    for group in range(settings.num_kv_cache_groups):
        s.kv_cache_groups[group].num_hit_blocks = 0
        s.kv_cache_groups[group].hit_length = NEVER
        s.kv_cache_groups[group].is_eagle_verified = 0
    if not settings.enable_prefix_caching:
        return
    hit_length = s.requests[request].num_tokens - 1
    longest = 0
    while True:
        length = hit_length
        first = settings.first_group_to_ask
        while first != NEVER:
            g = s.kv_cache_groups[first]
            if g.kind == FULL and g.hit_length != NEVER:  # its hit only needs to be cut
                length = cut_full(s, first, length)
            else:
                length = shorten(s, request, first, length)
                longest = max(longest, length)
            first = g.next_to_ask
        if length >= hit_length:
            break
        hit_length = length
        if settings.asks_groups_once:
            break
    for group in range(settings.num_kv_cache_groups):
        g = s.kv_cache_groups[group]
        if g.kind == FULL:
            g.num_hit_blocks = cdiv(min(hit_length, g.hit_length), g.block_size)
    current.num_hit_blocks = hit_length // settings.hash_block_size
    if longest > hit_length and settings.num_kv_cache_groups > 1:
        current.shared_prefix_boundary = longest
