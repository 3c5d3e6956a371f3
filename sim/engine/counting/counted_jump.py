"""Many decode steps at once while blocks are counted: those before the next end and the next admission.

Each costs what its duration costs; steps of one duration all together cost what one does.
"""

from __future__ import annotations

from sim.engine.counting.blocks_in_use import is_tight, steps_until_full
from sim.engine.counting.ends import next_end
from sim.engine.deadlines import next_deadline_us
from sim.engine.dtypes import FCFS, NEVER, PENDING
from sim.engine.log import count_steps, log_span
from sim.engine.optional.added_time import with_time_added_in_jump
from sim.engine.state import State
from sim.engine.step_time.step_duration import blackbox_us, take_step
from sim.engine.waiting import earlier, next_queued_us, note_taken_in
from sim.jit.compile import part, phase
from sim.latency.batch import sums_of_decodes
from sim.latency.latency_model import BLACKBOX

ENDLESS = 1 << 60
"""More steps than any run has."""


@part
def has_seats(s: State) -> bool:
    """Return whether a request that waits could be admitted in a step of the requests that run."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    is_full = queues.num_running >= settings.max_num_seqs
    return not is_full and queues.num_running < settings.max_num_batched_tokens


@part
def steps_to_end(s: State) -> int:
    """Return in how many steps from now on all that run decode, those that end in the last of them too; else 0.

    A head of the queue that did not fit comes to fit when something is freed, which is not before. None of the steps
    lacks a block.
    """
    queues, c = s.engine[0].queues, s.engine[0].counting
    is_even = c.num_decodes > 0 and c.num_decodes == queues.num_running and c.num_surplus == 0
    if not is_even or (queues.num_waiting > 0 and has_seats(s) and not queues.head_is_blocked):
        return 0
    num_steps = next_end(s) - c.num_scheduled
    return min(num_steps, steps_until_full(s)) if is_tight(s) else num_steps


@part
def take_note(s: State, request: int, noted_us: int) -> int:
    """Note that a look at ``noted_us`` found those in the queue that are due by then; return the next.

    ``request``: the first of the pending list that no look has found.
    """
    while request != NEVER and s.requests[request].queued_us <= noted_us:
        if s.requests[request].status == PENDING:
            note_taken_in(s, request, noted_us)
        request = s.requests[request].next_waiting
    return request


@part
def move_on(s: State, num_steps: int) -> None:
    """Count steps in which every running request got a token, and the head of the queue, if it could, asked in vain."""
    queues, totals, c = s.engine[0].queues, s.engine[0].totals, s.engine[0].counting
    if queues.num_waiting > 0 and has_seats(s):
        totals.num_kv_allocation_failures += num_steps
    c.num_scheduled += num_steps
    c.context_tokens += c.num_decodes * num_steps
    totals.num_steps += num_steps
    totals.num_emissions += num_steps
    totals.num_jumps += 1


@part
def looks_before(seen_us: int, duration_us: int, time_us: int) -> int:
    """Return how many looks, one at ``seen_us`` and one each ``duration_us`` from then on, come before a time."""
    if time_us <= seen_us:
        return 0
    return ENDLESS if duration_us == 0 else (time_us - seen_us + duration_us - 1) // duration_us


@part
def event_before(s: State, until_us: int) -> int:
    """Return when a request comes that may be admitted, or a client gives up, ``until_us`` at the latest."""
    queues, event_us = s.engine[0].queues, earlier(next_deadline_us(s), until_us)
    is_closed = not has_seats(s) or (queues.head_is_blocked and s.engine[0].settings.policy == FCFS)
    return event_us if is_closed else earlier(next_queued_us(s), event_us)


@phase
def jump_of_equal_steps(s: State, most: int, seen_us: int, duration_us: int, until_us: int) -> int:
    """Take up to ``most`` steps of one duration; return how many.

    ``seen_us``: when the first gives its tokens, and the loop looks for requests next; it does after each, and begins
    none from ``until_us`` on.
    """
    num_steps, event_us = most, event_before(s, until_us)
    last_us = seen_us + (num_steps - 1) * duration_us
    if last_us - duration_us >= event_us:
        num_steps = 1 + looks_before(seen_us, duration_us, event_us)
        last_us = seen_us + (num_steps - 1) * duration_us
    request = s.engine[0].queues.first_pending
    # those that the last look finds are noted by it
    while request != NEVER and s.requests[request].queued_us <= last_us - duration_us:
        num_looks = looks_before(seen_us, duration_us, s.requests[request].queued_us)
        noted_us = seen_us + num_looks * duration_us
        request = take_note(s, request, noted_us)
    num_seqs = s.engine[0].counting.num_decodes
    count_steps(s, num_seqs, 0, num_seqs, duration_us, num_steps)
    log_span(s, seen_us, duration_us, num_steps)
    move_on(s, num_steps)
    return num_steps


@phase
def jump_of_unequal_steps(s: State, most: int, start_us: int, is_ahead: bool, until_us: int) -> int:
    """Take up to ``most`` steps whose durations the latency model says one by one; as ``jump_counted``."""
    clock, totals, c = s.engine[0].clock, s.engine[0].totals, s.engine[0].counting
    event_us = event_before(s, until_us)
    request = s.engine[0].queues.first_pending
    num_steps = num_equal = num_spaced = first_us = space_us = before_us = given_us = 0
    most = min(most, len(s.ends_us) - 1)
    while num_steps < most and (num_steps == 0 or given_us < event_us):
        sums = sums_of_decodes(c.num_decodes, c.context_tokens + num_steps * c.num_decodes)
        step_us = with_time_added_in_jump(s, take_step(s, sums, start_us, totals.num_steps + num_steps))
        num_steps += 1
        if num_equal > 0 and step_us != before_us:
            count_steps(s, c.num_decodes, 0, c.num_decodes, before_us, num_equal)
            num_equal = 0
        before_us = step_us
        num_equal += 1
        given_before_us = given_us
        given_us = start_us if is_ahead else start_us + step_us
        start_us += step_us
        request = take_note(s, request, given_us)
        if num_spaced == 1:
            space_us = given_us - given_before_us
        elif num_spaced == 0 or given_us - given_before_us != space_us:
            if num_spaced > 0:
                log_span(s, first_us, space_us, num_spaced)
            num_spaced, first_us = 0, given_us
        num_spaced += 1
    count_steps(s, c.num_decodes, 0, c.num_decodes, before_us, num_equal)
    log_span(s, first_us, space_us, num_spaced)
    move_on(s, num_steps)
    clock.now_us = given_us
    return start_us


@phase
def jump_counted(s: State, start_us: int, is_ahead: bool, until_us: int) -> int:
    """Take all steps to the next end, or before the next admission; return when the last one ends, NEVER without any.

    ``start_us``: when the device begins the first. ``is_ahead``: a batch in flight ends then. ``until_us``: from when
    on none is scheduled. The loop's clock is left where it looks for requests next. Whose last token the last step
    computes, ``put_lasts`` has yet to sort out.
    """
    clock, queues = s.engine[0].clock, s.engine[0].queues
    most = steps_to_end(s)
    if most <= 0:
        return NEVER
    if s.engine[0].settings.latency_kind != BLACKBOX:
        return jump_of_unequal_steps(s, most, start_us, is_ahead, until_us)
    duration_us = with_time_added_in_jump(s, blackbox_us(s.latency, 0, queues.num_running))
    seen_us = start_us if is_ahead else start_us + duration_us
    num_steps = jump_of_equal_steps(s, most, seen_us, duration_us, until_us)
    clock.now_us = seen_us + (num_steps - 1) * duration_us
    return start_us + num_steps * duration_us
