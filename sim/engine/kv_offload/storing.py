"""Blocks that go to host memory: offered once, when a request has computed them, and stored where the tier lacks them.

They are the full blocks of prompts: what is generated goes there with the next prompt that repeats it. A step offers
what its requests will have computed, then what those left over that have gone since. It waits for stores whose blocks
a request takes that may write to them: those of requests that it preempts, and of requests that are gone (vllm 0.32.0
distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:build_connector_meta).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER, SAMPLES, WAITING_FOR_REMOTE_KVS
from sim.engine.kv_cache.groups.states import take_states_back
from sim.engine.kv_cache.groups.windows import let_skipped_go
from sim.engine.kv_offload.contents import (
    block_size_of,
    can_be_asked_for,
    end_of_offer,
    first_of_cut,
    first_to_offer,
    group_of_chunk,
    has_states,
    is_windowed,
    junction_of,
    key_of,
    known_block,
    num_blocks_of,
    place_of,
)
from sim.engine.kv_offload.fences import end_fence, fence
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
from sim.engine.kv_offload.recency import let_go, order_of
from sim.engine.kv_offload.shared_store import free_piece
from sim.engine.kv_offload.state_stores import offer_states
from sim.engine.kv_offload.tier import REFUSED, offer, use_in_reverse
from sim.engine.records.offload_records import LOAD, STORE
from sim.engine.state import State
from sim.jit.compile import part, phase

# -- requests that are gone ------------------------------------------------------------------------------------


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


@part
def first_left(s: State, gone: int, group: int, end: int) -> int:
    """Return from which block of a group on a request that is gone is looked at for its last offer."""
    d = s.departed[gone]
    first = first_to_offer(s, group, d.num_offered_tokens, d.num_found_tokens)
    return first_of_cut(s, group, first, end, d.num_prompt_tokens // block_size_of(s, group))


@phase
def name_left(s: State, gone: int, request: int) -> bool:
    """Note the contents of the blocks that a request leaves to be offered; return whether there are any.

    Its row may be another's when the next step offers them.
    """
    d, r, num_groups, is_any = (
        s.departed[gone],
        s.requests[request],
        s.engine[0].settings.num_kv_cache_groups,
        False,
    )
    for group in range(num_groups):
        end = end_of_offer(s, r.slot * num_groups + group, group, d.num_tokens_to_offer)
        for i in range(first_left(s, gone, group, end), end):
            is_any = True
            place = place_of(s, r.private_start, group, i)
            if s.seen_keys[place] == 0:
                s.seen_keys[place] = -1 - key_of(s, request, group, i)
    return is_any


@part
def let_windows_go(s: State, request: int) -> None:
    """Free what the windows of a request that is gone have passed, before all its other blocks.

    vllm 0.32.0 v1/core/sched/scheduler.py:_connector_finished.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    if settings.has_windows:
        for group in range(settings.num_kv_cache_groups):
            let_skipped_go(s, request, group, max(0, r.num_computed_tokens - r.num_in_flight_tokens))


@phase
def depart(s: State, request: int, num_computed_tokens: int) -> None:
    """Remember what a request leaves to the next step, before its blocks are freed.

    ``num_computed_tokens``: those of it whose KV is whole.
    """
    kv, r, t = s.engine[0].kv_offload, s.requests[request], s.transfers[request]
    if r.status == WAITING_FOR_REMOTE_KVS:
        note_loaded(s, request)
    if r.private_start == NEVER:
        return  # it was never admitted
    take_states_back(s, request)
    if t.num_stores > 0:
        fence_stores(s, request)
        t.num_stores = 0
    d = s.departed[kv.num_departed]
    kv.num_departed += 1
    d.request, d.private_start = request, r.private_start
    d.num_tokens, d.num_prompt_tokens = r.num_tokens, r.num_prompt_tokens
    d.num_offered_tokens, d.num_found_tokens = t.num_offered_tokens, t.num_found_tokens
    d.num_tokens_to_offer = min(num_computed_tokens, r.num_prompt_tokens)
    d.slot, d.gives_row = NEVER, 0
    if r.slot != NEVER:
        d.shared_prefix_boundary = junction_of(s, r.slot)
        let_windows_go(s, request)
    if r.slot != NEVER and name_left(s, kv.num_departed - 1, request):
        d.slot = r.slot


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
def know_blocks(s: State, request: int) -> None:
    """Tell the connector what blocks a request has."""
    num_groups = s.engine[0].settings.num_kv_cache_groups
    for group in range(num_groups):
        row = s.requests[request].slot * num_groups + group
        s.num_known_blocks[row] = s.num_blocks_before[row] = num_blocks_of(s, request, group)


@part
def note_given_block(s: State, block: int, step: int) -> None:
    """Note that a step gives a block to a request; wait for the stores of the requests that had it."""
    f = s.fences[block]
    f.step = step
    chunk = f.first_chunk
    while chunk != 0:
        flush(s, s.chunks[chunk].job, step)
        chunk = s.chunks[chunk].next_of_block


