"""One scheduling decision, as vLLM's v1/core/sched/scheduler.py:schedule takes it: running requests, then waiting.

There is no prefill or decode phase: each request's computed tokens catch up with its known ones.
"""

from __future__ import annotations

from sim.engine.asked_features import (
    HAS_NO_ROOM,
    HAS_NONE,
    IS_ASIDE,
    ask_elsewhere,
    begin_admissions,
    begin_features,
    cut_share,
    end_features,
    finds_slots,
    fits_behind,
    forget_known_blocks,
    has_to_sit_out,
    head_fits,
    is_decode,
    is_stopped_by_company,
    join_held,
    let_go_of_inputs,
    local_tokens,
    mark_padding,
    may_need_others_inputs,
    note_admission,
    note_first_admission,
    note_running,
    note_share,
    num_blocks_reserved,
    num_tokens_to_verify,
    padding_of_admission,
    propose_tokens,
    skips_for_grammar,
    skips_head,
    take_held,
    unless_cut,
)
from sim.engine.dtypes import FCFS, IS_DECODE, NEVER, RUNNING, SAMPLES, WAITING_FOR_REMOTE_KVS
from sim.engine.kv_cache.allocate_slots import reserve
from sim.engine.kv_cache.kv_cache_manager import admit, allocate_slots, get_computed_blocks
from sim.engine.log import note_schedule
from sim.engine.preemption import end_preemption, preempt_until_it_fits
from sim.engine.records.batching_records import SARATHI, VLLM, VLLM_V0
from sim.engine.state import State
from sim.engine.step_time.step_sums import add_share, clear_sums
from sim.engine.waiting import peek_request, put_skipped_back, remove_request, skip_head
from sim.jit.compile import part, phase


