"""Many decode steps at once.

While every running request decodes and no other can be admitted, each step does the same: one token for each, the
same duration, a new block for those whose last one is full. How many such steps follow is known beforehand, so the
work on each request is done once, and only blocks are handed out step by step, in the order in which the steps
would have done it. Taking ``m`` steps at once and taking them singly give the same bits
(docs/explanation/engine.md has the argument, ``tests/sim`` the proof by property).
"""

from __future__ import annotations

from sim.engine.asked_features import (
    describe_running,
    hand_out_blocks_of_groups,
    has_new_grammar,
    is_stopped_by_company,
    keeps_state_for_jumps,
    keeps_still,
    know_blocks_of_running,
    least_step_us,
    next_expiry_us,
    next_grammar_us,
    reserves_sequences,
    running_hold_inputs,
    steps_until_one_ends,
    with_time_added_in_jump,
)
from sim.engine.deadlines import next_deadline_us
from sim.engine.dtypes import ALL_COMPILE, FCFS, GOT_FIRST_TOKEN, IS_DECODE, NEVER, PENDING, SAMPLES
from sim.engine.kv_cache.allocate_slots import append_new_block
from sim.engine.kv_cache.prefix_cache import has_hashes_past, hash_of_block, remember_hash
from sim.engine.log import count_steps, log_completion, log_pause, log_span, note_schedule
from sim.engine.state import State
from sim.engine.step_time.step_duration import (
    blackbox_us,
    first_seen_us,
    output_delay_us,
    take_step,
)
from sim.engine.update import finish
from sim.engine.waiting import earlier, hear_answers, next_queued_us, note_taken_in, peek_request
from sim.jit.compile import part, phase
from sim.latency.batch import sums_of_decodes
from sim.latency.latency_model import BLACKBOX, EXTENDED

ENDLESS = 1 << 60

NO_ONE = 0xFFFFFFFF
"""The end of a list in ``first_in_round`` and ``next_in_round``."""


@part
def nobody_can_be_admitted(s: State) -> bool:
    """Return whether the waiting queue stays closed for as long as nothing is freed."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if queues.num_running >= settings.max_num_seqs or queues.num_running >= settings.max_num_batched_tokens:
        return True
    if queues.num_waiting == 0 or not queues.head_is_blocked:
        return False
    if queues.head_is_blocked == ALL_COMPILE:
        return not has_new_grammar(s)
    # The head did not fit. Decoding only takes blocks, but it may also fill one that the head shares, or evict
    # some of the head's hits, which a gate that looks at the first chunk alone can mistake for room.
    return (
        settings.outputs_are_shared == 0
        and settings.scheduler_reserve_full_isl == 1
        and (settings.enable_chunked_prefill or head_fits_a_step(s))
    )


@part
def head_fits_a_step(s: State) -> bool:
    """Return whether a step has tokens for the whole head, even without its hits: else it asks for no block."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    room = settings.max_num_batched_tokens - queues.num_running
    return s.engine[0].current_step.num_hit_blocks == 0 or s.requests[peek_request(s)].num_tokens <= room


