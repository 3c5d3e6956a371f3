"""Blocks that come from host memory: which requests ask for them, wait aside while they come, and are told.

A request at the head of the queue asks for what follows on its hit in the GPU's prefix cache. It gets all its blocks
at once, and does not run before it is told, after a step, that they are filled; others go by. While anything that it
asks for is being stored or loaded, or stores of its own are under way, it is passed over (vllm 0.32.0
distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:get_num_new_matched_tokens, update_state_after_alloc).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER, WAITING_FOR_REMOTE_KVS
from sim.engine.kv_cache.allocate_slots import append_new_block
from sim.engine.kv_cache.blocks import touch
from sim.engine.kv_cache.groups.loaded_blocks import adopt_in_groups, groups_have_room
from sim.engine.kv_cache.kv_cache_manager import free
from sim.engine.kv_cache.prefix_cache import cdiv, give_private_keys
from sim.engine.kv_offload.contents import (
    block_size_of,
    first_to_load,
    forget_known_blocks,
    key_of,
    place_of,
)
from sim.engine.kv_offload.host_lookup import WAITS, num_tokens_on_cpu
from sim.engine.kv_offload.links import drop_job, new_job, put_on_link, take_ended
from sim.engine.kv_offload.recency import hold as hold_chunk
from sim.engine.kv_offload.recency import let_go, note_use_of_load
from sim.engine.kv_offload.shared_store import pin_for_load
from sim.engine.kv_transfer.remote_kvs import blocks_reserved, hold, promote
from sim.engine.records.offload_records import LOAD
from sim.engine.state import State
from sim.engine.waiting import remove_request, skip_head
from sim.jit.compile import part, phase

HAS_NONE, IS_ASIDE, HAS_NO_ROOM = 0, 1, 2
"""What comes of asking for blocks that are elsewhere. IS_ASIDE: the request has left the head of the queue."""


@part
def has_room_for(s: State, request: int, num_evictable: int, num_tokens: int) -> bool:
    """Return whether a waiting request may have the blocks of ``num_tokens``, to be loaded; count where not."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    kept_free = settings.watermark_blocks if queues.num_running > 0 else 0
    if settings.has_kv_cache_groups:
        num_reserved = blocks_reserved(s) + settings.draft_step_blocks
        return groups_have_room(s, request, num_tokens, kept_free, num_reserved)
    charged = num_evictable - current.num_hit_blocks + kept_free
    needed = num_tokens // settings.block_size + charged + blocks_reserved(s) + settings.draft_step_blocks
    if settings.scheduler_reserve_full_isl:
        full = cdiv(min(s.requests[request].num_tokens, settings.max_model_len), settings.block_size)
        needed = max(needed, full + charged)
    if needed > queues.num_free_blocks:
        s.engine[0].totals.num_kv_allocation_failures += 1
        return False
    return True


@phase
def adopt(s: State, request: int, num_tokens: int) -> None:
    """Give a request its hits on the GPU and blocks for what is loaded, ``num_tokens`` together."""
    settings, queues, num_hits = (
        s.engine[0].settings,
        s.engine[0].queues,
        s.engine[0].current_step.num_hit_blocks,
    )
    r = s.requests[request]
    queues.num_free_slots -= 1
    r.slot = s.free_slots[queues.num_free_slots]
    if settings.has_kv_cache_groups:
        adopt_in_groups(s, request, num_tokens)
        return
    for i in range(num_hits):
        touch(s, s.hit_blocks[i])
        s.block_table[r.slot, i] = s.hit_blocks[i]
    r.num_blocks = r.num_cached_blocks = num_hits
    while r.num_blocks < num_tokens // settings.block_size:
        append_new_block(s, request)