@part
def effective_long_prefill_threshold(s: State) -> int:
    """Return the cap on one request's tokens in this step, 0 for none: a lone request starves no other."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    num_eligible = queues.num_running + queues.num_waiting + s.engine[0].kv_transfers.num_holding
    threshold = settings.long_prefill_token_threshold
    if threshold == 0 or (num_eligible <= 1 and settings.lifts_threshold_for_lone_request):
        return 0
    if settings.long_prefill_token_threshold_adaptive:
        threshold = max(threshold, settings.max_num_batched_tokens // num_eligible)
    return threshold


@part
def capped(num_tokens: int, threshold: int) -> int:
    """Return ``num_tokens``, cut to the long-prefill threshold if there is one."""
    return threshold if 0 < threshold < num_tokens else num_tokens


@part
def length_limit(s: State, request: int) -> int:
    """Return where the scheduler knows that a request ends: at its max_tokens, not at an EOS that it has not seen."""
    return s.length_limit[request] if request < len(s.length_limit) else s.requests[request].max_total_tokens


@part
def num_new_tokens_of_running(s: State, request: int, threshold: int) -> int:
    """Return how many tokens a running request wants and may have, 0 when it has to sit this step out."""
    settings, current, r = s.engine[0].settings, s.engine[0].current_step, s.requests[request]
    in_flight = r.num_output_placeholders
    if settings.may_sit_out and has_to_sit_out(s, request):
        return 0
    # A batch in flight may bring the last token: then there is nothing to schedule. The scheduler knows this of
    # max_tokens alone; of an EOS it hears one step too late, as vLLM's does.
    num_tokens_then = r.num_computed_tokens + 2 - in_flight  # with what is in flight, and one more
    if (
        in_flight > 0
        and num_tokens_then >= r.max_total_tokens
        and num_tokens_then >= length_limit(s, request)
    ):
        return 0
    wanted = r.num_tokens + num_tokens_to_verify(s, request) + in_flight - r.num_computed_tokens
    wanted = capped(wanted, threshold)
    wanted = min(wanted, current.token_budget, settings.max_model_len - r.num_computed_tokens - 1)
    if not settings.cuts_shares:
        return wanted
    junction = s.group_rows[r.slot, 0].shared_prefix_boundary if settings.aligns_states else 0
    return cut_share(s, request, r.num_computed_tokens, wanted, junction)


@part
def add_to_batch(s: State, batch: int, request: int, num_tokens: int) -> None:
    """Give a request its share of the step, take it from the budget, and count it as computed.

    vLLM counts at the end of its ``schedule``; in between only ``loaded_blocks.num_computed_before`` looks, and a share
    taken back is uncounted.
    """
    settings, current, b, r = (
        s.engine[0].settings,
        s.engine[0].current_step,
        s.batches[batch],
        s.requests[request],
    )
    known = r.num_tokens + r.num_output_placeholders
    num_beyond = r.num_computed_tokens + num_tokens - known  # below 0: not even all known tokens
    kind = SAMPLES if num_beyond >= 0 else 0
    if num_tokens == 1 + num_beyond and known > r.num_prompt_tokens:
        kind += IS_DECODE
    entry = s.entries[batch, b.num_entries]
    entry.request, entry.num_tokens, entry.kind = request, num_tokens, kind
    entry.computed = r.num_computed_tokens
    b.num_entries += 1
    add_share(s, batch, b.num_entries - 1, 1)
    current.token_budget -= num_tokens
    r.num_computed_tokens += num_tokens
    r.num_in_flight_tokens += num_tokens
    if settings.async_scheduling and kind & SAMPLES:
        r.num_output_placeholders += 1 + num_beyond
    propose_tokens(s, request, kind)
    if settings.notes_shares:
        note_share(s, request, num_tokens, kind)


@phase
def schedule_running(s: State, batch: int, threshold: int) -> None:
    """Give running requests their next tokens, in admission order, while the budget lasts."""
    queues, current = s.engine[0].queues, s.engine[0].current_step
    current.req_index = 0
    while current.req_index < queues.num_running and current.token_budget > 0:
        request = s.running[current.req_index]
        num_tokens = num_new_tokens_of_running(s, request, threshold)
        if (
            num_tokens <= 0
        ):  # those behind it may still have tokens to compute: it is passed over, not waited for
            current.req_index += 1
            continue
        if not finds_slots(s, request, num_tokens) and not preempt_until_it_fits(
            s, batch, request, num_tokens
        ):
            was_victim = s.requests[request].status != RUNNING
            rules = s.engine[0].settings
            if was_victim and rules.continues_after_self_preemption and rules.policy != FCFS:
                continue  # the next running request stands at the same place now
            break
        note_running(s, request)
        add_to_batch(s, batch, request, num_tokens)
        current.req_index += 1


@part
def record_admission(s: State, request: int) -> None:
    """Note a request's first schedule and its hit."""
    clock, current, totals, r = (
        s.engine[0].clock,
        s.engine[0].current_step,
        s.engine[0].totals,
        s.requests[request],
    )
    hit = s.hits[current.num_hits]
    hit.request, hit.computed = request, r.num_computed_tokens
    current.num_hits += 1
    end_preemption(s, request)
    if r.scheduled_us == NEVER:
        r.scheduled_us = clock.now_us
        note_first_admission(s, request)
        r.num_cached_tokens = local_tokens(s, request)
        totals.num_cache_queries += r.num_prompt_tokens
        totals.num_cache_hits += r.num_cached_tokens


@part
def start_running(s: State, batch: int, request: int, num_tokens: int) -> None:
    """Put an admitted request into ``running`` and into the batch."""
    queues = s.engine[0].queues
    record_admission(s, request)
    if s.engine[0].settings.has_kv_offloading:
        forget_known_blocks(s, request)
    s.requests[request].status = RUNNING
    s.running[queues.num_running] = request
    queues.num_running += 1
    add_to_batch(s, batch, request, num_tokens)


@part
def first_chunk(s: State, request: int, num_found: int, padding: int, threshold: int, junction: int) -> int:
    """Return how many tokens a waiting request would compute behind what was found of it, NEVER when it has to wait.

    0: it is passed over.
    """
    settings, current = s.engine[0].settings, s.engine[0].current_step
    num_missing = s.requests[request].num_tokens - num_found
    if settings.balances_prefills and current.defers_prefills and num_missing > 1:
        return NEVER
    if padding > 0 and num_missing + padding > current.token_budget:
        return NEVER
    num_tokens = capped(num_missing + padding, threshold)
    if num_tokens > current.token_budget and not settings.enable_chunked_prefill:
        return NEVER
    num_tokens = min(num_tokens, current.token_budget)
    if settings.cuts_shares:
        num_tokens = cut_share(s, request, num_found, num_tokens, junction)
        if num_tokens == 0 and not settings.may_pass_over_empty:
            return NEVER
    return num_tokens


