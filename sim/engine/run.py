"""The engine's loop: add who has arrived, schedule, run, update; sync, or with two batches in flight.

``run`` returns when the next step would start at ``until_us`` or later, when there is nothing left to do, or when
Python has to make an array larger.
"""

from __future__ import annotations

from sim.compile import engine_entry, part
from sim.engine.jump import jump_async, jump_sync
from sim.engine.log import has_room, log_schedule, log_update
from sim.engine.optional.blis import least_step_us, outgrew_again
from sim.engine.schedule import schedule
from sim.engine.state import NEVER, PENDING, SAMPLES, WAITING, State
from sim.engine.step_duration import take_step
from sim.engine.update import update_from_output
from sim.engine.waiting import add_request, next_queued_us
from sim.latency.batch import Work

REACHED, IDLE, NEEDS_ROOM = 0, 1, 2
"""Why ``run`` returned: the time is up, nothing can happen before another request comes, an array is full."""

MOST_FRUITLESS_STEPS = 300
"""More preempting steps in a row that brought nobody a token, and nobody new, than anything came of: 18 were the most
in two thousand random cases."""


@part
def add_arrivals(s: State) -> None:
    """Let everybody join the queue who is due by now."""
    e = s.counters[0]
    while e.num_pending_taken < e.num_pending:
        request = s.pending[e.num_pending_taken]
        r = s.requests[request]
        if r.queued_us > e.clock_us:
            break
        e.num_pending_taken += 1
        e.is_blocked = 0
        if r.status == PENDING:
            r.status = WAITING
            add_request(s, request)


@part
def wait_for_arrival(s: State, until_us: int) -> int:
    """Move the clock to the next arrival; return NEVER, or why it cannot be waited for."""
    e = s.counters[0]
    arrival_us = next_queued_us(s)
    if arrival_us == NEVER:
        return IDLE
    if arrival_us >= until_us:
        return REACHED
    e.clock_us = max(e.clock_us, arrival_us)
    return NEVER


@part
def has_unfinished(s: State) -> bool:
    """Return whether anybody runs or waits."""
    return s.counters[0].num_running + s.counters[0].num_waiting > 0


@part
def work_of(s: State, batch: int) -> Work:
    """Return what the latency model needs to know of a batch."""
    b = s.batches[batch]
    return (
        b.num_prefill_tokens,
        b.num_decode_tokens,
        b.decode_context_tokens,
        b.prefill_pairs,
        b.num_prefill_seqs,
        b.prefill_context_tokens,
        b.prefill_chunk_squares,
    )


@part
def duration_of(s: State, batch: int, start_us: int) -> int:
    """Return how long a batch takes that starts at ``start_us``, the KV blocks it brings back included."""
    compute_us = take_step(s, work_of(s, batch), start_us, s.batches[batch].step)
    return max(compute_us + s.counters[0].step_reload_us, least_step_us(s, s.batches[batch].num_entries))


@part
def samples(s: State, batch: int) -> bool:
    """Return whether a batch will give somebody a token."""
    for i in range(s.batches[batch].num_entries):  # noqa: SIM110 - numba knows no any() of a generator
        if s.entries[batch, i].kind & SAMPLES:
            return True
    return False


@part
def goes_in_circles(s: State, batch: int) -> bool:
    """Return whether preemptions follow on preemptions for ever: so many steps with nobody new and no token.

    It takes admission by the first chunk alone: of a request that needs more than the whole cache, of several that
    take each other's blocks in turn, or beside one that holds blocks and cannot run. vLLM would not stop.
    """
    e = s.counters[0]
    if e.num_preempted == 0:
        return False
    if e.is_blis:
        return outgrew_again(s)
    now = e.num_emissions + e.num_pending_taken
    if e.fruitless_since != now:
        e.fruitless_since = now
        e.num_fruitless_steps = 0
    e.num_fruitless_steps += 1
    if e.num_fruitless_steps < MOST_FRUITLESS_STEPS or samples(s, batch):
        return False
    return e.num_batches == 0 or not samples(s, e.oldest_batch)