@phase
def note_given(s: State, request: int, step: int, is_load: bool) -> None:
    """Note the blocks that a step gives a request; one that computes lets the connector know them."""
    settings, slot = s.engine[0].settings, s.requests[request].slot
    for group in range(settings.num_kv_cache_groups):
        row = slot * settings.num_kv_cache_groups + group
        num_blocks = num_blocks_of(s, request, group)
        for i in range(0 if is_load else s.num_known_blocks[row], num_blocks):
            block = s.block_table[row, i]
            if settings.has_kv_cache_groups and not is_load:
                s.known_blocks[row, i] = block
            if block != 0:
                note_given_block(s, block, step)
        if not is_load:
            s.num_blocks_before[row] = s.num_known_blocks[row]
            s.num_known_blocks[row] = num_blocks


@phase
def forget_given_away(s: State, row: int, first: int, end: int, step: int) -> None:
    """Forget those blocks of a window, from ``first`` to ``end``, that the request let go and the step gave away."""
    for i in range(first, min(end, s.num_blocks_before[row])):
        block = s.known_blocks[row, i]
        if block != 0 and s.fences[block].step == step:
            s.known_blocks[row, i] = 0


@phase
def forget_all_given_away(s: State, step: int) -> None:
    """Forget the blocks that windows have let go and that a step has given to others; they are not offered."""
    num_groups = s.engine[0].settings.num_kv_cache_groups
    for group in range(num_groups):
        if not is_windowed(s, group) or has_states(s, group):
            continue
        for i in range(s.engine[0].queues.num_running):
            r, t = s.requests[s.running[i]], s.transfers[s.running[i]]
            first = first_to_offer(s, group, t.num_offered_tokens, t.num_found_tokens)
            end = r.num_prompt_tokens // block_size_of(s, group)
            forget_given_away(s, r.slot * num_groups + group, first, end, step)
        for i in range(s.engine[0].kv_offload.num_departed):
            d = s.departed[i]
            if d.slot != NEVER:
                first = first_to_offer(s, group, d.num_offered_tokens, d.num_found_tokens)
                end = d.num_prompt_tokens // block_size_of(s, group)
                forget_given_away(s, d.slot * num_groups + group, first, end, step)


@phase
def note_all_given(s: State, batch: int) -> None:
    """Note all blocks that a step gives to requests that compute or load in it."""
    step, job = s.batches[batch].step, s.engine[0].kv_offload.first_new
    while job != 0:
        note_given(s, s.kv_jobs[job].request, step, True)
        job = s.kv_jobs[job].next_new
    for i in range(s.batches[batch].num_entries):
        note_given(s, s.entries[batch, i].request, step, False)
    if s.engine[0].settings.has_windows:
        forget_all_given_away(s, step)
        for i in range(s.batches[batch].num_entries):
            know_blocks(s, s.entries[batch, i].request)


@part
def put_offered(s: State, num: int, key: int, place: int, block: int, order: int) -> int:
    """Put a block behind ``num`` others that are offered; return how many these are now."""
    o = s.offered[num]
    o.key, o.place, o.block, o.order = key, place, block, order
    return num + 1


@phase
def collect_computed(s: State, request: int, num_tokens: int) -> int:
    """Put those full blocks of a request's first ``num_tokens`` into ``offered`` that were not; return how many."""
    r, t, num, num_groups = (
        s.requests[request],
        s.transfers[request],
        0,
        s.engine[0].settings.num_kv_cache_groups,
    )
    junction = junction_of(s, r.slot)
    for group in range(num_groups):
        row, horizon = r.slot * num_groups + group, r.num_prompt_tokens // block_size_of(s, group)
        first = first_to_offer(s, group, t.num_offered_tokens, t.num_found_tokens)
        for i in range(first, end_of_offer(s, row, group, num_tokens)):
            block = known_block(s, row, i)
            if block != 0 and can_be_asked_for(s, group, i, horizon, r.num_prompt_tokens, junction):
                place = place_of(s, r.private_start, group, i)
                key, order = key_of(s, request, group, i), order_of(s, group, i)
                num = put_offered(s, num, key, place, block, order)
    return num


@phase
def fence_windows(s: State, job: int) -> None:
    """Fence the blocks of a store that windows may let go before their request ends."""
    chunk = s.kv_jobs[job].first_chunk
    while chunk != 0:
        if is_windowed(s, group_of_chunk(s, chunk)):
            fence(s, chunk)
        chunk = s.chunks[chunk].next_of_job


@phase
def offer_computed(s: State, batch: int) -> None:
    """Offer the full blocks that the requests of a batch will have computed."""
    for k in range(s.batches[batch].num_entries):
        entry = s.entries[batch, k]
        request = entry.request
        t = s.transfers[request]
        num_tokens = min(entry.computed + entry.num_tokens, s.requests[request].num_prompt_tokens)
        if num_tokens <= t.num_offered_tokens:
            continue
        num = collect_computed(s, request, num_tokens)
        job = offer(s, request, num) if num > 0 else 0
        if job == REFUSED:
            continue
        t.num_offered_tokens = num_tokens
        if job != 0:
            t.num_stores += 1
            if s.engine[0].settings.has_windows:
                fence_windows(s, job)
            put_on_link(s, STORE, job)


