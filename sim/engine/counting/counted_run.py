"""A whole run while blocks are counted, not handed out: sixty times as fast as ``run`` where nothing else happens.

Three things have to hold. No two requests share a block, so that nothing is found in the prefix cache. No running
request lacks one (``blocks_in_use.py``). And no client gives up while it waits. Then no request is preempted or
dropped, and each step computes a token of every request whose prompt is done. It is known beforehand which step gives a
request its last token, so it is touched when it is admitted, when its prompt is done, and then. Of the log of
completions it writes the ends alone.

Every step is decided as ``run`` decides it; outcomes, totals, spans and counts of steps are the same bits
(``tests/sim/engine/counting``). What may be counted, ``sim/countable.py`` says. A run ends here with its last request,
or before the first step for which one of the others might fail: with HANDED_OVER ``run`` goes on there
(``hand_over.py``), with CANNOT_COUNT it begins anew. A run with one KV cache group may be paused at a time: then all
that an engine tells of itself is there, too (``pause.py``).
"""

from __future__ import annotations

from sim.engine.counting.blocks_in_use import is_tight, next_step_may_lack
from sim.engine.counting.counted_jump import jump_counted
from sim.engine.counting.counted_step import (
    duration_counted,
    give_lasts,
    put_lasts,
    schedule_counted,
    update_counted,
)
from sim.engine.counting.ends import RANKS
from sim.engine.counting.hand_over import hand_over
from sim.engine.counting.pause import note_counted, settle
from sim.engine.deadlines import next_deadline_us
from sim.engine.dtypes import FCFS, NEVER
from sim.engine.kv_offload.waking import has_requests, has_unfinished
from sim.engine.log import has_room
from sim.engine.run import (
    IDLE,
    NEEDS_ROOM,
    REACHED,
    add_arrivals,
    in_flight,
    nothing_is_in_flight,
    wait_for_arrival,
)
from sim.engine.state import State, engine_at
from sim.engine.waiting import next_queued_us
from sim.jit.compile import engine_entry, part, phase
from sim.jit.references import Table

FOREVER = 1 << 62

HANDED_OVER, CANNOT_COUNT = 4, 5
"""Why ``run_counted`` returned, beside ``run``'s reasons: a request might lack a block, or a client gave up; with
several KV cache groups all is lost then, and the run has to begin anew. So it is where a request that decodes might
have to sit a step out, for a prompt that states cut (``counted_step.cut_begun``)."""


@part
def has_to_stop(s: State) -> bool:
    """Return whether a client has given up that still waits: its request has to be dropped, wherever it is.

    Likewise whether there may be too few blocks for those that run, where that is known of several groups.
    """
    due_us = next_deadline_us(s)
    has_given_up = due_us != NEVER and due_us <= s.engine[0].clock.now_us
    return has_given_up or s.engine[0].counting.has_lacked != 0


@part
def take_in_due(s: State) -> None:
    """Put the requests that are due into the queue; most often none is, and then nothing is called."""
    queued_us = next_queued_us(s)
    if queued_us != NEVER and queued_us <= s.engine[0].clock.now_us:
        add_arrivals(s, s.engine[0].clock.now_us)


@part
def has_room_to_count(s: State) -> bool:
    """Return whether the logs and the queue can take another jump, or another step."""
    settings, queues, fill = s.engine[0].settings, s.engine[0].queues, s.engine[0].log_fill
    if settings.log_spans and fill.num_spans + len(s.ends_us) > len(s.spans):
        return False
    if settings.log_completions and fill.num_completions + len(s.entries) * settings.max_num_seqs > len(
        s.completions
    ):
        return False
    return settings.policy == FCFS or queues.num_waiting + queues.num_added - queues.num_joined <= len(s.heap)


@part
def end_jump(s: State, pause_us: int) -> None:
    """Give the requests whose last token the last step of a jump computes that token."""
    clock, totals, b = s.engine[0].clock, s.engine[0].totals, s.batches[0]
    b.step, b.num_first_tokens, b.num_last_tokens = totals.num_steps - 1, 0, 0
    put_lasts(s, 0)
    note_counted(s, clock.now_us, pause_us)
    give_lasts(s, b.num_last_tokens, RANKS, clock.now_us, totals.num_emissions - 1)


@phase
def count_sync(s: State, until_us: int, pause_us: int) -> int:
    """Schedule, run, update; one batch at a time.

    ``pause_us``: ``until_us``, if it matters what the engine is like then (``note_counted``).
    """
    clock = s.engine[0].clock
    while has_room_to_count(s):
        if clock.now_us >= until_us:
            return REACHED
        if has_to_stop(s):
            return HANDED_OVER
        take_in_due(s)
        if not has_unfinished(s):
            answer = wait_for_arrival(s, until_us)
            if answer != NEVER:
                return answer
            continue
        if is_tight(s) and next_step_may_lack(s):
            return HANDED_OVER
        if jump_counted(s, clock.now_us, False, until_us) != NEVER:
            end_jump(s, pause_us)
            continue
        schedule_counted(s, 0)
        clock.now_us += duration_counted(s, 0, clock.now_us)
        note_counted(s, clock.now_us, pause_us)
        update_counted(s, 0, clock.now_us)
    return NEEDS_ROOM


