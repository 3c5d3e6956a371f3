"""One scheduling decision, as vLLM's v1/core/sched/scheduler.py:schedule takes it: running requests, then waiting.

There is no prefill or decode phase: each request's computed tokens catch up with its known ones.
"""

from __future__ import annotations

from sim.compile import part, phase
from sim.engine.blocks import free_blocks
from sim.engine.kv_cache import (
    admit,
    allocate_slots,
    fits,
    get_computed_blocks,
    remember_private_blocks,
)
from sim.engine.optional.blis import forget_outputs, loses_tie, threshold_is_lifted
from sim.engine.optional.speculative import (
    drop_drafts,
    mark_padding,
    note_running,
    num_drafts_of,
    padding_of_admission,
    take_new_drafts,
)
from sim.engine.state import FCFS, IS_DECODE, NEVER, PREEMPTED, RUNNING, SAMPLES, State
from sim.engine.waiting import peek_request, prepend_request, remove_request


@part
def effective_long_prefill_threshold(s: State) -> int:
    """Return the cap on one request's tokens in this step, 0 for none: a lone request has nobody to starve."""
    e = s.counters[0]
    num_eligible = e.num_running + e.num_waiting
    threshold = e.long_prefill_token_threshold
    if threshold == 0 or threshold_is_lifted(s, num_eligible):
        return 0
    if e.long_prefill_token_threshold_adaptive:
        threshold = max(threshold, e.max_num_batched_tokens // num_eligible)
    return threshold


@part
def capped(num_tokens: int, threshold: int) -> int:
    """Return ``num_tokens``, cut to the long-prefill threshold if there is one."""
    return threshold if 0 < threshold < num_tokens else num_tokens


@part
def num_new_tokens_of_running(s: State, request: int, threshold: int) -> int:
    """Return how many tokens a running request wants and may have, 0 when it has to sit this step out."""
    e, r = s.counters[0], s.requests[request]
    in_flight = r.num_output_placeholders
    last_token_is_in_flight = r.num_computed_tokens + 2 - in_flight >= r.max_total_tokens
    if in_flight > 0 and last_token_is_in_flight:
        return 0
    wanted = r.num_tokens + num_drafts_of(s, request) + in_flight - r.num_computed_tokens
    wanted = capped(wanted, threshold)
    return min(wanted, e.token_budget, e.max_model_len - r.num_computed_tokens - 1)


@part
def count_work(s: State, batch: int, computed: int, num_tokens: int, kind: int, sign: int) -> None:
    """Add one share to a batch's work, or with ``sign`` -1 take it back."""
    b = s.batches[batch]
    if kind & IS_DECODE:
        b.num_decode_tokens += sign * num_tokens
        b.decode_context_tokens += sign * (computed + num_tokens)
    else:
        b.num_prefill_seqs += sign
        b.prefill_pairs += sign * (num_tokens * computed + num_tokens * (num_tokens + 1) // 2)
        b.prefill_context_tokens += sign * (computed + num_tokens)
        b.prefill_chunk_squares += sign * num_tokens * num_tokens


@part
def add_to_batch(s: State, batch: int, request: int, num_tokens: int) -> None:
    """Give a request its share of the step, take it from the budget, and count it as computed.

    vLLM counts at the end of its ``schedule``; nothing in between looks, and a share taken back is uncounted.
    """
    e, b, r = s.counters[0], s.batches[batch], s.requests[request]
    known = r.num_tokens + r.num_output_placeholders
    num_drafts = r.num_computed_tokens + num_tokens - known  # below 0: not even all known tokens
    kind = SAMPLES if num_drafts >= 0 else 0
    if num_tokens == 1 + num_drafts and known > r.num_prompt_tokens:
        kind += IS_DECODE
    entry = s.entries[batch, b.num_entries]
    entry.request, entry.num_tokens, entry.kind = request, num_tokens, kind
    entry.computed = r.num_computed_tokens
    b.num_entries += 1
    b.num_tokens += num_tokens
    count_work(s, batch, entry.computed, num_tokens, kind, 1)
    e.token_budget -= num_tokens
    r.num_computed_tokens += num_tokens
    r.num_in_flight_tokens += num_tokens
    if e.async_scheduling and kind & SAMPLES:
        r.num_output_placeholders += 1 + num_drafts
    take_new_drafts(s, request, kind)


@part
def take_out_of_batch(s: State, batch: int, request: int) -> None:
    """Take back the share of a request that was preempted after it had been scheduled in this very step."""
    b = s.batches[batch]
    found = False
    for i in range(b.num_entries):
        if found:
            s.entries[batch, i - 1] = s.entries[batch, i]
        elif s.entries[batch, i].request == request:
            found = True
            num_tokens = s.entries[batch, i].num_tokens
            b.num_tokens -= num_tokens
            count_work(s, batch, s.entries[batch, i].computed, num_tokens, s.entries[batch, i].kind, -1)
            s.counters[0].token_budget += num_tokens
            s.requests[request].num_in_flight_tokens -= num_tokens
    if found:
        b.num_entries -= 1


@part
def least_urgent_running(s: State) -> int:
    """Return where in ``running`` the victim stands: the last for fcfs, else the largest (urgency, arrival)."""
    e = s.counters[0]
    victim = e.num_running - 1
    if e.policy == FCFS:
        return victim
    victim = 0
    for i in range(1, e.num_running):
        x, y = s.requests[s.running[i]], s.requests[s.running[victim]]
        is_tie = x.urgency == y.urgency and x.arrival_us == y.arrival_us
        is_later = x.urgency == y.urgency and x.arrival_us > y.arrival_us
        if x.urgency > y.urgency or is_later or (is_tie and loses_tie(s, s.running[i], s.running[victim])):
            victim = i
    return victim


@part
def remove_running_at(s: State, index: int) -> int:
    """Take the request at ``index`` out of ``running`` and return it."""
    e = s.counters[0]
    request = s.running[index]
    for i in range(index, e.num_running - 1):
        s.running[i] = s.running[i + 1]
    e.num_running -= 1
    return request


@part
def preempt(s: State, request: int) -> None:
    """Free a request's blocks and put it back into the queue; its outputs stay, all of it is computed again."""
    e, r = s.counters[0], s.requests[request]
    remember_private_blocks(s, request)
    free_blocks(s, request)
    drop_drafts(s, request)
    forget_outputs(s, request)
    r.status = PREEMPTED
    r.num_computed_tokens = 0
    r.num_stale_output_tokens = r.num_in_flight_tokens
    r.num_output_placeholders = 0
    r.num_preemptions += 1
    e.num_preemptions += 1
    s.preempted[e.num_preempted] = request
    e.num_preempted += 1
    prepend_request(s, request)


@phase
def preempt_until_it_fits(s: State, batch: int, request: int, num_tokens: int) -> bool:
    """Preempt the least urgent until ``request`` has its slots; return False when it was the victim itself."""
    e = s.counters[0]
    while True:
        index = least_urgent_running(s)
        victim = remove_running_at(s, index)
        if e.policy != FCFS:
            if index < e.req_index:
                e.req_index -= 1
            take_out_of_batch(s, batch, victim)
        preempt(s, victim)
        if victim == request:
            return False
        if allocate_slots(s, request, num_tokens):
            return True


@part
def schedule_running(s: State, batch: int, threshold: int) -> None:
    """Give running requests their next tokens, in admission order, while the budget lasts."""
    e = s.counters[0]
    e.req_index = 0
    while e.req_index < e.num_running and e.token_budget > 0:
        request = s.running[e.req_index]
        num_tokens = num_new_tokens_of_running(s, request, threshold)
        if num_tokens <= 0:
            e.req_index += 1
            continue
        if not allocate_slots(s, request, num_tokens) and not preempt_until_it_fits(
            s, batch, request, num_tokens
        ):
            break
        note_running(s, request)
        add_to_batch(s, batch, request, num_tokens)
        e.req_index += 1


@part
def record_admission(s: State, request: int) -> None:
    """Note a request's first schedule and its hit."""
    e, r = s.counters[0], s.requests[request]
    hit = s.hits[e.num_hits]
    hit.request, hit.computed = request, r.num_computed_tokens
    e.num_hits += 1
    if r.scheduled_us == NEVER:
        r.scheduled_us = e.clock_us
        r.num_cached_tokens = r.num_computed_tokens
        e.num_cache_queries += r.num_prompt_tokens
        e.num_cache_hits += r.num_computed_tokens


@part
def schedule_waiting(s: State, batch: int, threshold: int) -> None:
    """Admit waiting requests from the head; the first that does not fit stops the rest."""
    e = s.counters[0]
    has_company = s.batches[batch].num_entries > 0
    while e.token_budget > 0 and e.num_waiting > 0 and e.num_running < e.max_num_seqs:
        request = peek_request(s)
        r = s.requests[request]
        num_evictable = get_computed_blocks(s, request)
        num_tokens = r.num_tokens - e.num_hit_blocks * e.block_size
        padding = padding_of_admission(s, num_tokens, has_company=has_company)
        num_tokens = capped(num_tokens + padding, threshold)
        if num_tokens > e.token_budget and (padding > 0 or not e.enable_chunked_prefill):
            break
        num_tokens = min(num_tokens, e.token_budget)
        if not fits(s, request, num_tokens, num_evictable=num_evictable):
            e.head_is_blocked = 1
            break
        remove_request(s, request)
        admit(s, request, num_tokens)
        record_admission(s, request)
        r.status = RUNNING
        s.running[e.num_running] = request
        e.num_running += 1
        add_to_batch(s, batch, request, num_tokens)
        mark_padding(s, batch, padding)


@part
def schedule(s: State, batch: int) -> None:
    """Fill a batch: who computes how many tokens in this step."""
    e, b = s.counters[0], s.batches[batch]
    b.step = e.num_steps
    e.num_steps += 1
    b.num_entries = b.num_tokens = b.num_decode_tokens = 0
    b.decode_context_tokens = b.prefill_pairs = b.num_prefill_seqs = 0
    b.prefill_context_tokens = b.prefill_chunk_squares = 0
    e.num_preempted = e.num_hits = e.head_is_blocked = e.step_reload_us = e.has_prefill = 0
    e.token_budget = e.max_num_batched_tokens
    threshold = effective_long_prefill_threshold(s)
    schedule_running(s, batch, threshold)
    if e.num_preempted == 0:
        schedule_waiting(s, batch, threshold)
    b.num_prefill_tokens = b.num_tokens - b.num_decode_tokens
    e.has_finished_ids = 0