@phase
def collect_left(s: State, gone: int) -> int:
    """Put what a request that is gone has left into ``offered``; return how many blocks these are."""
    d, num, num_groups = s.departed[gone], 0, s.engine[0].settings.num_kv_cache_groups
    for group in range(num_groups):
        row, horizon = d.slot * num_groups + group, d.num_prompt_tokens // block_size_of(s, group)
        end = end_of_offer(s, row, group, d.num_tokens_to_offer)
        was_offered = first_to_offer(s, group, d.num_offered_tokens, d.num_found_tokens)
        for i in range(first_left(s, gone, group, end), end):
            block = known_block(s, row, i)
            prompt, junction = d.num_prompt_tokens, d.shared_prefix_boundary
            is_new = i >= was_offered or not can_be_asked_for(s, group, i, horizon, prompt, junction)
            if block != 0 and is_new and can_be_asked_for(s, group, i, end, prompt, junction):
                place = place_of(s, d.private_start, group, i)
                key, order = abs(s.seen_keys[place]) - 1, order_of(s, group, i)
                num = put_offered(s, num, key, place, block, order)
    return num


@part
def fence_departed(s: State, job: int, step: int) -> bool:
    """Fence the blocks of a store whose request is gone; return whether the step in hand has given one to a request.

    What windows have let go is not looked at: its store has been fenced since it was ordered, as vLLM does it.
    """
    j, settings = s.kv_jobs[job], s.engine[0].settings
    j.is_departed = 1
    is_given = False
    chunk = j.first_chunk
    while chunk != 0:
        fence(s, chunk)
        if not settings.has_windows or not is_windowed(s, group_of_chunk(s, chunk)):
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
        num = collect_left(s, k)
        job = offer(s, d.request, num) if num > 0 else 0
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
        use_in_reverse(s, s.departed[k].private_start, s.departed[k].num_tokens)
    kv.num_departed = 0


@part
def settle_prefills(s: State, batch: int) -> None:
    """Note which requests of a batch go on with their prompts; till here room was kept for drafts of all that did."""
    for i in range(s.batches[batch].num_entries):
        entry = s.entries[batch, i]
        s.transfers[entry.request].is_prefill_chunk = not entry.kind & SAMPLES


@phase
def end_orders(s: State, batch: int) -> None:
    """Order the stores of a step that has been scheduled, and find out what it waits for and what it tells of."""
    current, totals, kv = s.engine[0].current_step, s.engine[0].totals, s.engine[0].kv_offload
    note_all_given(s, batch)
    for i in range(current.num_preempted):
        if s.transfers[s.preempted[i]].num_stores > 0:
            flush_request(s, s.preempted[i], s.batches[batch].step)
    if kv.num_handed > 0:
        offer_states(s)
    offer_computed(s, batch)
    if kv.num_departed > 0:
        offer_left(s, batch)
    if s.engine[0].settings.num_speculative_tokens > 0:
        settle_prefills(s, batch)
    totals.num_kv_flushes += kv.num_flushed
    totals.kv_flush_wait_us += max(0, kv.flushed_us - written_us(s))
    if s.engine[0].settings.async_scheduling:
        tell(s, batch, kv.flushed_us)
    else:
        hand_over(s, LOAD, kv.flushed_us)


@part
def has_more_to_offer(s: State, request: int) -> bool:
    """Return whether a running request has full blocks of its prompt that were not offered."""
    r, t, num_groups = s.requests[request], s.transfers[request], s.engine[0].settings.num_kv_cache_groups
    for group in range(num_groups):
        end = end_of_offer(s, r.slot * num_groups + group, group, r.num_prompt_tokens)
        if first_to_offer(s, group, t.num_offered_tokens, t.num_found_tokens) < end:
            return True
    return False


@phase
def keeps_still(s: State) -> bool:
    """Return whether equal decode steps may be taken at once: none orders, ends or waits for a transfer."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if has_jobs(s) or s.engine[0].kv_offload.num_departed > 0:
        return False
    kv = s.engine[0].kv_transfers
    if kv.num_deferred > 0 or (kv.num_ready > 0 and queues.num_running < settings.max_num_seqs):
        return False
    for i in range(queues.num_running):  # noqa: SIM110 - compiled code knows no all()
        if has_more_to_offer(s, s.running[i]):
            return False
    return True


@phase
def know_blocks_of_running(s: State) -> None:
    """Note that the steps of a jump gave the running requests what blocks they have."""
    for i in range(s.engine[0].queues.num_running):
        know_blocks(s, s.running[i])


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
                let_go(s, chunk)
            chunk = after
        if not j.is_departed:
            s.transfers[j.request].num_stores -= 1
        drop_job(s, job)
