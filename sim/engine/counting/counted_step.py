"""One step while blocks are counted: what ``schedule`` and ``update_from_output`` do.

Each request is touched only when it is admitted, when its prompt is done, and at its last token.
"""

from __future__ import annotations

from sim.engine.asked_features import cut_share
from sim.engine.counting.blocks_in_use import has_first_blocks
from sim.engine.counting.ends import (
    RANKS,
    next_end,
    num_behind,
    pop_end,
    push_end,
    put_begun,
    put_first,
    put_last,
    take_first,
    take_last,
)
from sim.engine.dtypes import COMPLETED, FINISHED, NEVER, RUNNING
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.log import count_steps, log_completion, log_span
from sim.engine.optional.added_time import with_host_time
from sim.engine.run import nothing_is_in_flight
from sim.engine.schedule import capped, effective_long_prefill_threshold, length_limit
from sim.engine.state import State
from sim.engine.step_time.step_duration import ALPHA3, first_seen_us, output_delay_us, take_step
from sim.engine.step_time.step_sums import clear_sums, sums_of
from sim.engine.waiting import answer, hear_answers, peek_request, remove_request
from sim.jit.compile import part, phase
from sim.latency.batch import sums_of_share


@part
def num_blocks_needed(s: State, request: int) -> int:
    """Return how many blocks a request has in the end, one for a token behind an EOS in flight included.

    Of several groups: as if none let go of any while its request runs.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    num_tokens, num_blocks = r.max_total_tokens + settings.async_scheduling, 0
    if len(s.kv_cache_groups) == 0:
        return cdiv(num_tokens, settings.block_size)
    for group in range(len(s.kv_cache_groups)):
        num_blocks += cdiv(num_tokens, s.kv_cache_groups[group].block_size)
    return num_blocks


@part
def fits_counted(s: State, request: int, num_tokens: int) -> bool:
    """Return whether the head of the queue finds its blocks: surely where those of all that run are there to the end.

    With several groups it is not known otherwise; then the run is worth nothing.
    """
    settings, queues, c = s.engine[0].settings, s.engine[0].queues, s.engine[0].counting
    kept_free = settings.watermark_blocks if queues.num_running > 0 else 0
    if c.num_blocks + num_blocks_needed(s, request) + kept_free <= len(s.blocks) - 1:
        return True
    if len(s.kv_cache_groups) > 0:
        c.has_lacked = 1
        return True
    return has_first_blocks(s, request, num_tokens, kept_free)


@phase
def note_surplus(s: State, request: int) -> None:
    """Have the next step compute a token behind a request's last one, if the scheduler does not know that it is."""
    c, r = s.engine[0].counting, s.requests[request]
    if length_limit(s, request) > r.max_total_tokens:
        c.num_surplus += 1
        c.surplus_context_tokens += r.max_total_tokens
        c.surplus_request = request


@part
def put_lasts(s: State, batch: int) -> None:
    """Sort out whose last token is computed in the step that is the batch's, the last one counted."""
    c, b = s.engine[0].counting, s.batches[batch]
    while c.num_ends > 0 and next_end(s) == c.num_scheduled:
        request = pop_end(s)
        put_last(s, request)
        b.num_last_tokens += 1
        c.num_decodes -= 1
        c.context_tokens -= s.requests[request].max_total_tokens
        note_surplus(s, request)


@part
def begin_step(s: State, batch: int) -> None:
    """Put a token of each request that decodes into a batch, and sort out whose last one it is."""
    totals, c, b = s.engine[0].totals, s.engine[0].counting, s.batches[batch]
    b.step = totals.num_steps
    totals.num_steps += 1
    c.num_scheduled += 1
    clear_sums(s, batch)
    b.num_first_tokens = b.num_last_tokens = 0
    b.num_surplus = c.num_surplus
    b.num_entries = b.num_decode_tokens = c.num_decodes + c.num_surplus
    b.decode_context_tokens = c.context_tokens + c.surplus_context_tokens
    c.num_surplus = c.surplus_context_tokens = 0
    c.context_tokens += c.num_decodes
    put_lasts(s, batch)


