"""The engine's loop: add what has arrived, schedule, run, update; one batch at a time, or several in flight.

``run`` returns when the next step would start at ``until_us`` or later, when there is nothing left to do, or when
Python has to make an array larger.
"""

from __future__ import annotations

from sim.engine.abort import drop_requests_past_their_deadline
from sim.engine.asked_features import (
    brings_news,
    first_stage_starts_us,
    hand_over,
    has_new_grammar,
    has_requests,
    has_unfinished,
    has_work,
    hears_news,
    launch_in_stages,
    least_step_us,
    next_event_us,
    note_waiting,
    only_waits_to_store,
    repeats_preempting_all,
    tells,
    with_added_time,
)
from sim.engine.dtypes import NEVER, PENDING, REJECTED, SAMPLES, WAITING
from sim.engine.jump import jump_async, jump_sync
from sim.engine.log import count_steps, has_room, log_schedule, log_update
from sim.engine.records.offload_records import LOAD
from sim.engine.schedule import schedule
from sim.engine.state import State, engine_at
from sim.engine.step_time.step_duration import take_step
from sim.engine.step_time.step_sums import sums_of
from sim.engine.update import update_from_output
from sim.engine.waiting import (
    add_request,
    drop_refused,
    hear_before_deadlines,
    join_passed_over,
    note_taken_in,
    take_first_pending,
)
from sim.jit.compile import engine_entry, part, phase
from sim.jit.references import Table

REACHED, IDLE, NEEDS_ROOM, PAUSED = 0, 1, 2, 3
"""Why ``run`` returned: the time is up, nothing can happen before another request comes, an array is full, requests
were completed (``pauses_at_completions``)."""

MOST_FRUITLESS_STEPS = 300
"""After this many preempting steps in a row without a token or a new request, the engine will preempt for ever. In two
thousand random cases at most 18 such steps came before one that got somewhere; a number below that would stop a run
that can go on."""