@phase
def order_load(s: State, request: int) -> None:
    """Order the transfer of what a request loads."""
    settings, t = s.engine[0].settings, s.transfers[request]
    num, head, last = 0, 0, 0
    if settings.has_shared_store:
        put_on_link(s, LOAD, new_job(s, LOAD, request, pin_for_load(s, request), 0))
        return
    num_tokens = t.num_local_tokens + t.num_external_computed_tokens
    for group in range(settings.num_kv_cache_groups):
        size = block_size_of(s, group)
        for i in range(first_to_load(s, group, t.num_local_tokens, num_tokens), cdiv(num_tokens, size)):
            chunk = s.cpu_slot_of_key[key_of(s, request, group, i)]
            c = s.chunks[chunk]
            if c.ref_cnt == 0:
                hold_chunk(s, chunk)
            if settings.gives_up_by_place:
                note_use_of_load(s, request, group, i, chunk)
            c.ref_cnt += 1
            c.next_of_job = 0
            num += 1
            if head == 0:
                head = chunk
            else:
                s.chunks[last].next_of_job = chunk
            last = chunk
    put_on_link(s, LOAD, new_job(s, LOAD, request, num, head))


@phase
def ask_host_memory(s: State, request: int, num_evictable: int) -> int:
    """Look for more blocks of the head of the queue, its hits looked up: it loads them, or is passed over, or runs."""
    settings, r, t = s.engine[0].settings, s.requests[request], s.transfers[request]
    num_local = s.engine[0].current_step.num_hit_blocks * settings.hash_block_size
    t.num_external_computed_tokens = 0
    if settings.offers_again:
        t.num_offered_tokens = t.num_found_tokens = 0
    num = WAITS if t.num_stores > 0 else num_tokens_on_cpu(s, request, num_local)
    if num == WAITS:
        skip_head(s, request)
        return IS_ASIDE
    if num == 0:
        return HAS_NONE
    if not has_room_for(s, request, num_evictable, num_local + num):
        return HAS_NO_ROOM
    remove_request(s, request)
    adopt(s, request, num_local + num)
    forget_known_blocks(s, request)
    r.num_computed_tokens = num_local + num
    t.num_local_tokens, t.num_external_computed_tokens = num_local, num
    t.is_prefill_chunk = 1
    t.num_offered_tokens, t.num_found_tokens, t.is_received = 0, num_local + num, 0
    r.status = WAITING_FOR_REMOTE_KVS
    hold(s, request)
    order_load(s, request)
    return IS_ASIDE


@phase
def note_loaded(s: State, request: int) -> None:
    """Note which contents a request has loaded, among all that it used."""
    r, t = s.requests[request], s.transfers[request]
    if r.private_start == NEVER:
        give_private_keys(s, request)
    num_tokens = t.num_local_tokens + t.num_external_computed_tokens
    for group in range(s.engine[0].settings.num_kv_cache_groups):
        size = block_size_of(s, group)
        for i in range(first_to_load(s, group, t.num_local_tokens, num_tokens), cdiv(num_tokens, size)):
            s.seen_keys[place_of(s, r.private_start, group, i)] = key_of(s, request, group, i) + 1


@phase
def promote_loaded(s: State, request: int) -> None:
    """Admit a request whose blocks have come from host memory."""
    note_loaded(s, request)
    promote(s, request)


@phase
def report_loads(s: State, batch: int, now_us: int) -> int:
    """Tell requests that have their blocks, by a batch's results; return how many transfers that were."""
    num = 0
    while True:
        job = take_ended(s, LOAD, batch)
        if job == 0:
            return num
        num += 1
        j = s.kv_jobs[job]
        chunk = j.first_chunk
        while chunk != 0:
            s.chunks[chunk].ref_cnt -= 1
            if s.chunks[chunk].ref_cnt == 0:
                let_go(s, chunk)
            chunk = s.chunks[chunk].next_of_job
        s.engine[0].totals.kv_load_wait_us += now_us - j.ordered_us
        s.transfers[j.request].load_wait_us += now_us - j.ordered_us
        if s.requests[j.request].status == WAITING_FOR_REMOTE_KVS:
            s.transfers[j.request].is_received = 1
            s.engine[0].kv_transfers.num_ready += 1
        else:
            s.engine[0].kv_transfers.num_delayed -= 1
            free(s, j.request)
        drop_job(s, job)
