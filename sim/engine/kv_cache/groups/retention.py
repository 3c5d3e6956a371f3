"""Which blocks of windows and states stay in the prefix cache: those that a later prompt can go on from.

``prefix_cache_retention_interval``: None keeps all that a hit can end at; N keeps those every N tokens; 0, as N does,
where a prompt that repeats or prolongs this one stops, and where another prompt was seen to leave it (vllm 0.32.0
v1/core/single_type_kv_cache_manager.py:reachable_block_mask, v1/core/kv_cache_coordinator.py:replay_boundaries).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.records.group_records import ALIGNED_STATE, SLIDING
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def ends_window(index: int, end: int, num_needed: int) -> bool:
    """Return whether a block is among the ``num_needed`` before block ``end``."""
    return end - num_needed <= index < end


@part
def is_periodic(index: int, segment: int, num_needed: int, shift: int) -> bool:
    """Return whether a block is among the last ``num_needed`` of a segment, ``shift`` blocks behind its place."""
    place = index - shift
    return num_needed >= segment or (place >= 0 and place % segment >= segment - num_needed)


@part
def is_at_boundary(index: int, tokens: int, alignment: int, size: int, num_needed: int, shift: int) -> bool:
    """Return whether a hit that ends with the last whole ``alignment`` in ``tokens`` needs a block."""
    return ends_window(index, tokens // alignment * alignment // size + shift, num_needed)


@phase
def is_at_prompt_end(
    s: State, index: int, num_prompt_tokens: int, size: int, num_needed: int, shift: int
) -> bool:
    """Return whether a prompt that repeats this one, or goes on from it, needs a block of its end.

    The last token of a repeated prompt is computed again. Where drafts read ahead, a hit loses its last block.
    """
    settings = s.engine[0].settings
    alignment = settings.hit_alignment
    if not (settings.use_eagle and settings.keeps_ends_a_block_earlier):
        return is_at_boundary(index, num_prompt_tokens - 1, alignment, size, num_needed, shift)
    block = size if settings.matches_inside_blocks else alignment
    resent = max((num_prompt_tokens - 1) // block * block - block, 0)
    prolonged = max(num_prompt_tokens // block * block - block, 0)
    return is_at_boundary(index, resent, alignment, size, num_needed, shift) or is_at_boundary(
        index, prolonged, alignment, size, num_needed, shift
    )


@part
def keeps_all(s: State, group: int) -> bool:
    """Return whether every full block of a group enters the prefix cache."""
    g, settings = s.kv_cache_groups[group], s.engine[0].settings
    is_dense = settings.retention_interval == NEVER
    if g.kind == SLIDING:
        fills_segment = g.num_blocks_for_hit + g.caches_past_hit >= g.blocks_per_segment
        return is_dense and (fills_segment or not settings.caches_to_alignment)
    return g.kind != ALIGNED_STATE or is_dense or settings.thins_states_out == 0


@phase
def is_retained(s: State, request: int, group: int, index: int) -> bool:
    """Return whether a full block of a request enters the prefix cache, of a group that does not keep all."""
    g, settings = s.kv_cache_groups[group], s.engine[0].settings
    interval, size = settings.retention_interval, g.block_size
    num_needed, shift = g.num_blocks_for_hit + g.caches_past_hit, g.caches_past_hit
    if g.kind == ALIGNED_STATE:
        num_needed, shift = 1, 0
    if interval != 0:
        segment = g.blocks_per_segment if interval == NEVER else interval // size
        if is_periodic(index, segment, num_needed, shift):
            return True
    if interval == NEVER:
        return False
    r = s.requests[request]
    junction = s.group_rows[r.slot, 0].shared_prefix_boundary
    if junction > 0 and is_at_boundary(index, junction, settings.hit_alignment, size, num_needed, shift):
        return True
    if junction > 0 and g.use_eagle and settings.keeps_junctions_a_block_earlier:
        before = (
            junction - size
        )  # a prompt that leaves right there has another block behind it: its hit loses one
        if is_at_boundary(index, before, settings.hit_alignment, size, num_needed, shift):
            return True
    return is_at_prompt_end(s, index, r.num_prompt_tokens, size, num_needed, shift)
