"""What a run writes down beside the outcomes: steps in full, spans of tokens, or each token. Off unless asked for.

Python decodes the step log in ``sim/records/steps.py``. Every writer relies on ``has_room``, which the engine
asks before a step: a full log stops the engine, Python makes it larger, and the engine goes on.
"""

from __future__ import annotations

from sim.engine.dtypes import FCFS, IS_DECODE
from sim.engine.state import State
from sim.jit.compile import part, phase

SCHEDULED, UPDATED = 1, 2
"""Kinds of entries in the step log; each is followed by its length in words."""


BINS_PER_DOUBLING = 256
NUM_BINS = 32 * BINS_PER_DOUBLING
"""How many bins ``State.step_times`` and ``step_tokens`` have: ``bin_of`` says which holds a value."""


@part
def words_needed(s: State) -> int:
    """Return an upper bound on what the entries of a step take in the step log, and of all that are in flight."""
    settings = s.engine[0].settings
    words = 64 + 8 * len(s.batches) + 8 * settings.max_num_seqs
    if settings.log_blocks:
        num_tables = settings.max_num_seqs * settings.num_kv_cache_groups
        words += 2 * (len(s.blocks) + num_tables * (s.block_table.shape[1] + 2))
    if settings.has_kv_offloading:
        words += 2 * (num_slots_needed(s) + settings.max_num_seqs + num_to_depart(s)) + 5
    return words


@part
def num_to_depart(s: State) -> int:
    """Return how many requests may be gone by the next step that host memory remembers, those that are included."""
    queues = s.engine[0].queues
    num_left = s.engine[0].kv_offload.num_departed + s.engine[0].kv_transfers.num_holding
    return queues.num_running + queues.num_waiting + num_left


@part
def num_slots_needed(s: State) -> int:
    """Return an upper bound on the rows of the block table that a step can hand out, where KV is transferred.

    Each request that waits may be given blocks for its KV, at least one each.
    """
    settings, queues = s.engine[0].settings, s.engine[0].queues
    most = settings.max_num_seqs - queues.num_running
    if not settings.is_kv_producer:
        most_waiting = queues.num_waiting + queues.num_added - queues.num_joined
        most += min(most_waiting, queues.num_free_blocks)
    return most


@part
def has_room(s: State) -> bool:
    """Return whether the logs and the hash table can take another step."""
    settings, queues, fill = s.engine[0].settings, s.engine[0].queues, s.engine[0].log_fill
    most_in_flight = len(s.batches) * settings.max_num_seqs
    if settings.log_steps and fill.num_log_words + words_needed(s) > len(s.log):
        return False
    if settings.log_spans and (
        fill.num_spans + len(s.ends_us) > len(s.spans) or fill.num_pauses + most_in_flight > len(s.pauses)
    ):
        return False
    most_tokens = most_in_flight * (1 + settings.num_speculative_tokens)
    if settings.log_tokens and fill.num_logged_tokens + most_tokens > len(s.tokens):
        return False
    num_loads = num_slots_needed(s) if settings.has_loads else 0
    most_completions = fill.num_completions + 2 * most_in_flight + num_loads
    most_departed = num_to_depart(s) if settings.has_kv_offloading else 0
    if (num_loads > queues.num_free_slots or most_departed > len(s.departed)) or (
        settings.log_completions and most_completions > len(s.completions)
    ):
        return False
    most_waiting = queues.num_waiting + queues.num_added - queues.num_joined + queues.num_running
    if settings.policy != FCFS and most_waiting > len(s.heap):
        return False
    num_seats = queues.num_running
    if settings.num_cpu_blocks > 0:
        num_seats = settings.max_num_seqs
    elif settings.has_kv_offloading:
        num_seats = settings.max_num_seqs + s.engine[0].kv_transfers.num_holding
    most_new_keys = num_seats * (s.block_table.shape[1] + 1)
    most_rows = (queues.num_keys + most_new_keys) * settings.num_kv_cache_groups
    return not settings.enable_prefix_caching or most_rows <= len(s.hashes)