@part
def compute_prompt(s: State, batch: int, request: int, num_tokens: int) -> None:
    """Put the next tokens of a prompt into a batch; with its last ones it gives the first token."""
    c, b, r = s.engine[0].counting, s.batches[batch], s.requests[request]
    share = sums_of_share(num_tokens, r.num_computed_tokens, False)
    b.num_entries += 1
    b.num_prefill_tokens += share.num_prefill_tokens
    b.prefill_pairs += share.prefill_pairs
    b.num_prefill_seqs += 1
    b.prefill_context_tokens += share.prefill_context_tokens
    r.num_computed_tokens += num_tokens
    r.num_in_flight_tokens = num_tokens
    if r.num_computed_tokens < r.num_prompt_tokens:
        put_begun(s, request)
        return
    put_first(s, request)
    b.num_first_tokens += 1
    num_decodes = r.max_total_tokens - r.num_prompt_tokens - 1
    if num_decodes == 0:
        note_surplus(s, request)
        return
    push_end(s, c.num_scheduled + num_decodes, request)
    c.num_decodes += 1
    c.context_tokens += r.num_prompt_tokens + 1


@part
def cut_begun(s: State, request: int, wanted: int, budget: int) -> int:
    """Return how many of the tokens that a begun prompt wants it computes in the step in hand.

    ``budget``: what others leave. Those that decode behind it in the order of admission take theirs later. Where that
    might make a difference, to it or to them, the run is worth nothing: one of them might sit the step out.
    """
    num_tokens = min(wanted, budget)
    if not s.engine[0].settings.cuts_shares:
        return num_tokens
    c, r = s.engine[0].counting, s.requests[request]
    start = r.num_computed_tokens
    num_tokens = cut_share(s, request, start, num_tokens, 0)
    num_later = c.num_admitted - 1 - r.slot
    if num_later > 0 and wanted > budget:
        most = cut_share(s, request, start, min(wanted, budget + num_later), 0)
        c.has_lacked = c.has_lacked or most != num_tokens
    return max(num_tokens, 0)


@phase
def go_on_with_prompts(s: State, batch: int, threshold: int, budget: int) -> int:
    """Compute the next tokens of the prompts that are begun; return what is left of the budget.

    Only the last request that runs is ever left less than it wants. For in each step the others together want no more
    than in the step before: the rest of a prompt, or the threshold, unless that has grown, and then all that run have
    room for as much. So nobody sits a step out, wherever in the order those stand that decode, unless shares are cut
    where states can be kept (``cut_begun``).
    """
    c = s.engine[0].counting
    request, c.first_begun = c.first_begun, NEVER
    while request != NEVER:
        r = s.requests[request]
        after, num_tokens = r.next_waiting, capped(r.num_prompt_tokens - r.num_computed_tokens, threshold)
        num_tokens = cut_begun(s, request, num_tokens, budget)
        budget -= num_tokens
        if num_tokens > 0:
            compute_prompt(s, batch, request, num_tokens)
        else:
            put_begun(s, request)
        if r.num_computed_tokens == r.num_prompt_tokens and s.latency[ALPHA3] != 0:
            r.num_output_placeholders = num_behind(s, r.slot)
        request = after
    return budget


@part
def admit_counted(s: State, request: int) -> None:
    """Let the head of the queue run."""
    queues, c, r = s.engine[0].queues, s.engine[0].counting, s.requests[request]
    remove_request(s, request)
    queues.num_running += 1
    r.num_blocks = num_blocks_needed(s, request)
    c.num_blocks += r.num_blocks
    r.slot = c.num_admitted
    c.num_admitted += 1
    r.status, r.scheduled_us = RUNNING, s.engine[0].clock.now_us
    r.num_computed_tokens = r.num_cached_tokens = 0
    s.engine[0].totals.num_cache_queries += r.num_prompt_tokens