@part
def arrivals_matter(s: State) -> bool:
    """Return whether a request that joins the queue could be scheduled before anything is freed."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if queues.num_running >= settings.max_num_seqs or queues.num_running >= settings.max_num_batched_tokens:
        return False
    if settings.has_queue_apart and settings.has_traits:
        return True
    return queues.num_waiting == 0 or settings.policy != FCFS or queues.head_is_blocked == ALL_COMPILE


@part
def next_candidate_us(s: State) -> int:
    """Return when the next request is there that could be scheduled before anything is freed, NEVER when none."""
    if not arrivals_matter(s):
        return NEVER
    if s.engine[0].queues.head_is_blocked == ALL_COMPILE:
        return earlier(next_queued_us(s), next_grammar_us(s))
    return next_queued_us(s)


@part
def next_block_step(s: State, request: int) -> int:
    """Return in which of the coming decode steps a request needs its next block, 0 to block_size - 1."""
    settings, r = s.engine[0].settings, s.requests[request]
    return r.num_blocks * settings.block_size - r.num_tokens + 1 - settings.async_scheduling


@part
def steps_while_all_decode(s: State) -> int:
    """Return for how many steps every running request has a token to compute, 0 unless all of them only decode.

    On the way it lists, per coming step, what needs a block in it, in running order. A sync engine frees a request
    in the step that gives its last token; an async one must look again before it schedules a request whose last
    token is in flight.
    """
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    ahead = settings.async_scheduling
    fewest, context, must_enter = ENDLESS, 0, False
    for k in range(settings.block_size):
        s.first_in_round[k] = NO_ONE
    for i in range(queues.num_running):
        request = s.running[i]
        r = s.requests[request]
        is_decoding = r.num_computed_tokens == r.num_tokens - 1 + ahead and r.num_output_placeholders == ahead
        if not is_decoding or (r.num_tokens == r.num_prompt_tokens and not ahead):
            return 0
        fewest = min(fewest, r.max_total_tokens - r.num_tokens - ahead)
        if fewest <= 0:
            return 0
        context += r.num_computed_tokens + 1
        if settings.has_kv_cache_groups:
            continue
        k = next_block_step(s, request)
        s.next_in_round[i] = NO_ONE
        if s.first_in_round[k] == NO_ONE:
            s.first_in_round[k] = i
        else:
            s.next_in_round[s.last_in_round[k]] = i
        s.last_in_round[k] = i
        must_enter = must_enter or has_hashes_past(s, request, r.num_cached_blocks)
    current.decode_context_tokens, current.must_enter_blocks = context, must_enter
    return fewest


@part
def enter_filled_blocks(s: State, k: int) -> None:
    """Enter the block that the requests of round ``k`` have just filled into the prefix cache, where it has a key.

    An async engine enters it in the step that hands out its successor. The last block of a prompt may be in already.
    """
    num_ahead = s.engine[0].settings.async_scheduling
    i = s.first_in_round[k]
    while i != NO_ONE:
        request = s.running[i]
        r = s.requests[request]
        i = s.next_in_round[i]
        if r.num_cached_blocks == r.num_blocks - num_ahead:
            continue
        if has_hashes_past(s, request, r.num_cached_blocks):
            key = hash_of_block(s, request, r.num_cached_blocks)
            if key != NEVER:
                remember_hash(s, s.block_table[r.slot, r.num_cached_blocks], key)
        r.num_cached_blocks += 1


@part
def hand_out_blocks(s: State, num_steps: int) -> int:
    """Give each request its new blocks step by step; return how many steps found enough, at most ``num_steps``."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    k = 0
    # A step takes all of its blocks or none: where they lack, the step is taken singly, which may have to preempt.
    for step in range(num_steps):
        i = s.first_in_round[k]
        num_needed = 0
        while i != NO_ONE and num_needed <= queues.num_free_blocks:
            num_needed += 1
            i = s.next_in_round[i]
        if num_needed > queues.num_free_blocks:
            return step
        i = s.first_in_round[k]
        while i != NO_ONE:
            append_new_block(s, s.running[i])
            i = s.next_in_round[i]
        after = k + 1 if k + 1 < settings.block_size else 0
        if current.must_enter_blocks:
            enter_filled_blocks(s, k if settings.async_scheduling else after)
        k = after
    return num_steps


@part
def hand_out(s: State, num_steps: int) -> int:
    """Give each request its new blocks step by step; return how many steps found enough, at most ``num_steps``."""
    if s.engine[0].settings.has_kv_cache_groups:
        num_steps = hand_out_blocks_of_groups(s, num_steps)
    else:
        num_steps = hand_out_blocks(s, num_steps)
    if s.engine[0].settings.has_kv_offloading:
        know_blocks_of_running(s)
    return num_steps


