"""What a request's blocks are to host memory: their contents, group by group, and which of them can be asked for.

A content of a group is a chunk of its own there. Of sliding windows only those blocks are stored that end where a hit
can end: vLLM takes the blocks of the full groups for that, and the end of the prompt (vllm 0.32.0
distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:_build_store_jobs,
v1/core/single_type_kv_cache_manager.py:SlidingWindowManager.reachable_block_mask).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.groups.keys import key_in_group
from sim.engine.kv_cache.groups.retention import is_at_boundary, is_periodic
from sim.engine.kv_cache.groups.windows import num_skipped_tokens
from sim.engine.kv_cache.prefix_cache import cdiv, hash_of_block
from sim.engine.records.group_records import ALIGNED_STATE, FULL, SLIDING
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def block_size_of(s: State, group: int) -> int:
    """Return how many tokens a block of a group has."""
    if s.engine[0].settings.has_kv_cache_groups:
        return s.kv_cache_groups[group].block_size
    return s.engine[0].settings.block_size


@part
def key_of(s: State, request: int, group: int, index: int) -> int:
    """Return the key of a request's block in a group, NEVER where only itself could ask for it."""
    if s.engine[0].settings.has_kv_cache_groups:
        return key_in_group(s, request, group, index)
    return hash_of_block(s, request, index)


@part
def place_of(s: State, private_start: int, group: int, index: int) -> int:
    """Return the row of ``seen_keys`` of a request's block."""
    return (private_start + index) * s.engine[0].settings.num_kv_cache_groups + group


@part
def is_windowed(s: State, group: int) -> bool:
    """Return whether a group lets go of blocks while its request runs."""
    return s.engine[0].settings.has_kv_cache_groups == 1 and s.kv_cache_groups[group].kind != FULL


@part
def first_to_load(s: State, group: int, num_local_tokens: int, num_tokens: int) -> int:
    """Return the first block of a group that a hit of ``num_tokens`` loads: what its window has passed is left out."""
    size = block_size_of(s, group)
    first = cdiv(num_local_tokens, size)
    if not is_windowed(s, group):
        return first
    return max(first, num_skipped_tokens(s, group, num_tokens) // size)


@part
def group_of_chunk(s: State, chunk: int) -> int:
    """Return which group's block is being stored by a chunk; of a shared store its key says where it goes."""
    settings, c = s.engine[0].settings, s.chunks[chunk]
    return (c.order if settings.has_shared_store else c.key) % settings.num_kv_cache_groups


@part
def has_states(s: State, group: int) -> bool:
    """Return whether a group has states: they are handed over one by one, and not found in the block table."""
    return s.engine[0].settings.hands_states == 1 and s.kv_cache_groups[group].kind == ALIGNED_STATE


@part
def loses_last_block(s: State, group: int) -> bool:
    """Return whether a group was marked as one with a drafting model's layers: its last block of a hit is dropped."""
    return s.engine[0].settings.has_kv_cache_groups == 1 and s.kv_cache_groups[group].is_eagle_group == 1


@part
def num_blocks_of(s: State, request: int, group: int) -> int:
    """Return how many blocks a request has in a group, those that were let go included."""
    if s.engine[0].settings.has_kv_cache_groups:
        return s.group_rows[s.requests[request].slot, group].num_blocks
    return s.requests[request].num_blocks


@phase
def forget_known_blocks(s: State, request: int) -> None:
    """Note that the connector knows no blocks of a request, which has just been given a row."""
    num_groups = s.engine[0].settings.num_kv_cache_groups
    for group in range(num_groups):
        row = s.requests[request].slot * num_groups + group
        s.num_known_blocks[row] = s.num_blocks_before[row] = 0


@part
def known_block(s: State, row: int, index: int) -> int:
    """Return which block the connector knows at a place, 0 none: a window may have let go of it since."""
    if s.engine[0].settings.has_kv_cache_groups:
        return s.known_blocks[row, index]
    return s.block_table[row, index]


@part
def first_to_offer(s: State, group: int, num_offered_tokens: int, num_loaded_tokens: int) -> int:
    """Return the first block of a group that was neither offered nor loaded."""
    size = block_size_of(s, group)
    return max(num_offered_tokens // size, cdiv(num_loaded_tokens, size))


@part
def end_of_offer(s: State, row: int, group: int, num_tokens: int) -> int:
    """Return behind which block of a group an offer of a request's first ``num_tokens`` ends; 0 of states."""
    if has_states(s, group):
        return 0
    return min(num_tokens // block_size_of(s, group), s.num_known_blocks[row])


@part
def has_segments(s: State, group: int) -> bool:
    """Return whether a group is a window some of whose blocks no load can need."""
    if not is_windowed(s, group) or s.kv_cache_groups[group].kind != SLIDING:
        return False
    return s.engine[0].settings.store_alignment % s.kv_cache_groups[group].block_size == 0


@part
def blocks_per_segment(s: State, group: int) -> int:
    """Return how many blocks of a window lie between two places where a hit can end."""
    return s.engine[0].settings.store_alignment // s.kv_cache_groups[group].block_size


@phase
def can_be_asked_for(
    s: State, group: int, index: int, horizon: int, num_prompt_tokens: int, junction: int
) -> bool:
    """Return whether a load can ever need a block.

    ``horizon``: how many blocks the request's last hit can have; ``junction``: up to where another prompt was seen to
    have the prefix, 0: nowhere.
    """
    if not has_segments(s, group):
        return True
    settings, g = s.engine[0].settings, s.kv_cache_groups[group]
    interval, size, alignment = settings.retention_interval, g.block_size, settings.store_alignment
    shift = g.is_eagle_group
    needed = cdiv(g.window - 1, size) + shift
    segment = blocks_per_segment(s, group) if interval == NEVER else interval // size
    if interval != 0 and is_periodic(index, segment, needed, shift):
        return True
    if interval == NEVER:
        rest = horizon % segment
        return shift == 0 and rest > 0 and max(horizon - rest, horizon - needed) <= index < horizon
    if junction > 0 and is_at_boundary(index, junction, alignment, size, needed, shift):
        return True
    return is_at_boundary(index, num_prompt_tokens - 1, alignment, size, needed, shift)


@part
def first_of_cut(s: State, group: int, first: int, end: int, horizon: int) -> int:
    """Return where the offer of a request begins that has gone: of one that was cut off, the last segment again."""
    if end == horizon or s.engine[0].settings.retention_interval != NEVER or not has_segments(s, group):
        return first
    if loses_last_block(s, group):
        return first
    return min(first, end - end % blocks_per_segment(s, group))


@part
def junction_of(s: State, slot: int) -> int:
    """Return up to where another prompt was seen to have a request's prefix, 0: nowhere."""
    return s.group_rows[slot, 0].shared_prefix_boundary if s.engine[0].settings.has_kv_cache_groups else 0