@part
def run_sync(s: State, until_us: int, coalesce: bool) -> int:
    """Schedule, run, update; one batch at a time (vllm 0.32.0 v1/engine/core.py:step)."""
    e = s.counters[0]
    while True:
        if not has_room(s):
            return NEEDS_ROOM
        add_arrivals(s)
        if not has_unfinished(s) or e.is_blocked:
            answer = wait_for_arrival(s, until_us)
            if answer != NEVER:
                return answer
            continue
        if e.clock_us >= until_us:
            return REACHED
        if coalesce and e.num_running > 0 and jump_sync(s, until_us):
            continue
        schedule(s, 0)
        in_circles = goes_in_circles(s, 0)
        b = s.batches[0]
        duration_us = duration_of(s, 0, e.clock_us)
        if e.log_steps:
            log_schedule(s, 0, duration_us, e.clock_us)
        e.clock_us += duration_us
        update_from_output(s, 0, e.clock_us)
        if e.log_steps:
            log_update(s, 0, e.clock_us)
        e.is_blocked = in_circles or (b.num_entries == 0 and e.num_preempted == 0)


@part
def launch(s: State, batch: int) -> None:
    """Put a scheduled batch behind the one on the device; an empty one takes no device time."""
    e, b = s.counters[0], s.batches[batch]
    start_us = max(e.clock_us, e.device_free_us)
    duration_us = duration_of(s, batch, start_us)
    b.exec_end_us = start_us + duration_us
    if b.num_entries > 0:
        e.device_free_us = b.exec_end_us
    if e.log_steps:
        log_schedule(s, batch, duration_us, start_us)
    e.num_batches += 1


@part
def take_oldest(s: State) -> None:
    """Wait for the oldest batch in flight and take in its results."""
    e = s.counters[0]
    batch = e.oldest_batch
    e.clock_us = max(e.clock_us, s.batches[batch].exec_end_us)
    e.oldest_batch = 1 - batch
    e.num_batches -= 1
    update_from_output(s, batch, e.clock_us)
    if e.log_steps:
        log_update(s, batch, e.clock_us)


@part
def nothing_is_in_flight(s: State) -> bool:
    """Return whether no batch in flight, the newest one aside, computes anything."""
    e = s.counters[0]
    return e.num_batches == 0 or s.batches[e.oldest_batch].num_entries == 0


@part
def forgo(s: State, batch: int) -> None:
    """Let an empty batch that has nothing before it end at once, never launched."""
    e = s.counters[0]
    if e.log_steps:
        log_schedule(s, batch, 0, NEVER)
    s.batches[batch].exec_end_us = e.clock_us
    e.num_batches += 1


@part
def give_up_until_arrival(s: State) -> None:
    """Take in all that is in flight: nothing comes of it before an arrival."""
    e = s.counters[0]
    while e.num_batches > 0:
        take_oldest(s)
    e.is_blocked = 1


@part
def run_async(s: State, until_us: int, coalesce: bool) -> int:
    """Schedule a batch while its predecessor runs (vllm 0.32.0 v1/engine/core.py:step_with_batch_queue, size 2)."""
    e = s.counters[0]
    while True:
        if not has_room(s):
            return NEEDS_ROOM
        add_arrivals(s)
        if e.num_batches == 0 and (not has_unfinished(s) or e.is_blocked):
            answer = wait_for_arrival(s, until_us)
            if answer != NEVER:
                return answer
            continue
        if e.clock_us >= until_us:
            return REACHED
        if coalesce and e.num_running > 0 and jump_async(s, until_us):
            continue
        if has_unfinished(s) or e.has_finished_ids:
            batch = (e.oldest_batch + e.num_batches) % 2
            was_idle = nothing_is_in_flight(s)
            schedule(s, batch)
            b = s.batches[batch]
            if b.num_entries == 0 and e.num_preempted == 0 and was_idle:
                forgo(s, batch)
                give_up_until_arrival(s)
                continue
            in_circles = goes_in_circles(s, batch)
            launch(s, batch)
            if in_circles:
                give_up_until_arrival(s)
                continue
            if e.num_batches < 2 and (b.num_entries > 0 or has_unfinished(s) or e.has_finished_ids):
                continue
        take_oldest(s)


@engine_entry
def run(s: State, until_us: int, coalesce: bool) -> int:
    """Take every step that starts before ``until_us``; return REACHED, IDLE or NEEDS_ROOM."""
    if s.counters[0].async_scheduling:
        return run_async(s, until_us, coalesce=coalesce)
    return run_sync(s, until_us, coalesce=coalesce)
