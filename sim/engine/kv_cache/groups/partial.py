"""Contents that end inside a block, and prefix hits on them (vLLM's fine-grained prefix cache hits).

With ``prefix_match_unit`` below the tokens of a block, a prompt's last unit enters the prefix cache where it ends. A
full group's block has it beside its own content, since what follows is written behind it. A state is written over, so
the next step copies it: its content goes to the copy. A request that hits such a content gets a copy of its block to go
on in (vllm 0.32.0 v1/core/single_type_kv_cache_manager.py:_cache_partial_tail_block, _apply_cow, block_pool.py:
cache_partial_block, move_block_hashes).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.groups.keys import table_row
from sim.engine.kv_cache.partial_hashes import forget_partial, remember_partial
from sim.engine.kv_cache.prefix_cache import hash_of_block
from sim.engine.records.group_records import FULL, UNSHARED
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def key_of_unit(s: State, request: int, group: int, index: int) -> int:
    """Return the key of what a request has up to the end of a unit, NEVER where only itself could ask for it."""
    content = hash_of_block(s, request, index)
    return NEVER if content == NEVER else content * s.engine[0].settings.num_kv_cache_groups + group


# -- contents of blocks ----------------------------------------------------------------------------------------


@part
def enter_partial(s: State, request: int, group: int, block: int, index: int) -> None:
    """Enter what a request's block has up to the end of a unit, or mark it where only itself could ask for it."""
    p, key = s.partial_hashes[block], key_of_unit(s, request, group, index)
    if key != NEVER:
        remember_partial(s, block, key)
        return
    p.hash_id, p.next_same_hash = UNSHARED, request
    p.previous_same_hash = index * s.engine[0].settings.num_kv_cache_groups + group


@part
def move_partial(s: State, source: int, copy: int) -> None:
    """Move the content that ends inside a block to the copy of the block."""
    p, moved = s.partial_hashes[source], s.partial_hashes[copy]
    key = p.hash_id
    if key >= 0:
        forget_partial(s, source)
        remember_partial(s, copy, key)
        s.step_of_key[key] = s.engine[0].totals.num_steps
    else:
        moved.hash_id = key
        moved.next_same_hash, moved.previous_same_hash = p.next_same_hash, p.previous_same_hash
        p.hash_id = NEVER


@phase
def remember_private_partial(s: State, request: int, block: int) -> None:
    """Enter the content that ends inside a block, if it is of a request that is about to lose its blocks."""
    p, num_groups = s.partial_hashes[block], s.engine[0].settings.num_kv_cache_groups
    if p.hash_id == UNSHARED and p.next_same_hash == request:
        place = p.previous_same_hash
        remember_partial(s, block, key_of_unit(s, request, place % num_groups, place // num_groups))


# -- hits --------------------------------------------------------------------------------------------------------


@part
def has_unit(s: State, request: int, first: int, index: int) -> bool:
    """Return whether all groups like ``first`` have cached what a request has up to the end of a unit."""
    group = first
    while group != NEVER:
        key = key_of_unit(s, request, group, index)
        if key == NEVER or s.hashes[key].oldest == 0:
            return False
        group = s.kv_cache_groups[group].next_alike
    return True


@part
def take_unit(s: State, request: int, first: int, index: int, start: int) -> None:
    """Put the block that has a unit into the hit of each group like ``first``, and nothing from ``start`` up to it."""
    group, place = first, index // s.kv_cache_groups[first].num_hashes_per_block
    while group != NEVER:
        for i in range(start, place):
            s.group_hits[group, i] = 0
        s.group_hits[group, place] = s.hashes[key_of_unit(s, request, group, index)].oldest
        group = s.kv_cache_groups[group].next_alike


@part
def num_units(s: State, request: int, num_tokens: int) -> int:
    """Return how many whole units there are in ``num_tokens`` that have a hash."""
    settings = s.engine[0].settings
    hashed = s.requests[request].num_tokens - settings.num_hash_lookahead_tokens
    return max(min(num_tokens, hashed), 0) // settings.hash_block_size


@phase
def hit_inside_block(s: State, request: int, first: int, max_length: int, num_dropped: int) -> int:
    """Return the longest hit of a kind of groups, in tokens, at most ``max_length``; a unit is dropped for drafts.

    Full groups have whole blocks from the beginning, then the longest content in the next one; states have the last.
    """
    g, unit = s.kv_cache_groups[first], s.engine[0].settings.hash_block_size
    per_block, least = g.num_hashes_per_block, 0
    most = num_units(s, request, max_length)
    if g.kind == FULL:
        while least + per_block <= most and has_unit(s, request, first, least + per_block - 1):
            take_unit(s, request, first, least + per_block - 1, least // per_block)
            least += per_block
        most = min(most, least + per_block - 1)
    length = least * unit
    for i in range(most - 1, least - 1, -1):
        if has_unit(s, request, first, i):
            take_unit(s, request, first, i, least // per_block)
            length = (i + 1) * unit
            break
    return length - unit if g.kind == FULL and num_dropped > 0 and length > 0 else length


# -- copies ------------------------------------------------------------------------------------------------------


@part
def ends_inside(s: State, group: int, hit_length: int) -> int:
    """Return 1 where a hit ends inside a block of a group, whose copy takes a block more, else 0."""
    g = s.kv_cache_groups[group]
    return 1 if g.num_hit_blocks > 0 and hit_length % g.block_size != 0 else 0


@part
def has_to_copy(s: State, request: int, group: int) -> int:
    """Return 1 where a request's next blocks in a group are behind a copy, else 0."""
    return 1 if s.shared_block[table_row(s, request, group)] != NEVER else 0


@phase
def copy_shared_block(s: State, request: int, group: int, copy: int, is_admission: bool) -> None:
    """Copy the block that a request goes on in and whose content is to stay.

    One that has hit it goes on in the copy. A running one stays where it is, and the copy has the content.
    """
    current, row = s.engine[0].current_step, table_row(s, request, group)
    index = s.shared_block[row]
    source = s.block_table[row, index]
    if is_admission:
        s.block_table[row, index] = copy
        s.blocks[copy].ref_cnt += 1
    else:
        move_partial(s, source, copy)
        s.blocks[source].ref_cnt += 1
    s.shared_block[row] = NEVER
    pair = s.block_copies[current.num_block_copies]
    pair.group, pair.source, pair.destination = group, source, copy
    current.num_block_copies += 1


@phase
def cache_state_of_prompt(s: State, request: int, group: int, end: int, index: int) -> None:
    """Enter the state at the prompt's last unit, which ends inside block ``index``; the next step copies it."""
    row, unit = table_row(s, request, group), end // s.engine[0].settings.hash_block_size - 1
    block = s.block_table[row, index]
    if block == 0:
        return
    if s.partial_hashes[block].hash_id == NEVER:
        enter_partial(s, request, group, block, unit)
    if s.partial_hashes[block].hash_id >= 0:
        s.step_of_key[s.partial_hashes[block].hash_id] = s.engine[0].totals.num_steps
    s.group_rows[s.requests[request].slot, group].num_cached_blocks = s.shared_block[row] = index


@part
def key_of_hit(s: State, group: int) -> int:
    """Return the key of the state that the hit in hand begins with."""
    block = s.group_hits[group, s.kv_cache_groups[group].num_hit_blocks - 1]
    if s.engine[0].settings.matches_inside_blocks and s.blocks[block].hash_id == NEVER:
        return s.partial_hashes[block].hash_id
    return s.blocks[block].hash_id