@part
def advance_request(
    s: State, request: int, place: int, num_steps: int, first_end_us: int, last_end_us: int
) -> None:
    """Give a running request, the ``place``-th from 1, its tokens of a jump."""
    settings, totals, r = s.engine[0].settings, s.engine[0].totals, s.requests[request]
    if r.num_tokens == r.num_prompt_tokens:
        r.first_token_us = first_seen_us(s.latency, first_end_us, place)
        r.first_emission = totals.num_emissions
        if settings.log_completions:
            log_completion(s, request, r.first_token_us + output_delay_us(s.latency, 1), GOT_FIRST_TOKEN)
    elif r.last_emission != totals.num_emissions - 1:
        log_pause(s, request)
    r.num_tokens += num_steps
    r.num_computed_tokens += num_steps
    r.last_token_us = max(last_end_us, r.first_token_us)
    r.last_emission = totals.num_emissions + num_steps - 1
    if settings.enable_prefix_caching and r.num_tokens > (r.num_cached_blocks + 1) * settings.block_size:
        r.num_cached_blocks = (r.num_tokens - 1) // settings.block_size


@phase
def take_in_meanwhile(s: State, num_steps: int) -> None:
    """Note when a jump's steps, taken singly, would have found those in the queue that join it during the jump."""
    request, step = s.engine[0].queues.first_pending, 0
    while request != NEVER and s.requests[request].queued_us <= s.ends_us[num_steps - 1]:
        while s.ends_us[step] < s.requests[request].queued_us:
            step += 1
        if s.requests[request].status == PENDING:
            note_taken_in(s, request, s.ends_us[step])
        request = s.requests[request].next_waiting


@part
def advance_running(s: State, num_steps: int) -> None:
    """Give every running request its tokens of a jump, and free those that have all of them, in running order."""
    settings, queues, current, totals = (
        s.engine[0].settings,
        s.engine[0].queues,
        s.engine[0].current_step,
        s.engine[0].totals,
    )
    first_end_us, last_end_us = s.ends_us[0], s.ends_us[num_steps - 1]
    if settings.log_tokens:
        log_jump_tokens(s, num_steps)
    current.num_finished = queues.has_finished_ids = 0
    note_schedule(s)
    if queues.first_pending != NEVER and next_queued_us(s) <= last_end_us:
        if (
            settings.is_closed_loop
        ):  # else no request waits for a refusal: it goes when it is due, as in single steps
            hear_answers(s, last_end_us)
        take_in_meanwhile(s, num_steps)
    num_left = 0
    for i in range(queues.num_running):
        request = s.running[i]
        advance_request(s, request, i + 1, num_steps, first_end_us, last_end_us)
        r = s.requests[request]
        if r.num_tokens >= r.max_total_tokens:
            finish(s, request)
        else:
            s.running[num_left] = request
            num_left += 1
    queues.num_running = num_left
    if settings.log_spans:
        log_jump_spans(s, num_steps)
    totals.num_emissions += num_steps
    totals.num_steps += num_steps
    totals.num_jumps += 1


@part
def log_jump_tokens(s: State, num_steps: int) -> None:
    """Note each token of a jump, step by step, in running order."""
    queues, fill = s.engine[0].queues, s.engine[0].log_fill
    for step in range(num_steps):
        for i in range(queues.num_running):
            token, r = s.tokens[fill.num_logged_tokens], s.requests[s.running[i]]
            first_us = r.first_token_us
            if r.num_tokens == r.num_prompt_tokens:
                first_us = first_seen_us(s.latency, s.ends_us[0], i + 1)
            token.request, token.time_us = s.running[i], max(s.ends_us[step], first_us)
            fill.num_logged_tokens += 1


@part
def log_jump_spans(s: State, num_steps: int) -> None:
    """Note the ends of a jump's steps, those of equal distance as one span."""
    at = 0
    while at < num_steps:
        last = at + 1
        step_us = s.ends_us[last] - s.ends_us[at] if last < num_steps else 0
        while last < num_steps and s.ends_us[last] - s.ends_us[last - 1] == step_us:
            last += 1
        log_span(s, s.ends_us[at], step_us, last - at)
        at = last


