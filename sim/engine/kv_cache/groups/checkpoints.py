"""States that a kernel saves inside a prompt's chunk, each in a block of its own (num_prefill_checkpoint_blocks).

The chunk then need not end where the state is kept. The row of its request gets the block before its newest one for it,
whatever the state's place, and it enters the prefix cache as what it holds (vllm 0.32.0
v1/core/single_type_kv_cache_manager.py:MambaManager, v1/kv_cache_interface.py:is_mamba_prefill_checkpoint_valid).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.groups.keys import table_row
from sim.engine.kv_cache.groups.retention import is_periodic
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.records.group_records import FROM_BLOCK_ENDS, OF_LAST_CHUNK, WHERE_HITS_END
from sim.engine.state import State
from sim.jit.compile import part, phase

# -- where ---------------------------------------------------------------------------------------------------------


@part
def place_of_checkpoint(s: State, num_tokens: int) -> int:
    """Return where the state is saved of a prefill that ends at ``num_tokens``; 0: nowhere.

    A token is left to compute, and those that the last hash covers; of drafts' groups a hit drops a block, which leaves
    more (vllm 0.32.0 v1/kv_cache_interface.py:get_mamba_prefill_checkpoint_position).
    """
    settings = s.engine[0].settings
    unit, num_left = settings.hit_alignment, max(1, settings.num_hash_lookahead_tokens)
    if settings.use_eagle and settings.leaves_token_behind_state:
        num_left = 0
    return max((num_tokens - num_left) // unit * unit - settings.use_eagle * unit, 0)


@phase
def can_be_saved(s: State, start: int, end: int, place: int, size: int, alignment: int) -> bool:
    """Return whether a kernel can save the state at ``place`` in a chunk; ``alignment``: 0 where it saves none.

    ``size``: tokens per block. The chunk must reach over two ends of blocks.
    """
    unit = s.engine[0].settings.hash_block_size
    return (
        alignment > 0
        and start % unit == 0
        and cdiv(end, size) - 2 > (start - 1) // size
        and start + unit <= place < end
        and (place - start) % alignment == 0
    )


@phase
def saves_last_state(s: State, start: int, end: int, prefill_end: int) -> bool:
    """Return whether a chunk need not be cut at the prompt's last state, since it is saved inside.

    The first group of states says how its kernel is aligned; all of them must save any.
    """
    settings = s.engine[0].settings
    size, alignment = settings.block_size, settings.checkpoint_alignment
    if alignment == 0:
        return False
    if settings.prefill_checkpoints == FROM_BLOCK_ENDS:
        return settings.use_eagle == 0 and start % size == 0
    place = place_of_checkpoint(s, prefill_end)
    return end >= prefill_end and can_be_saved(s, start, end, place, size, alignment)


# -- blocks --------------------------------------------------------------------------------------------------------


@part
def checkpoint_block(s: State, group: int, end: int) -> int:
    """Return which block of a row has what is saved in a chunk: the one before the newest."""
    return cdiv(end, s.kv_cache_groups[group].block_size) - 2


@phase
def place_in_chunk(s: State, request: int, group: int, start: int, end: int) -> int:
    """Return where a state is saved while a request's tokens from ``start`` to ``end`` are computed; 0: none is.

    Drafts among these tokens count.
    """
    g, settings, r = s.kv_cache_groups[group], s.engine[0].settings, s.requests[request]
    rule = settings.prefill_checkpoints
    if not g.saves_checkpoints or checkpoint_block(s, group, end) < 0:
        return 0
    if rule == FROM_BLOCK_ENDS:
        is_saved = start % g.block_size == 0 and end % g.block_size != 0
        return end // g.block_size * g.block_size if is_saved else 0
    keeps_ends_alone = rule >= OF_LAST_CHUNK and settings.retention_interval == 0
    if keeps_ends_alone and end < max(r.num_prompt_tokens, r.num_tokens - 1):
        return 0
    place = place_of_checkpoint(s, end)
    return place if can_be_saved(s, start, end, place, g.block_size, g.checkpoint_alignment) else 0


@phase
def place_to_save(s: State, request: int, group: int, start: int, end: int, is_admission: bool) -> int:
    """Return ``place_in_chunk``, 0 also where a request has a state of its own in the block that it would get.

    What an admitted request has hit does not count. Blocks for drafts' states may be written over.
    """
    place = place_in_chunk(s, request, group, start, end)
    if place == 0 or is_admission:
        return place
    settings, have = s.engine[0].settings, s.group_rows[s.requests[request].slot, group]
    index = checkpoint_block(s, group, end)
    if index >= have.num_blocks or s.block_table[table_row(s, request, group), index] == 0:
        return place
    is_scratch = index >= have.num_blocks - settings.num_speculative_tokens
    return place if is_scratch and settings.prefill_checkpoints != FROM_BLOCK_ENDS else 0


@part
def num_saved(s: State, request: int, group: int, start: int, end: int, is_admission: bool) -> int:
    """Return 1 where a request's next tokens take a block for what is saved among them, else 0."""
    return 1 if place_to_save(s, request, group, start, end, is_admission) > 0 else 0


# -- the prefix cache ------------------------------------------------------------------------------------------------


@part
def saved_block(s: State, request: int, group: int) -> int:
    """Return which block of a request has the state that was saved inside its last tokens; NEVER: none was.

    In 0.29 it holds what a block at its place would, and is no other than those.
    """
    have = s.group_rows[s.requests[request].slot, group]
    return have.checkpoint_block if have.checkpoint_place > 0 else NEVER


@phase
def is_transient(s: State, request: int, group: int, num_tokens: int) -> bool:
    """Return whether no later prompt is to go on from what was saved: it does not enter the prefix cache.

    ``num_tokens``: up to where the group may cache the request. 0.30 forgets the prompt's own checkpoint, too.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    size, interval, rule = (
        s.kv_cache_groups[group].block_size,
        settings.retention_interval,
        settings.prefill_checkpoints,
    )
    place = s.group_rows[r.slot, group].checkpoint_place
    if place == s.group_rows[r.slot, 0].shared_prefix_boundary:
        return False
    if rule >= OF_LAST_CHUNK and place == place_of_checkpoint(s, r.num_prompt_tokens):
        return False
    if rule < WHERE_HITS_END:
        return interval == 0 and num_tokens < r.num_prompt_tokens
    if interval == NEVER or place % size != 0:
        return place % size != 0
    return interval == 0 or not is_periodic(place // size - 1, interval // size, 1, 0)
