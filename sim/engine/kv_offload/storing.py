"""Blocks that go to host memory: offered once, when a request has computed them, and stored where the tier lacks them.

They are the full blocks of prompts: what is generated goes there with the next prompt that repeats it. A step offers
what its requests will have computed, then what those left over that have gone since. It waits for stores whose blocks
somebody takes who may write to them: those of requests that it preempts, and of requests that are gone (vllm 0.32.0
distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:build_connector_meta).
"""

from __future__ import annotations

from sim.engine.dtypes import LOAD, NEVER, STORE, WAITING_FOR_REMOTE_KVS
from sim.engine.kv_cache.prefix_cache import hash_of_block
from sim.engine.kv_offload.links import (
    drop_job,
    flush,
    flush_request,
    hand_over,
    hand_over_at_once,
    has_jobs,
    put_on_link,
    take_ended,
    tell,
    written_us,
)
from sim.engine.kv_offload.loading import note_loaded, report_loads
from sim.engine.kv_offload.shared_store import free_piece
from sim.engine.kv_offload.tier import REFUSED, offer, use_in_reverse
from sim.engine.state import State
from sim.jit.compile import part, phase

# -- requests that are gone ------------------------------------------------------------------------------------


@part
def fence(s: State, chunk: int) -> None:
    """Make the next user of the block that a chunk is stored from wait for the store."""
    c = s.chunks[chunk]
    f = s.fences[c.block]
    c.next_of_block, c.is_fenced = f.first_chunk, 1
    f.first_chunk = chunk


@part
def end_fence(s: State, chunk: int) -> None:
    """End all waiting for a chunk."""
    c = s.chunks[chunk]
    if not c.is_fenced:
        return
    c.is_fenced = 0
    f = s.fences[c.block]
    if f.first_chunk == chunk:
        f.first_chunk = c.next_of_block
        return
    before = f.first_chunk
    while s.chunks[before].next_of_block != chunk:
        before = s.chunks[before].next_of_block
    s.chunks[before].next_of_block = c.next_of_block


@phase
def fence_stores(s: State, request: int) -> None:
    """Fence the blocks of a request's stores that are under way or ordered: they will be free."""
    job = s.kv_links[STORE].first_job
    while job != 0:
        j = s.kv_jobs[job]
        if j.request == request and not j.is_departed:
            j.is_departed = 1
            chunk = j.first_chunk
            while chunk != 0:
                fence(s, chunk)
                chunk = s.chunks[chunk].next_of_job
        job = j.next