@part
def count_failures(s: State, num_steps: int, is_closed: bool) -> None:
    """Count the allocations that a jump's steps, taken singly, would have tried in vain for the head of the queue."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    has_room = (
        queues.num_running < settings.max_num_seqs and queues.num_running < settings.max_num_batched_tokens
    )
    if queues.num_waiting > 0 and has_room and not is_closed and queues.head_is_blocked != ALL_COMPILE:
        s.engine[0].totals.num_kv_allocation_failures += num_steps


@phase
def count_jump_steps(s: State, num_steps: int, start_us: int) -> None:
    """Count the steps of a jump whose first starts at ``start_us``, those of equal duration at once."""
    settings, num_seqs = s.engine[0].settings, s.engine[0].queues.num_running
    step_us, num_equal = NEVER, 0
    for j in range(num_steps):
        end_us = s.ends_us[j + settings.async_scheduling]
        if end_us - start_us != step_us:
            if num_equal > 0:
                count_steps(s, num_seqs, 0, num_seqs, step_us, num_equal)
            step_us, num_equal = end_us - start_us, 0
        num_equal += 1
        start_us = end_us
    count_steps(s, num_seqs, 0, num_seqs, step_us, num_equal)


@part
def room_in_the_logs(s: State) -> int:
    """Return how many steps of the running requests the scratch and the token log have room for."""
    settings, queues, fill = s.engine[0].settings, s.engine[0].queues, s.engine[0].log_fill
    most = len(s.ends_us) - 1
    if settings.log_tokens:
        most = min(most, (len(s.tokens) - fill.num_logged_tokens) // queues.num_running)
    return most


@part
def plan_steps(s: State, most: int, limit_us: int, start_us: int) -> int:
    """Return how many of ``most`` decode steps are scheduled before ``limit_us``, the first in any case.

    Fills ``ends_us``: ``ends_us[j]`` is when step j's tokens are given and step j + 1 is scheduled. For an async
    engine that is the end of the batch before, so the ends begin with that of the batch in flight, and the end of
    the last batch scheduled stands behind them. ``duties`` keeps the latency model's slow state after each step.
    """
    settings, clock, queues, current = (
        s.engine[0].settings,
        s.engine[0].clock,
        s.engine[0].queues,
        s.engine[0].current_step,
    )
    totals = s.engine[0].totals
    ahead = settings.async_scheduling
    s.ends_us[0] = start_us
    least_us = least_step_us(s, queues.num_running)
    duration_us = least_us
    if settings.latency_kind == BLACKBOX:
        constant_us = with_time_added_in_jump(s, blackbox_us(s.latency, 0, queues.num_running))
        duration_us = max(constant_us, least_us)
    for j in range(most):
        if j > 0 and s.ends_us[j - 1] >= limit_us:
            return j
        if settings.latency_kind != BLACKBOX:
            context = current.decode_context_tokens + j * queues.num_running
            duration_us = take_step(
                s, sums_of_decodes(queues.num_running, context), start_us, totals.num_steps + j
            )
            duration_us = max(with_time_added_in_jump(s, duration_us), least_us)
            s.duties[j] = clock.compute_duty
        start_us += duration_us
        s.ends_us[j + ahead] = start_us
    return most


@part
def nothing_moves(s: State) -> bool:
    """Return whether no step of a jump would let go of an image, nor order, end or hear of a transfer of KV."""
    settings = s.engine[0].settings
    if running_hold_inputs(s):
        return False
    if not settings.has_loads:
        return True
    if settings.has_kv_offloading:
        return keeps_still(s)
    return keeps_state_for_jumps(s)


@part
def end_of_stillness_us(s: State, until_us: int) -> int:
    """Return when the next client gives up, or pinned KV is let go, at most ``until_us``; NEVER: that is now.

    In a closed loop a refusal may let a request go whose client gives up at once, so a jump ends there, too.
    """
    settings = s.engine[0].settings
    if settings.has_deadlines and settings.is_closed_loop and s.engine[0].queues.first_pending != NEVER:
        until_us = min(until_us, next_queued_us(s))
    deadline_us = next_deadline_us(s)
    if deadline_us != NEVER:
        until_us = min(until_us, deadline_us)
    if s.engine[0].settings.session_kv_ttl_us > 0:
        expiry_us = next_expiry_us(s)
        if expiry_us != NEVER and expiry_us <= s.engine[0].clock.now_us:
            return NEVER
        if expiry_us != NEVER:
            until_us = min(until_us, expiry_us)
    return until_us


@part
def start_jump(s: State, until_us: int, start_us: int) -> int:
    """Plan a jump whose first step the device starts at ``start_us`` and hand out its blocks; return its steps."""
    settings, clock, queues = s.engine[0].settings, s.engine[0].clock, s.engine[0].queues
    if not nothing_moves(s):
        return 0
    is_closed = is_stopped_by_company(s)
    if queues.num_running > settings.max_num_batched_tokens or not (
        queues.num_waiting == 0 or is_closed or nobody_can_be_admitted(s)
    ):
        return 0
    has_all_blocks = reserves_sequences(s)
    num_alike = steps_until_one_ends(s) if has_all_blocks else steps_while_all_decode(s)
    most = min(num_alike, room_in_the_logs(s))
    if most <= 0:
        return 0
    event_us = NEVER if is_closed else next_candidate_us(s)
    if event_us != NEVER:
        until_us = min(until_us, event_us)
    until_us = end_of_stillness_us(s, until_us)
    if until_us == NEVER:
        return 0
    if settings.has_traits and not describe_running(s, 0):
        return 0
    # The plan has as many steps as time allows, but blocks may last for fewer. The latency model's slow state must then
    # be that of the last step taken, not of the last one planned.
    duty, duty_time_us = clock.compute_duty, clock.duty_time_us
    num_steps = plan_steps(s, most, until_us, start_us)
    if not has_all_blocks:
        num_steps = hand_out(s, num_steps)
    if settings.latency_kind == EXTENDED:
        clock.compute_duty, clock.duty_time_us = duty, duty_time_us
        if num_steps > 0:
            clock.compute_duty, clock.duty_time_us = (
                s.duties[num_steps - 1],
                s.ends_us[num_steps - 1 + settings.async_scheduling],
            )
    if settings.has_traits and num_steps > 0:
        describe_running(s, num_steps)
    count_failures(s, num_steps, is_closed=is_closed)
    if settings.count_steps and num_steps > 0:
        count_jump_steps(s, num_steps, start_us)
    return num_steps


@phase
def jump_sync(s: State, until_us: int) -> bool:
    """Take as many steps as nothing can change in; return False when not even one."""
    clock = s.engine[0].clock
    num_steps = start_jump(s, until_us, clock.now_us)
    if num_steps == 0:
        return False
    clock.now_us = s.ends_us[num_steps - 1]
    advance_running(s, num_steps)
    return True


@part
def only_the_running_are_in_flight(s: State) -> bool:
    """Return whether exactly one batch is in flight and every entry of it is a running request's last sample."""
    clock, queues = s.engine[0].clock, s.engine[0].queues
    return clock.num_batches == 1 and s.batches[clock.oldest_batch].num_entries == queues.num_running


@phase
def jump_async(s: State, until_us: int) -> bool:
    """Schedule batches and take in the results of their predecessors until something changes; False when nothing can.

    At the door one batch is in flight; each step schedules the next behind it and takes in the older one's tokens.
    """
    clock, queues, totals = s.engine[0].clock, s.engine[0].queues, s.engine[0].totals
    if not only_the_running_are_in_flight(s):
        return False
    b = s.batches[clock.oldest_batch]
    num_steps = start_jump(s, until_us, b.exec_end_us)
    if num_steps == 0:
        return False
    b.step = totals.num_steps + num_steps - 1
    clock.now_us = s.ends_us[num_steps - 1]
    advance_running(s, num_steps)
    clock.device_free_us = b.exec_end_us = s.ends_us[num_steps]
    for i in range(queues.num_running):
        entry = s.entries[clock.oldest_batch, i]
        r = s.requests[s.running[i]]
        entry.request, entry.num_tokens, entry.kind = s.running[i], 1, SAMPLES + IS_DECODE
        entry.computed = r.num_computed_tokens - 1
        r.num_in_flight_tokens = 1
    return True
