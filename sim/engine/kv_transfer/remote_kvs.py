"""A request whose prompt was computed elsewhere: it gets its blocks, waits aside while they are filled, and joins.

It asks in its turn in the queue, and all of its prompt must fit beside what partial prefills still need. Its blocks are
not in the prefix cache before they are filled, and it counts against neither seats nor token budget. Once its KV is
there, it goes before all that hold no blocks. The last token of its prompt is computed again: its logits are
needed (vllm 0.32.0 v1/core/sched/scheduler.py: schedule, _update_waiting_for_remote_kv).
"""

from __future__ import annotations

from sim.engine.dtypes import FCFS, LOAD_STARTED, PREEMPTED, WAITING, WAITING_FOR_REMOTE_KVS
from sim.engine.kv_cache.allocate_slots import append_new_block
from sim.engine.kv_cache.blocks import touch
from sim.engine.kv_cache.groups.loaded_blocks import blocks_missing_in_groups, groups_fit_behind
from sim.engine.kv_cache.kv_cache_manager import allocate_slots, cache_blocks
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.log import log_completion
from sim.engine.state import State
from sim.engine.waiting import goes_before, remove_request
from sim.jit.compile import part, phase

# -- requests that hold blocks and do not run ------------------------------------------------------------------------


@part
def hold(s: State, request: int) -> None:
    """Put a request behind those that hold blocks; under a policy other than fcfs at its place among them."""
    kv = s.engine[0].kv_transfers
    at = kv.num_holding
    if s.engine[0].settings.policy != FCFS:
        while at > 0 and goes_before(s, request, s.holding[at - 1]):
            s.holding[at] = s.holding[at - 1]
            at -= 1
    s.holding[at] = request
    kv.num_holding += 1
    s.transfers[request].is_held = 1


@phase
def drop_held(s: State, request: int) -> None:
    """Take a request out of those that hold blocks and do not run."""
    kv = s.engine[0].kv_transfers
    at = 0
    while s.holding[at] != request:
        at += 1
    for i in range(at, kv.num_holding - 1):
        s.holding[i] = s.holding[i + 1]
    kv.num_holding -= 1
    kv.num_ready -= s.transfers[request].is_received
    s.transfers[request].is_held = 0


# -- asking for KV --------------------------------------------------------------------------------------------


@part
def blocks_missing(s: State, request: int) -> int:
    """Return how many blocks a request with a row still needs for all tokens that it knows, and a step with drafts."""
    settings, r = s.engine[0].settings, s.requests[request]
    if settings.has_kv_cache_groups:
        num_missing = blocks_missing_in_groups(s, request, settings.num_reserved_tokens)
    else:
        num_tokens = min(r.num_tokens, settings.max_model_len) + settings.num_reserved_tokens
        num_missing = max(0, cdiv(num_tokens, settings.block_size) - r.num_blocks)
    return num_missing + settings.num_reserved_blocks


@part
def blocks_reserved(s: State) -> int:
    """Return how many blocks the prefills under way still need for the tokens that they know."""
    reserved = 0
    for i in range(s.engine[0].queues.num_running):
        if s.transfers[s.running[i]].is_prefill_chunk:
            reserved += blocks_missing(s, s.running[i])
    for i in range(s.engine[0].kv_transfers.num_holding):
        reserved += blocks_missing(s, s.holding[i])
    return reserved


@phase
def start_load(s: State, request: int, num_evictable: int) -> bool:
    """Give the head of the queue blocks for its whole prompt, the hits looked up first; False when they lack."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    clock, r, t = s.engine[0].clock, s.requests[request], s.transfers[request]
    num_blocks = cdiv(min(r.num_tokens, settings.max_model_len), settings.block_size)
    needed = num_blocks - current.num_hit_blocks + num_evictable
    if queues.num_running > 0:
        needed += settings.watermark_blocks
    if needed + blocks_reserved(s) > queues.num_free_blocks:
        s.engine[0].totals.num_kv_allocation_failures += 1
        return False
    remove_request(s, request)
    queues.num_free_slots -= 1
    r.slot = s.free_slots[queues.num_free_slots]
    for i in range(current.num_hit_blocks):
        touch(s, s.hit_blocks[i])
        s.block_table[r.slot, i] = s.hit_blocks[i]
    r.num_blocks = r.num_cached_blocks = current.num_hit_blocks
    while r.num_blocks < num_blocks:
        append_new_block(s, request)
    t.num_local_tokens = current.num_hit_blocks * settings.block_size
    t.num_blocks = num_blocks - current.num_hit_blocks
    r.num_computed_tokens = r.num_tokens
    t.num_external_computed_tokens = r.num_tokens - t.num_local_tokens
    t.do_remote_prefill = t.is_received = 0
    r.status = WAITING_FOR_REMOTE_KVS
    hold(s, request)
    log_completion(s, request, clock.now_us, LOAD_STARTED)
    return True


# -- joining --------------------------------------------------------------------------------------------------


@part
def promote(s: State, request: int) -> None:
    """Enter the blocks that have been filled into the prefix cache; the request may be admitted."""
    r = s.requests[request]
    cache_blocks(s, request, r.num_computed_tokens)
    r.num_computed_tokens = min(r.num_computed_tokens, r.num_tokens - 1)
    r.status = PREEMPTED if r.num_preemptions > 0 else WAITING


@part
def fits_behind(s: State, request: int, num_new_tokens: int) -> bool:
    """Return whether a request that holds blocks may be admitted with these tokens."""
    settings, queues, r = s.engine[0].settings, s.engine[0].queues, s.requests[request]
    kept_free = settings.watermark_blocks if queues.num_running > 0 else 0
    if settings.has_kv_cache_groups:
        return groups_fit_behind(s, request, num_new_tokens, kept_free)
    total = r.num_computed_tokens + num_new_tokens + settings.num_lookahead_tokens
    total = min(total, settings.max_model_len)
    if settings.scheduler_reserve_full_isl:
        total = max(total, min(r.num_tokens, settings.max_model_len))
    if max(0, cdiv(total, settings.block_size) - r.num_blocks) + kept_free > queues.num_free_blocks:
        s.engine[0].totals.num_kv_allocation_failures += 1
        return False
    return True


@part
def take_held(s: State, request: int, num_new_tokens: int) -> None:
    """Give an admitted request that holds blocks those that its first tokens need beyond them."""
    drop_held(s, request)
    allocate_slots(s, request, num_new_tokens)


@part
def local_tokens(s: State, request: int) -> int:
    """Return how many tokens an admitted request found in the engine's own prefix cache."""
    if s.engine[0].settings.has_kv_transfers and s.transfers[request].num_external_computed_tokens > 0:
        return s.transfers[request].num_local_tokens
    return s.requests[request].num_computed_tokens
