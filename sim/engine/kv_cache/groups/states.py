"""Chunks of prompts end where a state can be kept (vLLM's scheduler.py:_mamba_block_aligned_split)."""

from __future__ import annotations

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
def last_state_to_keep(num_tokens: int, size: int, use_eagle: int) -> int:
    """Return the end of the last block whose state a request of ``num_tokens`` could be hit at.

    A token is left to compute; of drafts' groups a hit drops the last block, which leaves more
    (vllm 0.32.0 v1/kv_cache_interface.py:get_mamba_prefill_checkpoint_position).
    """
    if use_eagle:
        return max(num_tokens // size * size - size, 0)
    return (num_tokens - 1) // size * size


@phase
def aligned_chunk(s: State, request: int, start: int, num_new_tokens: int, junction: int) -> int:
    """Return how many of a request's next tokens behind ``start`` to compute, so that its state can be kept; may be 0.

    ``junction``: up to where another group has its prefix, 0 where none has more than all (``find_hits``).
    """
    r, size = s.requests[request], s.engine[0].settings.block_size
    prefill_end = max(r.num_prompt_tokens, r.num_tokens - 1)
    if start >= prefill_end:
        return num_new_tokens
    end = start + num_new_tokens
    if end < prefill_end:
        aligned_end = end // size * size
        if aligned_end > start or size <= longest_chunk(s):
            end = aligned_end
    stops_at = end
    if start % size != 0:
        stops_at = min(stops_at, earlier_stop((start // size + 1) * size, start, end))
    last = last_state_to_keep(r.num_tokens, size, s.engine[0].settings.use_eagle)
    stops_at = min(stops_at, earlier_stop(last, start, end))
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
    """Forget what a request has handed on since the last stores: its blocks are about to be somebody else's."""
    if s.engine[0].settings.hands_states:
        s.transfers[request].first_handed = 0
