"""Many decode steps at once.

While every running request decodes and nobody can be admitted, each step does the same: one token for everyone, the
same duration, a new block for those whose last one is full. How many such steps follow is known beforehand, so the
work on each request is done once, and only blocks are handed out step by step, in the order in which the steps
would have done it. Taking ``m`` steps at once and taking them singly give the same bits
(docs/explanation/engine.md has the argument, ``tests/sim`` the proof by property).
"""

from __future__ import annotations

from sim.compile import part, phase
from sim.engine.blocks import remember_hash
from sim.engine.kv_cache import append_new_block, hash_of_block, has_hashes_past
from sim.engine.log import log_pause, log_span
from sim.engine.state import FCFS, IS_DECODE, NEVER, SAMPLES, State
from sim.engine.update import drop_finished_from_running, finish
from sim.engine.waiting import next_queued_us

ENDLESS = 1 << 60


@part
def nobody_can_be_admitted(s: State) -> bool:
    """Return whether the waiting queue stays closed for as long as nothing is freed."""
    e = s.counters[0]
    if e.num_running >= e.max_num_seqs or e.num_running >= e.max_num_batched_tokens:
        return True
    if e.num_waiting == 0 or not e.head_is_blocked:
        return False
    # The head did not fit. Decoding only takes blocks, but it may also fill one that the head shares, or evict
    # some of the head's hits, which a gate that looks at the first chunk alone can mistake for room.
    return e.outputs_are_shared == 0 and e.scheduler_reserve_full_isl == 1


@part
def arrivals_matter(s: State) -> bool:
    """Return whether a request that joins the queue could be scheduled before anything is freed."""
    e = s.counters[0]
    if e.num_running >= e.max_num_seqs or e.num_running >= e.max_num_batched_tokens:
        return False
    return e.num_waiting == 0 or e.policy != FCFS


@part
def steps_before(time_us: int, first_us: int, step_us: int) -> int:
    """Return how many steps that start at ``first_us`` and every ``step_us`` after start strictly before a time."""
    if time_us <= first_us:
        return 0
    if step_us == 0:
        return ENDLESS
    return (time_us - first_us + step_us - 1) // step_us


@part
def next_block_step(s: State, request: int) -> int:
    """Return in which of the coming decode steps a request needs its next block, 0 to block_size - 1."""
    e, r = s.counters[0], s.requests[request]
    return r.num_blocks * e.block_size - r.num_tokens + 1 - e.async_scheduling


@part
def steps_while_all_decode(s: State) -> int:
    """Return for how many steps every running request has a token to compute, 0 unless all of them only decode.

    On the way it counts, in ``rounds[k + 1]``, who needs a block in step k. A sync engine frees a request in the
    step that gives its last token; an async one must look again before it schedules a request whose last token
    is in flight.
    """
    e = s.counters[0]
    ahead = e.async_scheduling
    fewest = ENDLESS
    for k in range(e.block_size + 1):
        s.rounds[k] = 0
    for i in range(e.num_running):
        r = s.requests[s.running[i]]
        is_decoding = r.num_computed_tokens == r.num_tokens - 1 + ahead and r.num_output_placeholders == ahead
        if not is_decoding or (r.num_tokens == r.num_prompt_tokens and not ahead):
            return 0
        fewest = min(fewest, r.max_total_tokens - r.num_tokens - ahead)
        s.rounds[next_block_step(s, s.running[i]) + 1] += 1
    return fewest


@part
def sort_by_next_block(s: State) -> bool:
    """Order the running requests by the step of their next block; return whether filled blocks must be entered.

    Counting sort; requests of one step keep their running order. Afterwards ``order[rounds[k] : rounds[k + 1]]``
    are those of step k.
    """
    e = s.counters[0]
    must_enter = False
    for k in range(e.block_size):
        s.rounds[k + 1] += s.rounds[k]
    for i in range(e.num_running):
        request = s.running[i]
        k = next_block_step(s, request)
        s.order[s.rounds[k]] = request
        s.rounds[k] += 1
        must_enter = must_enter or has_hashes_past(s, request, s.requests[request].num_cached_blocks)
    for k in range(e.block_size, 0, -1):
        s.rounds[k] = s.rounds[k - 1]
    s.rounds[0] = 0
    return must_enter


@part
def enter_filled_blocks(s: State, first: int, last: int) -> None:
    """Enter the next full block of the requests ``order[first:last]`` into the prefix cache, where it has a key."""
    for i in range(first, last):
        request = s.order[i]
        r = s.requests[request]
        if has_hashes_past(s, request, r.num_cached_blocks):
            key = hash_of_block(s, request, r.num_cached_blocks)
            if key != NEVER:
                remember_hash(s, s.block_table[r.slot, r.num_cached_blocks], key)
        r.num_cached_blocks += 1


@part
def hand_out_blocks(s: State, num_steps: int) -> int:
    """Give each request its new blocks step by step; return how many steps found enough, at most ``num_steps``."""
    e = s.counters[0]
    ahead = e.async_scheduling
    must_enter = sort_by_next_block(s) and e.enable_prefix_caching == 1
    k = 0
    for step in range(num_steps):
        first, last = s.rounds[k], s.rounds[k + 1]
        if last - first > e.num_free_blocks:
            return step
        for i in range(first, last):
            append_new_block(s, s.order[i])
        if must_enter:
            fills = k if ahead else (k + 1) % e.block_size
            enter_filled_blocks(s, s.rounds[fills], s.rounds[fills + 1])
        k = k + 1 if k + 1 < e.block_size else 0
    return num_steps