@part
def put(s: State, word: int) -> None:
    """Append a word to the step log."""
    fill = s.engine[0].log_fill
    s.log[fill.num_log_words] = word
    fill.num_log_words += 1


@part
def log_span(s: State, first_end_us: int, step_us: int, num_steps: int) -> None:
    """Note steps that gave tokens."""
    settings, fill = s.engine[0].settings, s.engine[0].log_fill
    if settings.log_spans:
        span = s.spans[fill.num_spans]
        span.first_end_us, span.step_us, span.num_steps = first_end_us, step_us, num_steps
        fill.num_spans += 1


@phase
def bin_of(number: int) -> int:
    """Return the bin of a duration in µs, or of a number of tokens.

    Below 512 each number has one, then 256 go to each doubling, so that none is wider than 0.4 %. Days share the last.
    """
    shift = 0
    while number >> shift >= 2 * BINS_PER_DOUBLING:
        shift += 1
    return min(shift * BINS_PER_DOUBLING + (number >> shift), NUM_BINS - 1)


@part
def count_steps(
    s: State, num_seqs: int, num_prefill: int, num_decode: int, duration_us: int, num_steps: int
) -> None:
    """Count steps of one size and one duration; ``num_prefill``, ``num_decode``: tokens of each."""
    if s.engine[0].settings.count_steps:
        num_tokens = num_prefill + num_decode
        s.batch_sizes[num_seqs] += num_steps
        s.step_tokens[min(bin_of(num_tokens), len(s.step_tokens) - 1)] += num_steps
        s.step_times[bin_of(duration_us)] += num_steps
        totals = s.engine[0].totals
        totals.busy_us += duration_us * num_steps
        totals.num_prefill_tokens += num_prefill * num_steps
        totals.num_decode_tokens += num_decode * num_steps


@part
def recount_step(s: State, counted_us: int, duration_us: int) -> None:
    """Let a step that was counted with one duration have another."""
    if s.engine[0].settings.count_steps:
        s.step_times[bin_of(counted_us)] -= 1
        s.step_times[bin_of(duration_us)] += 1
        s.engine[0].totals.busy_us += duration_us - counted_us


@part
def log_pause(s: State, request: int) -> None:
    """Note that a request got nothing between its last token and the one it gets now."""
    settings, totals, fill = s.engine[0].settings, s.engine[0].totals, s.engine[0].log_fill
    if settings.log_spans:
        pause = s.pauses[fill.num_pauses]
        pause.request = request
        pause.last_emission, pause.next_emission = s.requests[request].last_emission, totals.num_emissions
        fill.num_pauses += 1


@part
def log_token(s: State, request: int, time_us: int) -> None:
    """Note one token."""
    settings, fill = s.engine[0].settings, s.engine[0].log_fill
    if settings.log_tokens:
        token = s.tokens[fill.num_logged_tokens]
        token.request, token.time_us = request, time_us
        fill.num_logged_tokens += 1


@part
def log_completion(s: State, request: int, time_us: int, kind: int) -> None:
    """Note what a client sees of a request; a longer output's delay may put it before others of its step."""
    settings, fill = s.engine[0].settings, s.engine[0].log_fill
    if settings.log_completions:
        at = fill.num_completions
        while at > 0 and s.completions[at - 1].time_us > time_us:
            s.completions[at] = s.completions[at - 1]
            at -= 1
        entry = s.completions[at]
        entry.time_us, entry.request, entry.kind = time_us, request, kind
        fill.num_completions += 1


@part
def note_schedule(s: State) -> None:
    """Note what the engine is like while the step that has just been scheduled runs."""
    queues, seen = s.engine[0].queues, s.engine[0].last_schedule
    seen.num_running, seen.num_free_blocks = queues.num_running, queues.num_free_blocks