@phase
def add_arrivals(s: State, by_us: int) -> None:
    """Put every request that is due by a time into the queue; a grammar that has come unblocks it, too."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if queues.is_blocked and has_new_grammar(s):
        queues.is_blocked = 0
    hear_before_deadlines(s, by_us)
    while queues.first_pending != NEVER:
        request = queues.first_pending
        r = s.requests[request]
        if r.queued_us > by_us:
            break
        if r.status == REJECTED:
            drop_refused(s, request)
            continue
        take_first_pending(s)
        queues.is_blocked = 0
        if r.status == PENDING:
            r.status = WAITING
            note_taken_in(s, request, s.engine[0].clock.now_us)
            if settings.has_queue_apart and settings.has_traits and s.traits[request].is_guided:
                join_passed_over(s, request)
            else:
                add_request(s, request)
            if settings.session_kv_ttl_us > 0:
                note_waiting(s, request)


@part
def wait_for_arrival(s: State, until_us: int) -> int:
    """Move the clock to the next arrival, or deadline; return NEVER, or why it cannot be waited for."""
    clock = s.engine[0].clock
    event_us = next_event_us(s)
    if event_us == NEVER:
        return IDLE
    if event_us >= until_us or clock.now_us >= until_us:
        return REACHED
    clock.now_us = max(clock.now_us, event_us)
    return NEVER


@part
def is_paused(s: State) -> bool:
    """Return whether requests were completed and the caller wants to know at once."""
    return s.engine[0].settings.pauses_at_completions and s.engine[0].log_fill.num_completions > 0


@part
def reason_to_stop(s: State) -> int:
    """Return NEEDS_ROOM or PAUSED where the engine cannot go on, or is not to, before its next step; else NEVER."""
    if not has_room(s):
        return NEEDS_ROOM
    return PAUSED if is_paused(s) else NEVER


@part
def began_us(s: State) -> int:
    """Return when a step that is scheduled now may begin: once the stores that it waits for are done."""
    if s.engine[0].settings.has_kv_offloading:
        return s.engine[0].kv_offload.flushed_us
    return s.engine[0].clock.now_us


@part
def moves_blocks(s: State) -> bool:
    """Return whether the step that has ended ordered a transfer that is waited for, or brought news of one."""
    kv = s.engine[0].kv_offload
    return kv.num_reported > 0 or kv.num_new_loads > 0 or only_waits_to_store(s)


@phase
def duration_of(s: State, batch: int, start_us: int) -> int:
    """Return how long a batch takes that starts at ``start_us``, the KV blocks it brings back included; count it."""
    compute_us = take_step(s, sums_of(s, batch), start_us, s.batches[batch].step)
    num_seqs = s.batches[batch].num_entries
    if s.engine[0].settings.adds_time and num_seqs > 0:
        compute_us = with_added_time(s, batch, compute_us)
    duration_us = max(compute_us + s.engine[0].current_step.step_reload_us, least_step_us(s, num_seqs))
    if num_seqs > 0:
        b = s.batches[batch]
        count_steps(s, num_seqs, b.num_prefill_tokens, b.num_decode_tokens, duration_us, 1)
    return duration_us


@part
def in_flight(s: State, i: int) -> int:
    """Return which row of ``State.batches`` the i-th batch in flight has, the oldest first; beyond them a free one."""
    clock, length = s.engine[0].clock, s.engine[0].settings.max_concurrent_batches
    at = clock.oldest_batch + i
    return at if at < length else at - length


@part
def samples(s: State, batch: int) -> bool:
    """Return whether a batch will give a request a token."""
    for i in range(s.batches[batch].num_entries):  # noqa: SIM110 - numba knows no any() of a generator
        if s.entries[batch, i].kind & SAMPLES:
            return True
    return False


@part
def preempts_without_end(s: State, batch: int) -> bool:
    """Return whether preemptions follow on preemptions for ever: so many steps with no new request and no token.

    It takes admission by the first chunk alone: of a request that needs more than the whole cache, of several that
    take each other's blocks in turn, or beside one that holds blocks and cannot run. vLLM would not stop.
    """
    settings, clock, queues, current = (
        s.engine[0].settings,
        s.engine[0].clock,
        s.engine[0].queues,
        s.engine[0].current_step,
    )
    totals = s.engine[0].totals
    if current.num_preempted == 0:
        return False
    if settings.is_blis:
        return repeats_preempting_all(s)
    now = totals.num_emissions + queues.num_joined
    if queues.fruitless_since != now:
        queues.fruitless_since = now
        queues.num_fruitless_steps = 0
    queues.num_fruitless_steps += 1
    if queues.num_fruitless_steps < MOST_FRUITLESS_STEPS or samples(s, batch):
        return False
    for i in range(clock.num_batches):  # noqa: SIM110 - numba knows no all() of a generator
        if samples(s, in_flight(s, i)):
            return False
    return True


@phase
def run_sync(s: State, until_us: int, coalesce: bool) -> int:
    """Schedule, run, update; one batch at a time (vllm 0.32.0 v1/engine/core.py:step)."""
    settings, clock, queues, current = (
        s.engine[0].settings,
        s.engine[0].clock,
        s.engine[0].queues,
        s.engine[0].current_step,
    )
    while True:
        answer = reason_to_stop(s)
        if answer != NEVER:
            return answer
        if clock.now_us >= until_us:
            add_arrivals(s, until_us - 1)
            return REACHED
        if drop_requests_past_their_deadline(s, until_us) and is_paused(s):
            return PAUSED
        add_arrivals(s, clock.now_us)
        if (not has_unfinished(s) or queues.is_blocked) and not hears_news(s):
            answer = wait_for_arrival(s, until_us)
            if answer != NEVER:
                return answer
            continue
        if coalesce and queues.num_running > 0 and jump_sync(s, until_us):
            continue  # what ended the jump may let others in: arrivals and deadlines come first again
        schedule(s, 0)
        is_endless = preempts_without_end(s, 0)
        b = s.batches[0]
        start_us = began_us(s)
        duration_us = duration_of(s, 0, start_us)
        if settings.log_steps:
            log_schedule(s, 0, duration_us, start_us)
        clock.now_us = start_us + duration_us
        update_from_output(s, 0, clock.now_us)
        if settings.log_steps:
            log_update(s, 0, clock.now_us)
        queues.is_blocked = is_endless or (b.num_entries == 0 and current.num_preempted == 0)
        if settings.has_kv_transfers and s.engine[0].kv_transfers.num_heard > 0:
            queues.is_blocked = 0
        if settings.has_kv_offloading:
            queues.is_blocked = 2 if is_endless else (queues.is_blocked and not moves_blocks(s))


@phase
def launch(s: State, batch: int) -> None:
    """Put a scheduled batch behind the one on the device; an empty one takes no device time."""
    settings, clock, b = s.engine[0].settings, s.engine[0].clock, s.batches[batch]
    if settings.pipeline_parallel_size > 1:
        start_us = first_stage_starts_us(s, batch)
        duration_us = duration_of(s, batch, start_us)
        launch_in_stages(s, batch, start_us, duration_us)
    else:
        start_us = max(began_us(s), clock.device_free_us)
        duration_us = duration_of(s, batch, start_us)
        b.exec_end_us = start_us + duration_us
        if settings.has_kv_offloading:
            hand_over(s, LOAD, b.exec_end_us)
    if b.num_entries > 0:
        clock.device_free_us = b.exec_end_us
    if settings.log_steps:
        log_schedule(s, batch, duration_us, start_us)
    clock.num_batches += 1


@phase
def take_oldest(s: State) -> None:
    """Wait for the oldest batch in flight and take in its results."""
    settings, clock = s.engine[0].settings, s.engine[0].clock
    batch = clock.oldest_batch
    clock.now_us = max(clock.now_us, s.batches[batch].exec_end_us)
    clock.oldest_batch = in_flight(s, 1)
    clock.num_batches -= 1
    update_from_output(s, batch, clock.now_us)
    if settings.has_kv_offloading and s.engine[0].kv_offload.num_reported > 0:
        s.engine[0].queues.is_blocked = 0
    if settings.log_steps:
        log_update(s, batch, clock.now_us)


@part
def nothing_is_in_flight(s: State) -> bool:
    """Return whether no batch in flight computes anything."""
    for i in range(s.engine[0].clock.num_batches):  # noqa: SIM110 - numba knows no all() of a generator
        if s.batches[in_flight(s, i)].num_entries > 0:
            return False
    return True


@part
def bears_news(s: State, batch: int) -> bool:
    """Return whether something comes of what is in flight though it computes nothing: a transfer ends or is ordered."""
    if s.engine[0].settings.has_kv_offloading:
        kv = s.engine[0].kv_offload
        return kv.num_new_loads + kv.num_new_stores > 0 or tells(s, batch)
    return s.engine[0].settings.has_kv_transfers == 1 and brings_news(s, batch)


@part
def end_unlaunched(s: State, batch: int) -> None:
    """End an empty batch that has nothing before it at once, never launched."""
    settings, clock = s.engine[0].settings, s.engine[0].clock
    if settings.log_steps:
        log_schedule(s, batch, 0, NEVER)
    s.batches[batch].exec_end_us = clock.now_us
    clock.num_batches += 1


@phase
def drain_and_block(s: State) -> None:
    """Take in all that is in flight: nothing comes of it before an arrival."""
    clock, queues = s.engine[0].clock, s.engine[0].queues
    while clock.num_batches > 0:
        take_oldest(s)
    queues.is_blocked = 1


@phase
def run_with_batch_queue(s: State, until_us: int, coalesce: bool) -> int:
    """Schedule batches while their predecessors run (vllm 0.32.0 v1/engine/core.py:step_with_batch_queue)."""
    most = s.engine[0].settings.max_concurrent_batches
    clock, queues, current = s.engine[0].clock, s.engine[0].queues, s.engine[0].current_step
    while True:
        answer = reason_to_stop(s)
        if answer != NEVER:
            return answer
        if clock.now_us >= until_us:
            add_arrivals(s, until_us - 1)
            return REACHED
        if drop_requests_past_their_deadline(s, until_us) and is_paused(s):
            return PAUSED
        add_arrivals(s, clock.now_us)
        if clock.num_batches == 0 and (not has_work(s) or queues.is_blocked) and not hears_news(s):
            answer = wait_for_arrival(s, until_us)
            if answer != NEVER:
                return answer
            continue
        if coalesce and queues.num_running > 0 and jump_async(s, until_us):
            continue
        if has_requests(s):
            batch = in_flight(s, clock.num_batches)
            was_idle = nothing_is_in_flight(s)
            schedule(s, batch)
            b = s.batches[batch]
            is_empty = b.num_entries == 0 and current.num_preempted == 0
            # Nothing can be scheduled, and nothing in flight changes that: the clock may go to the next event at once.
            if is_empty and was_idle and not bears_news(s, batch):
                end_unlaunched(s, batch)
                drain_and_block(s)
                continue
            is_endless = preempts_without_end(s, batch)
            launch(s, batch)
            if is_endless:
                drain_and_block(s)
                queues.is_blocked = 2
                continue
            if clock.num_batches < most and (b.num_entries > 0 or has_requests(s)):
                continue
        take_oldest(s)


@part
def num_planned(s: State) -> int:
    """Return how many batches in flight compute something."""
    num = 0
    for i in range(s.engine[0].clock.num_batches):
        num += s.batches[in_flight(s, i)].num_entries > 0
    return num


@part
def take_oldest_now(s: State) -> None:
    """Take in the results of the oldest batch in flight, which ends now, as the step of all engines does."""
    clock = s.engine[0].clock
    clock.oldest_runs = 0
    s.batches[clock.oldest_batch].exec_end_us = clock.now_us
    take_oldest(s)


@phase
def run_in_lockstep(s: State, now_us: int) -> int:
    """Take in what the device has done by ``now_us``, when a step of all engines in step ends, and fill the queue.

    What a batch takes by itself is left in its ``exec_end_us``; the caller, which sees all engines, says when it
    ends. To call it twice at one time does no harm.
    """
    settings, clock, queues, current = (
        s.engine[0].settings,
        s.engine[0].clock,
        s.engine[0].queues,
        s.engine[0].current_step,
    )
    clock.now_us = max(clock.now_us, now_us)
    while True:
        if not has_room(s):
            return NEEDS_ROOM
        if clock.oldest_runs:
            take_oldest_now(s)
            continue
        drop_requests_past_their_deadline(s, clock.now_us + 1)
        add_arrivals(s, clock.now_us)
        has_news = settings.async_scheduling == 1 and queues.has_finished_ids == 1 and clock.num_batches > 0
        is_idle = queues.is_blocked or not (has_unfinished(s) or has_news)
        if is_idle or clock.num_batches >= settings.max_concurrent_batches:
            if clock.num_batches == 0 or s.batches[clock.oldest_batch].num_entries > 0:
                return REACHED
            take_oldest_now(s)
            continue
        batch = in_flight(s, clock.num_batches)
        was_idle = nothing_is_in_flight(s)
        current.step_of_wave = clock.num_steps_of_wave + num_planned(s)
        schedule(s, batch)
        has_entries = s.batches[batch].num_entries > 0
        if not has_entries and current.num_preempted == 0 and was_idle:
            queues.is_blocked = 1
        queues.is_blocked = queues.is_blocked or preempts_without_end(s, batch)
        start_us = clock.now_us
        for i in range(clock.num_batches):
            start_us += s.batches[in_flight(s, i)].exec_end_us
        s.batches[batch].exec_end_us = duration_of(s, batch, start_us)
        if settings.log_steps:
            log_schedule(s, batch, s.batches[batch].exec_end_us, NEVER)
        clock.num_batches += 1


@engine_entry
def run(engines: Table, engine: int, until_us: int, coalesce: bool) -> int:
    """Take every step of an engine that starts before ``until_us``; return REACHED, IDLE, NEEDS_ROOM or PAUSED.

    ``engine``: which row of the table it is.
    """
    s = engine_at(engines, engine)
    if s.engine[0].settings.is_lockstep:
        return run_in_lockstep(s, until_us)
    if s.engine[0].settings.max_concurrent_batches > 1:
        return run_with_batch_queue(s, until_us, coalesce=coalesce)
    return run_sync(s, until_us, coalesce=coalesce)