@phase
def schedule_held(s: State, batch: int, threshold: int) -> bool:
    """Admit requests whose KV has come; return False when one of them does not fit, which stops all behind it."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    kv = s.engine[0].kv_transfers
    i = 0
    while i < kv.num_holding and current.token_budget > 0 and queues.num_running < settings.max_num_seqs:
        request = s.holding[i]
        r = s.requests[request]
        if r.status == WAITING_FOR_REMOTE_KVS:
            if not s.transfers[request].is_received:
                i += 1
                continue
            join_held(s, request)
        padding = padding_of_admission(s, request, r.num_computed_tokens)
        junction = s.group_rows[r.slot, 0].shared_prefix_boundary if settings.aligns_states else 0
        num_tokens = first_chunk(s, request, r.num_computed_tokens, padding, threshold, junction)
        if num_tokens == NEVER:
            return False
        if settings.may_pass_over_empty and num_tokens == 0:
            i += 1
            continue
        num_tokens, padding = unless_cut(s, num_tokens, padding)
        if not fits_behind(s, request, num_tokens):
            let_go_of_inputs(s, request)
            return False
        take_held(s, request, num_tokens)
        start_running(s, batch, request, num_tokens)
        mark_padding(s, batch, padding)
    return True


@phase
def schedule_waiting(s: State, batch: int, threshold: int) -> None:
    """Admit waiting requests from the head; the first that does not fit stops the rest."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    begin_admissions(s, batch)
    passes_over = (
        settings.limits_adapters
        or settings.pipeline_parallel_size > 1
        or settings.has_kv_offloading
        or settings.may_pass_over_empty
    )
    may_skip = passes_over or settings.waits_for_grammars
    while current.token_budget > 0 and queues.num_waiting > 0 and queues.num_running < settings.max_num_seqs:
        request = peek_request(s)
        if may_skip and skips_head(s, batch, request):
            continue
        # This only looks; ``admit`` touches the blocks. A request that does not fit must leave the order of eviction
        # as it was.
        num_evictable = get_computed_blocks(s, request)
        answer = ask_elsewhere(s, request, num_evictable) if settings.has_loads else HAS_NONE
        if answer == IS_ASIDE:
            continue
        if answer == HAS_NO_ROOM:
            let_go_of_inputs(s, request)
            break
        num_found = current.num_hit_blocks * settings.hash_block_size
        padding = padding_of_admission(s, request, num_found)
        num_tokens = first_chunk(s, request, num_found, padding, threshold, current.shared_prefix_boundary)
        if num_tokens == NEVER:
            break
        if settings.may_pass_over_empty and num_tokens == 0:
            skip_head(s, request)
            continue
        num_tokens, padding = unless_cut(s, num_tokens, padding)
        if not head_fits(s, request, num_tokens, num_evictable):
            # else another may be the first to be asked, the same may fit in the next step, or move images
            may_fit = current.waits_for_state or may_need_others_inputs(s, request)
            queues.head_is_blocked = not (passes_over or may_fit)
            break
        remove_request(s, request)
        admit(s, request, num_tokens)
        if settings.pipeline_parallel_size > 1:
            s.next_decode_step[request] = 0
        start_running(s, batch, request, num_tokens)
        mark_padding(s, batch, padding)
        note_admission(s, batch, request)
    if may_skip:
        put_skipped_back(s)


# -- batching of others (``sim/engine/optional/batching.py`` has the rules) ------------------------------------