@part
def take_oldest_counted(s: State) -> None:
    """Wait for the oldest batch in flight and give its tokens."""
    clock = s.engine[0].clock
    batch = clock.oldest_batch
    clock.now_us = max(clock.now_us, s.batches[batch].exec_end_us)
    clock.oldest_batch = in_flight(s, 1)
    clock.num_batches -= 1
    update_counted(s, batch, clock.now_us)


@part
def launch_counted(s: State, batch: int) -> None:
    """Put a scheduled batch behind the one on the device."""
    clock, b = s.engine[0].clock, s.batches[batch]
    start_us = max(clock.now_us, clock.device_free_us)
    b.exec_end_us = start_us + duration_counted(s, batch, start_us)
    if b.num_entries > 0:
        clock.device_free_us = b.exec_end_us
    clock.num_batches += 1


@part
def jumps_ahead(s: State, until_us: int, pause_us: int) -> bool:
    """Schedule batches and give the tokens of their predecessors until something changes; False when nothing can.

    At the door one batch is in flight, in which every running request decodes, as in each behind it.
    """
    clock = s.engine[0].clock
    if clock.num_batches != 1:
        return False
    b = s.batches[clock.oldest_batch]
    is_even = b.num_first_tokens + b.num_last_tokens + b.num_surplus + b.num_prefill_tokens == 0
    if not is_even or b.num_entries != s.engine[0].counting.num_decodes:
        return False
    end_us = jump_counted(s, b.exec_end_us, True, until_us)
    if end_us == NEVER:
        return False
    b.step = s.engine[0].totals.num_steps - 1
    put_lasts(s, clock.oldest_batch)
    clock.device_free_us = b.exec_end_us = end_us
    note_counted(s, end_us, pause_us)
    return True


@part
def drain_counted(s: State) -> None:
    """Give the tokens of all that is in flight: nothing comes of it before an arrival."""
    clock = s.engine[0].clock
    while clock.num_batches > 0:
        take_oldest_counted(s)


@phase
def count_with_batch_queue(s: State, until_us: int, pause_us: int) -> int:
    """Schedule batches while their predecessors run; as ``count_sync``."""
    clock, most = s.engine[0].clock, s.engine[0].settings.max_concurrent_batches
    while has_room_to_count(s):
        if clock.now_us >= until_us:
            return REACHED
        if has_to_stop(s):
            return HANDED_OVER
        take_in_due(s)
        if clock.num_batches == 0 and not has_unfinished(s):
            answer = wait_for_arrival(s, until_us)
            if answer != NEVER:
                return answer
            continue
        if is_tight(s) and next_step_may_lack(s):
            return HANDED_OVER
        if jumps_ahead(s, until_us, pause_us):
            continue
        if has_requests(s):
            batch = in_flight(s, clock.num_batches)
            was_idle = nothing_is_in_flight(s)
            schedule_counted(s, batch)
            is_empty = s.batches[batch].num_entries == 0
            if is_empty and was_idle:
                s.batches[batch].exec_end_us = clock.now_us
                clock.num_batches += 1
                drain_counted(s)
                continue
            launch_counted(s, batch)
            note_counted(s, clock.device_free_us, pause_us)
            if clock.num_batches < most and (not is_empty or has_requests(s)):
                continue
        take_oldest_counted(s)
    return NEEDS_ROOM


@engine_entry
def run_counted(engines: Table, engine: int, until_us: int, settles: bool) -> int:
    """Take every step of an engine that starts before ``until_us``; return REACHED, IDLE or a reason not to go on.

    ``engine``: which row of the table it is. ``settles``: at a pause, all that an engine tells of itself is to be
    there; with several KV cache groups, but for how many blocks are free.
    """
    s = engine_at(engines, engine)
    is_queued = s.engine[0].settings.max_concurrent_batches > 1
    pause_us = until_us if settles else FOREVER
    reason = count_with_batch_queue(s, until_us, pause_us) if is_queued else count_sync(s, until_us, pause_us)
    has_groups = len(s.kv_cache_groups) > 0
    if s.engine[0].counting.has_lacked or (has_groups and reason == HANDED_OVER):
        return CANNOT_COUNT
    if reason in (REACHED, IDLE):
        if settles:
            settle(s, until_us)
    elif reason == HANDED_OVER:
        if not has_room(s):  # blocks that are handed out are entered into the hash table
            return NEEDS_ROOM
        hand_over(s)
    return reason
