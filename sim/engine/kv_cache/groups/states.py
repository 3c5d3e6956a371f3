"""Chunks of prompts end where a state can be kept (vLLM's scheduler.py:_mamba_block_aligned_split)."""

from __future__ import annotations

from sim.engine.kv_cache.groups.checkpoints import saves_last_state
from sim.engine.records.group_records import AT_JUNCTIONS, AT_KNOWN_ENDS, BEFORE_OUTPUTS, NO_CHECKPOINTS
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def longest_chunk(s: State) -> int:
    """Return how many tokens of one prompt a step can hold at most."""
    settings = s.engine[0].settings
    threshold = settings.long_prefill_token_threshold
    return (
        min(settings.max_num_batched_tokens, threshold) if threshold > 0 else settings.max_num_batched_tokens
    )


@part
def earlier_stop(stop: int, start: int, end: int) -> int:
    """Return ``stop`` where it lies inside a chunk, else the chunk's end."""
    return stop if start < stop < end else end


@part
def last_state_to_keep(s: State, num_tokens: int, size: int) -> int:
    """Return the end of the last block whose state a request of ``num_tokens`` could be hit at.

    A token is left to compute, before 0.32 only where a prompt goes on; of drafts' groups a hit drops the last block,
    which leaves more (vllm 0.32.0 v1/kv_cache_interface.py:get_mamba_prefill_checkpoint_position).
    """
    settings = s.engine[0].settings
    if settings.use_eagle:
        return max(num_tokens // size * size - size, 0)
    num_left = max(settings.leaves_token_behind_state, settings.num_hash_lookahead_tokens)
    return max(num_tokens - num_left, 0) // size * size


@phase
def chunk_of_whole_blocks(s: State, request: int, start: int, num_new_tokens: int, junction: int) -> int:
    """Return ``aligned_chunk`` of vLLM before 0.26: whole blocks, then what is before the last state, then the rest."""
    settings, r = s.engine[0].settings, s.requests[request]
    size, known = settings.block_size, r.num_tokens
    is_over = start >= max(r.num_prompt_tokens, r.num_tokens - 1)
    if settings.state_chunks == BEFORE_OUTPUTS:
        is_over, known = r.num_tokens > r.num_prompt_tokens, r.num_prompt_tokens
    if is_over:
        return num_new_tokens
    last = last_state_to_keep(s, known, size)
    if start + num_new_tokens < last:
        num_new_tokens = num_new_tokens // size * size
    elif start < last < start + num_new_tokens:
        num_new_tokens = last - start
    if settings.state_chunks == AT_JUNCTIONS and size <= junction - start < num_new_tokens:
        num_new_tokens = (junction - start) // size * size
    return num_new_tokens


@phase
def aligned_chunk(s: State, request: int, start: int, num_new_tokens: int, junction: int) -> int:
    """Return how many of a request's next tokens behind ``start`` to compute, so that its state can be kept; may be 0.

    ``junction``: up to where another group has its prefix, 0 where none has more than all (``find_hits``).
    """
    r, settings = s.requests[request], s.engine[0].settings
    size = settings.block_size
    if settings.state_chunks < AT_KNOWN_ENDS:
        return chunk_of_whole_blocks(s, request, start, num_new_tokens, junction)
    prefill_end = max(r.num_prompt_tokens, r.num_tokens - 1)
    if start >= prefill_end:
        return num_new_tokens
    end, last = start + num_new_tokens, last_state_to_keep(s, r.num_tokens, size)
    is_known = settings.state_chunks == AT_KNOWN_ENDS
    saves_last = False
    if settings.prefill_checkpoints != NO_CHECKPOINTS:
        saves_last = saves_last_state(s, start, end, prefill_end)
    if saves_last:
        last = 0
    elif end < (last if is_known else prefill_end):
        aligned_end = end // size * size
        if aligned_end > start or is_known or size <= longest_chunk(s):
            end = aligned_end
    stops_at, next_end = end, (start // size + 1) * size
    if start % size != 0 and not saves_last and not (is_known and next_end > last):
        stops_at = min(stops_at, earlier_stop(next_end, start, end))
    stops_at = min(stops_at, earlier_stop(last, start, end))
    if settings.matches_inside_blocks and not saves_last:
        tail = last_state_to_keep(s, r.num_prompt_tokens, settings.hash_block_size)
        if tail > last:
            stops_at = min(stops_at, earlier_stop(tail, start, end))
    if start < junction < end:
        stops_at = min(stops_at, earlier_stop(start + (junction - start) // size * size, start, end))
    return max(stops_at - start, 0)


@phase
def hand_state(s: State, request: int, group: int, index: int, block: int) -> None:
    """Hand a state that has entered the prefix cache to the next stores, if it is a prompt's.

    A request's later states take the place of earlier ones, so its table does not say which block had which (vllm
    0.32.0 v1/core/single_type_kv_cache_manager.py:MambaManager.cache_blocks).
    """
    kv, t = s.engine[0].kv_offload, s.transfers[request]
    if (index + 1) * s.kv_cache_groups[group].block_size > s.requests[request].num_prompt_tokens:
        return
    h = s.handed_states[kv.num_handed]
    kv.num_handed += 1
    h.request, h.group, h.index, h.block, h.next = request, group, index, block, 0
    if t.first_handed == 0:
        t.first_handed = kv.num_handed
    else:
        s.handed_states[t.last_handed - 1].next = kv.num_handed
    t.last_handed = kv.num_handed


@part
def take_states_back(s: State, request: int) -> None:
    """Forget what a request has handed on since the last stores: its blocks are about to be another request's."""
    if s.engine[0].settings.hands_states:
        s.transfers[request].first_handed = 0