@phase
def schedule_decodes(s: State, batch: int) -> None:
    """Give each running request that decodes its token, in admission order; no token budget stops them."""
    queues, current = s.engine[0].queues, s.engine[0].current_step
    current.req_index = 0
    while current.req_index < queues.num_running:
        request = s.running[current.req_index]
        if is_decode(s, request):
            if not allocate_slots(s, request, 1) and not preempt_until_it_fits(s, batch, request, 1):
                return
            add_to_batch(s, batch, request, 1)
        current.req_index += 1


@phase
def schedule_chunks(s: State, batch: int) -> None:
    """Share what decodes have left of the budget among running requests that still prefill, in admission order."""
    queues, current = s.engine[0].queues, s.engine[0].current_step
    for i in range(queues.num_running):
        request = s.running[i]
        r = s.requests[request]
        num_tokens = min(r.num_tokens - r.num_computed_tokens, current.token_budget)
        if num_tokens > 0:
            add_to_batch(s, batch, request, num_tokens)


@phase
def schedule_reserving(s: State, batch: int) -> None:
    """Admit waiting requests from the head, each with all the blocks that it reserves."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    while current.token_budget > 0 and queues.num_waiting > 0 and queues.num_running < settings.max_num_seqs:
        request = peek_request(s)
        if settings.waits_for_grammars and skips_for_grammar(s, request):
            continue
        num_blocks = num_blocks_reserved(s, request)
        kept_free = settings.watermark_blocks if queues.num_running > 0 else 0
        if num_blocks + kept_free > queues.num_free_blocks:
            s.engine[0].totals.num_kv_allocation_failures += 1
            queues.head_is_blocked = 1
            break
        num_tokens = min(s.requests[request].num_tokens, current.token_budget)
        current.num_hit_blocks = 0
        remove_request(s, request)
        admit(s, request, num_tokens)
        reserve(s, request, num_blocks)
        start_running(s, batch, request, num_tokens)
    if settings.waits_for_grammars:
        put_skipped_back(s)


@phase
def schedule_otherwise(s: State, batch: int) -> None:
    """Fill a batch as vLLM's first engine, orca, sarathi or static would."""
    settings, current = s.engine[0].settings, s.engine[0].current_step
    if settings.batching == VLLM_V0:
        schedule_prompts_first(s, batch)
        return
    is_stopped = is_stopped_by_company(s)
    schedule_decodes(s, batch)
    if settings.batching == SARATHI:
        schedule_chunks(s, batch)
    if current.num_preempted == 0 and not is_stopped:
        schedule_reserving(s, batch)


@phase
def schedule_prompts_first(s: State, batch: int) -> None:
    """Fill a batch as vLLM's first engine would: with prompts, or else with decodes."""
    if not s.engine[0].settings.has_loads or schedule_held(s, batch, 0):
        schedule_waiting(s, batch, 0)
    if s.batches[batch].num_entries == 0:
        schedule_running(s, batch, 0)


@phase
def schedule(s: State, batch: int) -> None:
    """Fill a batch: which request computes how many tokens in this step."""
    settings, queues, current, totals = (
        s.engine[0].settings,
        s.engine[0].queues,
        s.engine[0].current_step,
        s.engine[0].totals,
    )
    b = s.batches[batch]
    b.step = totals.num_steps
    totals.num_steps += 1
    b.num_entries = 0
    clear_sums(s, batch)
    current.num_preempted = current.num_hits = current.step_reload_us = current.has_prefill = 0
    current.num_skipped = current.waits_for_state = 0
    queues.head_is_blocked, queues.next_grammar_us = 0, NEVER
    current.num_block_copies = 0
    begin_features(s, batch)
    current.token_budget = settings.max_num_batched_tokens
    if settings.batching != VLLM:
        schedule_otherwise(s, batch)
    else:
        threshold = effective_long_prefill_threshold(s)
        schedule_running(s, batch, threshold)
        current.has_company = b.num_entries > 0
        # Whoever was preempted stands at the head of the queue: to admit others now would give them the blocks that it
        # was preempted for.
        if current.num_preempted == 0 and (not settings.has_loads or schedule_held(s, batch, threshold)):
            schedule_waiting(s, batch, threshold)
    end_features(s, batch)
    queues.has_finished_ids = 0
    note_schedule(s)