@part
def log_blocks_of_groups(s: State, slot: int) -> None:
    """Write the block tables of a request, group by group, 0 in place of what was let go."""
    num_groups = s.engine[0].settings.num_kv_cache_groups
    for group in range(num_groups):
        num_blocks = s.group_rows[slot, group].num_blocks
        put(s, num_blocks)
        for j in range(num_blocks):
            put(s, s.block_table[slot * num_groups + group, j])


@part
def log_blocks(s: State, batch: int) -> None:
    """Write the block tables of a batch's requests and the whole free queue."""
    settings, queues, b = s.engine[0].settings, s.engine[0].queues, s.batches[batch]
    for i in range(b.num_entries):
        r = s.requests[s.entries[batch, i].request]
        if settings.has_kv_cache_groups:
            log_blocks_of_groups(s, r.slot)
            continue
        put(s, r.num_blocks)
        for j in range(r.num_blocks):
            put(s, s.block_table[r.slot, j])
    put(s, queues.num_free_blocks)
    block = s.blocks[0].next_free
    while block != 0:
        put(s, block)
        block = s.blocks[block].next_free


@phase
def log_orders(s: State, exec_start_us: int) -> None:
    """Write the loads and the stores that a step orders, how many it waits for, and when it begins."""
    kv = s.engine[0].kv_offload
    for is_load in (1, 0):
        put(s, kv.num_new_loads if is_load else kv.num_new_stores)
        job = kv.first_new
        while job != 0:
            if s.kv_jobs[job].is_load == is_load:
                put(s, s.kv_jobs[job].request)
                put(s, s.kv_jobs[job].num_blocks)
            job = s.kv_jobs[job].next_new
    put(s, kv.num_flushed)
    put(s, exec_start_us)


@phase
def log_schedule(s: State, batch: int, duration_us: int, exec_start_us: int) -> None:
    """Write down a scheduling decision."""
    settings, clock, queues, current = (
        s.engine[0].settings,
        s.engine[0].clock,
        s.engine[0].queues,
        s.engine[0].current_step,
    )
    fill, b = s.engine[0].log_fill, s.batches[batch]
    if not settings.log_steps:
        return
    put(s, SCHEDULED)
    length_at = fill.num_log_words
    put(s, 0)
    put(s, b.step)
    put(s, clock.now_us)
    put(s, duration_us)
    put(s, b.num_prefill_tokens)
    put(s, b.num_decode_tokens)
    put(s, queues.num_running)
    put(s, queues.num_waiting + s.engine[0].kv_transfers.num_holding)
    put(s, queues.num_free_blocks)
    put(s, exec_start_us)
    put(s, b.exec_end_us)
    put(s, b.num_entries)
    put(s, current.num_preempted)
    put(s, current.num_hits)
    for i in range(b.num_entries):
        entry = s.entries[batch, i]
        put(s, entry.request)
        put(s, entry.num_tokens)
        put(s, entry.computed)
        put(s, entry.kind & IS_DECODE)
    for i in range(current.num_preempted):
        put(s, s.preempted[i])
    for i in range(current.num_hits):
        put(s, s.hits[i].request)
        put(s, s.hits[i].computed)
    if settings.has_kv_offloading:
        log_orders(s, exec_start_us)
    if settings.log_blocks:
        log_blocks(s, batch)
    s.log[length_at] = fill.num_log_words - length_at - 1


@phase
def log_update(s: State, batch: int, now_us: int) -> None:
    """Write down what a finished batch changed."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    if not settings.log_steps:
        return
    put(s, UPDATED)
    put(s, 4 + current.num_finished + settings.has_kv_offloading)
    put(s, s.batches[batch].step)
    put(s, now_us)
    put(s, queues.num_free_blocks)
    put(s, current.num_finished)
    for i in range(current.num_finished):
        put(s, s.finished[i])
    if settings.has_kv_offloading:
        put(s, s.engine[0].kv_offload.num_reported)