@phase
def depart(s: State, request: int, num_computed_tokens: int) -> None:
    """Remember what a request leaves to the next step, before its blocks are freed.

    ``num_computed_tokens``: those of it whose KV is whole.
    """
    settings, kv = s.engine[0].settings, s.engine[0].kv_offload
    r, t = s.requests[request], s.transfers[request]
    if r.status == WAITING_FOR_REMOTE_KVS:
        note_loaded(s, request)
    if r.private_start == NEVER:
        return  # it was never admitted
    if t.num_stores > 0:
        fence_stores(s, request)
        t.num_stores = 0
    end = min(min(num_computed_tokens, r.num_prompt_tokens) // settings.block_size, t.num_known_blocks)
    for i in range(t.next_stored_block, end):
        own = r.private_start + i
        if s.seen_keys[own] == 0:
            s.seen_keys[own] = -1 - hash_of_block(s, request, i)
    d = s.departed[kv.num_departed]
    kv.num_departed += 1
    d.request, d.private_start, d.num_blocks = request, r.private_start, r.num_tokens // settings.block_size
    d.slot, d.gives_row = r.slot if end > t.next_stored_block else NEVER, 0
    d.first_block, d.end_block = t.next_stored_block, end


@part
def keep_row(s: State, request: int, slot: int) -> None:
    """Take back the row of the block table that a request has just given up, if it has: its last offer needs it."""
    queues, kv = s.engine[0].queues, s.engine[0].kv_offload
    if s.requests[request].slot != NEVER or slot == NEVER or kv.num_departed == 0:
        return
    d = s.departed[kv.num_departed - 1]
    if d.slot == slot:
        queues.num_free_slots -= 1
        d.gives_row = 1


# -- what a step does -----------------------------------------------------------------------------------------


@phase
def begin_orders(s: State) -> None:
    """Hand over what the steps before have ordered; nothing is ordered yet in this one."""
    kv, now_us = s.engine[0].kv_offload, s.engine[0].clock.now_us
    kv.first_new = kv.last_new = kv.num_new_loads = kv.num_new_stores = kv.num_flushed = 0
    kv.flushed_us = now_us
    hand_over(s, STORE, written_us(s))


@part
def note_given(s: State, request: int, first: int, step: int) -> None:
    """Note that a step gives a request its blocks from ``first`` on; wait for the stores of those that had them."""
    r = s.requests[request]
    for i in range(first, r.num_blocks):
        f = s.fences[s.block_table[r.slot, i]]
        f.step = step
        chunk = f.first_chunk
        while chunk != 0:
            flush(s, s.chunks[chunk].job, step)
            chunk = s.chunks[chunk].next_of_block


@phase
def note_all_given(s: State, batch: int) -> None:
    """Note all blocks that a step gives to requests that compute or load in it."""
    step, job = s.batches[batch].step, s.engine[0].kv_offload.first_new
    while job != 0:
        note_given(s, s.kv_jobs[job].request, 0, step)
        job = s.kv_jobs[job].next_new
    for i in range(s.batches[batch].num_entries):
        request = s.entries[batch, i].request
        t = s.transfers[request]
        note_given(s, request, t.num_known_blocks, step)
        t.num_known_blocks = s.requests[request].num_blocks


@phase
def offer_computed(s: State, batch: int) -> None:
    """Offer the full blocks that the requests of a batch will have computed."""
    settings = s.engine[0].settings
    for k in range(s.batches[batch].num_entries):
        entry = s.entries[batch, k]
        request = entry.request
        r, t = s.requests[request], s.transfers[request]
        first = t.next_stored_block
        end = min(entry.computed + entry.num_tokens, r.num_prompt_tokens) // settings.block_size
        end = min(end, r.num_blocks)  # a prompt that no front end has cut has more than it can get
        if end <= first:
            continue
        for i in range(first, end):
            s.offered[i - first] = hash_of_block(s, request, i)
        job = offer(s, request, r.private_start, r.slot, first, end - first)
        if job == REFUSED:
            continue
        t.next_stored_block = end
        if job != 0:
            t.num_stores += 1
            put_on_link(s, STORE, job)


@part
def fence_departed(s: State, job: int, step: int) -> bool:
    """Fence the blocks of a store whose request is gone; return whether the step in hand has given one to somebody."""
    j = s.kv_jobs[job]
    j.is_departed = 1
    is_given = False
    chunk = j.first_chunk
    while chunk != 0:
        fence(s, chunk)
        is_given = is_given or s.fences[s.chunks[chunk].block].step == step
        chunk = s.chunks[chunk].next_of_job
    return is_given


@phase
def offer_left(s: State, batch: int) -> None:
    """Offer what requests that are gone have left; then all that they used was used last."""
    kv, queues, step = s.engine[0].kv_offload, s.engine[0].queues, s.batches[batch].step
    for k in range(kv.num_departed):
        d = s.departed[k]
        if d.slot == NEVER:
            continue
        num = d.end_block - d.first_block
        for i in range(num):
            s.offered[i] = abs(s.seen_keys[d.private_start + d.first_block + i]) - 1
        job = offer(s, d.request, d.private_start, d.slot, d.first_block, num)
        if job > 0:
            if fence_departed(s, job, step):
                hand_over_at_once(s, job, written_us(s))
                flush(s, job, step)
            else:
                put_on_link(s, STORE, job)
        if d.gives_row:
            s.free_slots[queues.num_free_slots] = d.slot
            queues.num_free_slots += 1
    for k in range(kv.num_departed):
        use_in_reverse(s, s.departed[k].private_start, s.departed[k].num_blocks)
    kv.num_departed = 0


@phase
def end_orders(s: State, batch: int) -> None:
    """Order the stores of a step that has been scheduled, and find out what it waits for and what it tells of."""
    current, totals, kv = s.engine[0].current_step, s.engine[0].totals, s.engine[0].kv_offload
    note_all_given(s, batch)
    for i in range(current.num_preempted):
        if s.transfers[s.preempted[i]].num_stores > 0:
            flush_request(s, s.preempted[i], s.batches[batch].step)
    offer_computed(s, batch)
    if kv.num_departed > 0:
        offer_left(s, batch)
    totals.num_kv_flushes += kv.num_flushed
    totals.kv_flush_wait_us += max(0, kv.flushed_us - written_us(s))
    if s.engine[0].settings.async_scheduling:
        tell(s, batch, kv.flushed_us)
    else:
        hand_over(s, LOAD, kv.flushed_us)


@phase
def keeps_still(s: State) -> bool:
    """Return whether equal decode steps may be taken at once: none orders, ends or waits for a transfer."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if has_jobs(s) or s.engine[0].kv_offload.num_departed > 0:
        return False
    kv = s.engine[0].kv_transfers
    if kv.num_deferred > 0 or (kv.num_ready > 0 and queues.num_running < settings.max_num_seqs):
        return False
    for i in range(queues.num_running):
        r = s.requests[s.running[i]]
        num_full = min(r.num_prompt_tokens // settings.block_size, r.num_blocks)
        if s.transfers[s.running[i]].next_stored_block < num_full:
            return False
    return True


@phase
def know_blocks_of_running(s: State) -> None:
    """Note that the steps of a jump gave the running requests what blocks they have."""
    for i in range(s.engine[0].queues.num_running):
        s.transfers[s.running[i]].num_known_blocks = s.requests[s.running[i]].num_blocks


@phase
def report_transfers(s: State, batch: int, now_us: int) -> None:
    """Take in which transfers have ended: by the end of the step, of an async engine by its launch."""
    kv = s.engine[0].kv_offload
    if not s.engine[0].settings.async_scheduling:
        tell(s, batch, now_us)
    kv.num_reported = report_loads(s, batch, now_us)
    while True:
        job = take_ended(s, STORE, batch)
        if job == 0:
            return
        kv.num_reported += 1
        j = s.kv_jobs[job]
        chunk = j.first_chunk
        while chunk != 0:
            after = s.chunks[chunk].next_of_job
            end_fence(s, chunk)
            if s.engine[0].settings.has_shared_store:
                free_piece(s, chunk)
            else:
                s.chunks[chunk].ref_cnt = 0
                kv.num_evictable += 1
            chunk = after
        if not j.is_departed:
            s.transfers[j.request].num_stores -= 1
        drop_job(s, job)
