"""What a finished batch changes (vLLM's scheduler.py:update_from_output)."""

from __future__ import annotations

from sim.engine.asked_features import (
    depart,
    free_once_written,
    free_written,
    gives_one_token,
    keep_row,
    keeps_blocks,
    let_go_of_inputs,
    let_go_of_read_inputs,
    num_blocks_to_pin,
    pin,
    take_in_transfers,
    verify_tokens,
)
from sim.engine.dtypes import ABORTED, COMPLETED, FINISHED, GOT_FIRST_TOKEN, NEVER, RUNNING, SAMPLES
from sim.engine.kv_cache.kv_cache_manager import cache_blocks
from sim.engine.log import log_completion, log_pause, log_span, log_token
from sim.engine.preemption import end_preemption
from sim.engine.state import State
from sim.engine.step_time.step_duration import first_seen_us, output_delay_us
from sim.engine.waiting import answer, hear_answers, remove_request
from sim.jit.compile import part, phase


@part
def give_token(s: State, request: int, now_us: int, place: int) -> None:
    """Append one output token to a request, the ``place``-th of those that a step gives at ``now_us``."""
    totals, r = s.engine[0].totals, s.requests[request]
    if r.num_tokens == r.num_prompt_tokens:
        r.first_token_us = first_seen_us(s.latency, now_us, place)
        r.first_emission = totals.num_emissions
        if s.engine[0].settings.log_completions:
            log_completion(s, request, r.first_token_us + output_delay_us(s.latency, 1), GOT_FIRST_TOKEN)
    elif r.last_emission != totals.num_emissions - 1:
        log_pause(s, request)
    r.num_tokens += 1
    r.last_token_us = max(now_us, r.first_token_us)
    r.last_emission = totals.num_emissions
    log_token(s, request, r.last_token_us)


@part
def finish(s: State, request: int) -> None:
    """Free a request that has all its tokens; one that was preempted with its last token in flight leaves the queue."""
    settings, queues, current, totals = (
        s.engine[0].settings,
        s.engine[0].queues,
        s.engine[0].current_step,
        s.engine[0].totals,
    )
    r = s.requests[request]
    if settings.is_closed_loop:
        hear_answers(s, s.engine[0].clock.now_us)
    slot = r.slot  # what is freed below forgets it, and ``keep_row`` needs it
    num_to_pin = num_blocks_to_pin(s, request) if settings.session_kv_ttl_us > 0 else NEVER
    let_go_of_inputs(s, request)
    if settings.has_kv_offloading:
        depart(s, request, max(r.num_prompt_tokens, r.num_tokens - 1))
    if not keeps_blocks(s, request):
        free_once_written(s, request)
    if num_to_pin != NEVER:
        pin(s, request, num_to_pin)
    if settings.has_kv_offloading:
        keep_row(s, request, slot)
    if r.status != RUNNING:
        end_preemption(s, request)
        remove_request(s, request)
    r.status = FINISHED
    s.finished[current.num_finished] = request
    current.num_finished += 1
    totals.num_completed += 1
    queues.has_finished_ids = 1
    if settings.is_closed_loop or settings.log_completions:
        seen_us = r.last_token_us + output_delay_us(s.latency, r.num_tokens - r.num_prompt_tokens)
        log_completion(s, request, seen_us, COMPLETED)
        answer(s, request, seen_us)


@part
def drop_finished_from_running(s: State) -> None:
    """Close the gaps in ``running``; the order stays."""
    queues = s.engine[0].queues
    num_left = 0
    for i in range(queues.num_running):
        if s.requests[s.running[i]].status == RUNNING:
            s.running[num_left] = s.running[i]
            num_left += 1
    queues.num_running = num_left


@phase
def cache_verified(s: State, request: int) -> None:
    """Enter what a request's drafts that hold have filled into the prefix cache."""
    cache_blocks(s, request, s.requests[request].num_tokens - 1)


@part
def take_in_token(s: State, request: int) -> None:
    """Count a token that was in flight as known, and enter what it fills into the prefix cache.

    An engine that awaits results enters it then only with drafts, and not with every version.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    if settings.async_scheduling or gives_one_token(s):
        r.num_output_placeholders -= 1
        if r.status == RUNNING:
            cache_blocks(s, request, r.num_computed_tokens - r.num_output_placeholders)
    else:
        cache_verified(s, request)


@phase
def give_accepted(s: State, request: int, num_accepted: int, now_us: int, place: int, is_stale: bool) -> None:
    """Give a request its drafts that hold, as far as it wants them; its last token of the step comes after them."""
    settings, r = s.engine[0].settings, s.requests[request]
    num_wanted = min(num_accepted, r.max_total_tokens - r.num_tokens - 1)
    for _ in range(num_wanted):
        give_token(s, request, now_us, place)
        if settings.async_scheduling and not is_stale:
            r.num_output_placeholders -= 1
    if settings.takes_surplus_back and not is_stale:
        r.num_computed_tokens -= num_accepted - num_wanted
        r.num_output_placeholders -= (num_accepted - num_wanted) * settings.async_scheduling


@phase
def update_from_output(s: State, batch: int, now_us: int) -> None:
    """Give each request that sampled its token, and free those that have all of them, in schedule order."""
    settings, current, totals, b = (
        s.engine[0].settings,
        s.engine[0].current_step,
        s.engine[0].totals,
        s.batches[batch],
    )
    current.num_finished = 0
    num_tokens_given = 0
    free_written(s, batch)
    for i in range(b.num_entries):
        entry = s.entries[batch, i]
        r = s.requests[entry.request]
        r.num_in_flight_tokens -= entry.num_tokens
        is_stale = r.num_stale_output_tokens > 0
        if is_stale:
            r.num_stale_output_tokens -= entry.num_tokens
            if settings.is_kv_producer:  # the blocks that it would hand on are gone
                continue
        # An async engine had scheduled it once more before it heard of its end: that step's token is nobody's.
        if r.status == FINISHED or r.status == ABORTED:  # noqa: PLR1714 - numba compares scalars
            continue
        num_accepted = verify_tokens(s, batch, i, is_stale)
        let_go_of_read_inputs(s, entry.request)
        if not entry.kind & SAMPLES:
            continue
        if num_accepted > 0:
            give_accepted(s, entry.request, num_accepted, now_us, num_tokens_given + 1, is_stale)
        give_token(s, entry.request, now_us, num_tokens_given + 1)
        num_tokens_given += 1
        if settings.takes_in_tokens and not is_stale:
            take_in_token(s, entry.request)
        if r.num_tokens >= r.max_total_tokens:
            finish(s, entry.request)
    if num_tokens_given > 0:
        log_span(s, now_us, 0, 1)
        totals.num_emissions += 1
    if current.num_finished > 0:
        drop_finished_from_running(s)
    if settings.has_loads:
        take_in_transfers(s, batch, now_us)