@part
def advance_requests(s: State, num_steps: int, first_end_us: int, step_us: int) -> None:
    """Give every running request its tokens of the jump."""
    e = s.counters[0]
    last_end_us = first_end_us + (num_steps - 1) * step_us
    for i in range(e.num_running):
        request = s.running[i]
        r = s.requests[request]
        if r.num_tokens == r.num_prompt_tokens:
            r.first_token_us = first_end_us
            r.first_emission = e.num_emissions
        elif r.last_emission != e.num_emissions - 1:
            log_pause(s, request)
        r.num_tokens += num_steps
        r.num_computed_tokens += num_steps
        r.last_token_us = last_end_us
        r.last_emission = e.num_emissions + num_steps - 1
        if e.enable_prefix_caching:
            r.num_cached_blocks = max(r.num_cached_blocks, (r.num_tokens - 1) // e.block_size)
    if e.log_tokens:
        log_jump_tokens(s, num_steps, first_end_us, step_us=step_us)
    log_span(s, first_end_us, step_us=step_us, num_steps=num_steps)
    e.num_emissions += num_steps


@part
def log_jump_tokens(s: State, num_steps: int, first_end_us: int, step_us: int) -> None:
    """Note each token of a jump, step by step, in running order."""
    e = s.counters[0]
    for step in range(num_steps):
        for i in range(e.num_running):
            token = s.tokens[e.num_logged_tokens]
            token.request, token.time_us = s.running[i], first_end_us + step * step_us
            e.num_logged_tokens += 1


@part
def steps_the_log_can_take(s: State) -> int:
    """Return how many steps of the running requests the token log has room for."""
    e = s.counters[0]
    return (len(s.tokens) - e.num_logged_tokens) // e.num_running if e.log_tokens else ENDLESS


@part
def steps_to_jump(s: State, until_us: int, step_us: int, second_start_us: int) -> int:
    """Return how many steps may be taken at once from now.

    The first starts now, the second at ``second_start_us``, the others ``step_us`` apart.
    """
    e = s.counters[0]
    if e.num_running > e.max_num_batched_tokens or not (e.num_waiting == 0 or nobody_can_be_admitted(s)):
        return 0
    most = min(steps_while_all_decode(s), steps_the_log_can_take(s))
    limit_us = until_us
    arrival_us = next_queued_us(s)
    if arrival_us != NEVER and arrivals_matter(s):
        limit_us = min(limit_us, arrival_us)
    return min(most, 1 + steps_before(limit_us, second_start_us, step_us=step_us))


@part
def finish_those_who_have_all(s: State) -> None:
    """Free the requests that the last step of a jump completed, in running order."""
    e = s.counters[0]
    e.num_finished = 0
    for i in range(e.num_running):
        r = s.requests[s.running[i]]
        if r.num_tokens >= r.max_total_tokens:
            finish(s, s.running[i])
    if e.num_finished > 0:
        drop_finished_from_running(s)


@phase
def jump_sync(s: State, until_us: int, step_us: int) -> bool:
    """Take as many steps as nothing can change in; return False when not even one."""
    e = s.counters[0]
    wanted = steps_to_jump(s, until_us, step_us=step_us, second_start_us=e.clock_us + step_us)
    num_steps = hand_out_blocks(s, wanted) if wanted > 0 else 0
    if num_steps == 0:
        return False
    advance_requests(s, num_steps, e.clock_us + step_us, step_us=step_us)
    e.clock_us += num_steps * step_us
    e.num_steps += num_steps
    e.num_jumps += 1
    finish_those_who_have_all(s)
    return True


@part
def only_the_running_are_in_flight(s: State) -> bool:
    """Return whether exactly one batch is in flight and every entry of it is a running request's last sample."""
    e = s.counters[0]
    return e.num_batches == 1 and s.batches[e.oldest_batch].num_entries == e.num_running


@phase
def jump_async(s: State, until_us: int, step_us: int) -> bool:
    """Schedule batches and take in the results of their predecessors until something changes; False when nothing can.

    At the door one batch is in flight; each step schedules the next behind it and takes in the older one's tokens.
    """
    e = s.counters[0]
    if not only_the_running_are_in_flight(s):
        return False
    b = s.batches[e.oldest_batch]
    in_flight_end_us = b.exec_end_us
    wanted = steps_to_jump(s, until_us, step_us=step_us, second_start_us=in_flight_end_us)
    num_steps = hand_out_blocks(s, wanted) if wanted > 0 else 0
    if num_steps == 0:
        return False
    advance_requests(s, num_steps, in_flight_end_us, step_us=step_us)
    e.clock_us = in_flight_end_us + (num_steps - 1) * step_us
    e.device_free_us = b.exec_end_us = e.clock_us + step_us
    b.step = e.num_steps + num_steps - 1
    e.num_steps += num_steps
    e.num_jumps += 1
    e.has_finished_ids = 0
    b.num_prefill_tokens, b.num_decode_tokens, b.num_tokens = 0, e.num_running, e.num_running
    for i in range(e.num_running):
        entry = s.entries[e.oldest_batch, i]
        r = s.requests[s.running[i]]
        entry.request, entry.num_tokens, entry.kind = s.running[i], 1, SAMPLES + IS_DECODE
        entry.computed = r.num_computed_tokens - 1
        r.num_in_flight_tokens = 1
    return True