@phase
def schedule_counted(s: State, batch: int) -> None:
    """Fill a batch, in which no running request lacks a block."""
    settings, queues, c, b = s.engine[0].settings, s.engine[0].queues, s.engine[0].counting, s.batches[batch]
    queues.head_is_blocked = 0
    begin_step(s, batch)
    threshold = effective_long_prefill_threshold(s)
    budget = settings.max_num_batched_tokens - b.num_entries
    if c.first_begun != NEVER:
        budget = go_on_with_prompts(s, batch, threshold, budget)
    while budget > 0 and queues.num_waiting > 0 and queues.num_running < settings.max_num_seqs:
        request = peek_request(s)
        wanted = capped(s.requests[request].num_prompt_tokens, threshold)
        num_tokens = min(wanted, budget)
        if num_tokens < wanted and not settings.enable_chunked_prefill:
            break
        if settings.cuts_shares:
            num_tokens = cut_share(s, request, 0, num_tokens, 0)
            if num_tokens == NEVER:
                break
        if not fits_counted(s, request, num_tokens):
            s.engine[0].totals.num_kv_allocation_failures += 1
            queues.head_is_blocked = 1
            break
        admit_counted(s, request)
        budget -= num_tokens
        compute_prompt(s, batch, request, num_tokens)
    queues.has_finished_ids = 0
    if settings.cuts_shares and b.num_entries == 0 and nothing_is_in_flight(s):
        c.has_lacked |= queues.num_running + queues.num_waiting > 0  # no step can hold a block of any prompt


@part
def duration_counted(s: State, batch: int, start_us: int) -> int:
    """Return how long a batch takes that starts at ``start_us``; count it."""
    b = s.batches[batch]
    if b.num_entries == 0:
        return 0
    duration_us = take_step(s, sums_of(s, batch), start_us, b.step)
    if s.engine[0].settings.adds_time:
        num_tokens = b.num_prefill_tokens + b.num_decode_tokens
        duration_us = with_host_time(s, num_tokens, b.num_prefill_tokens > 0, duration_us)
    count_steps(s, b.num_entries, b.num_prefill_tokens, b.num_decode_tokens, duration_us, 1)
    return duration_us


@part
def end_counted(s: State, request: int, now_us: int, emission: int) -> None:
    """Give a request its last token, and let a client's next one go.

    ``emission``: the number of the step among those that gave tokens.
    """
    settings, queues, totals = s.engine[0].settings, s.engine[0].queues, s.engine[0].totals
    c, r = s.engine[0].counting, s.requests[request]
    if settings.is_closed_loop:
        hear_answers(s, now_us)
    r.num_tokens, r.status = r.max_total_tokens, FINISHED
    r.last_token_us = max(now_us, r.first_token_us)
    r.last_emission = emission
    c.num_blocks -= r.num_blocks
    r.num_blocks, r.slot = 0, NEVER
    queues.num_running -= 1
    queues.head_is_blocked = 0
    queues.has_finished_ids = 1
    totals.num_completed += 1
    if settings.is_closed_loop or settings.log_completions:
        seen_us = r.last_token_us + output_delay_us(s.latency, r.num_tokens - r.num_prompt_tokens)
        log_completion(s, request, seen_us, COMPLETED)
        answer(s, request, seen_us)


@phase
def give_lasts(s: State, most: int, before: int, now_us: int, emission: int) -> int:
    """Give those of up to ``most`` requests their last token that were admitted before another; return who is left.

    Of those that decode, in the order of admission. ``before``: the other's ``slot``.
    """
    while most > 0 and s.requests[s.engine[0].counting.first_of_lasts].slot < before:
        end_counted(s, take_last(s), now_us, emission)
        most -= 1
    return most


@part
def update_counted(s: State, batch: int, now_us: int) -> None:
    """Give the tokens of a batch, and end requests in the order of admission.

    Those that decode come first in it, unless a prompt was begun before them (``num_output_placeholders``).
    """
    totals, b = s.engine[0].totals, s.batches[batch]
    num_lasts = b.num_last_tokens
    place = b.num_decode_tokens - b.num_surplus
    for _ in range(b.num_first_tokens):
        request = take_first(s)
        place += 1
        r = s.requests[request]
        r.first_token_us = first_seen_us(s.latency, now_us, place - r.num_output_placeholders)
        r.first_emission = totals.num_emissions
        if r.max_total_tokens == r.num_prompt_tokens + 1:
            if num_lasts > 0:
                num_lasts = give_lasts(s, num_lasts, r.slot, now_us, totals.num_emissions)
            end_counted(s, request, now_us, totals.num_emissions)
    if num_lasts > 0:
        give_lasts(s, num_lasts, RANKS, now_us, totals.num_emissions)
    if place > 0:
        log_span(s, now_us, 0, 1)
        totals.num_emissions += 1
