"""Preemption: which running request goes when blocks run out, and what becomes of it (vLLM's scheduler.py)."""

from __future__ import annotations

from sim.engine.asked_features import forget_progress, loses_tie, take_share_back, take_states_back
from sim.engine.dtypes import FCFS, PREEMPTED, SAMPLES
from sim.engine.kv_cache.kv_cache_manager import allocate_slots, free, remember_private
from sim.engine.state import State
from sim.engine.step_time.step_sums import add_share
from sim.engine.waiting import join_behind_passed_over, prepend_request
from sim.jit.compile import part, phase


@part
def take_out_of_batch(s: State, batch: int, request: int) -> bool:
    """Take back the share of a preempted request; return whether it had been scheduled in this very step."""
    b = s.batches[batch]
    found = False
    for i in range(b.num_entries):
        if found:
            s.entries[batch, i - 1] = s.entries[batch, i]
        elif s.entries[batch, i].request == request:
            found = True
            num_tokens = s.entries[batch, i].num_tokens
            add_share(s, batch, i, -1)
            s.engine[0].current_step.token_budget += num_tokens
            s.requests[request].num_in_flight_tokens -= num_tokens
            if s.engine[0].settings.keeps_placeholders and s.entries[batch, i].kind & SAMPLES:
                s.requests[request].num_output_placeholders -= s.engine[0].settings.async_scheduling
    if found:
        b.num_entries -= 1
        take_share_back(s, request)
    return found


@part
def least_urgent_running(s: State) -> int:
    """Return where in ``running`` the victim stands: the last for fcfs, else the largest (urgency, arrival)."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    victim = queues.num_running - 1
    if settings.policy == FCFS:
        return victim
    victim = 0
    for i in range(1, queues.num_running):
        x, y = s.requests[s.running[i]], s.requests[s.running[victim]]
        is_tie = x.urgency == y.urgency and x.arrival_us == y.arrival_us
        is_later = x.urgency == y.urgency and x.arrival_us > y.arrival_us
        if x.urgency > y.urgency or is_later or (is_tie and loses_tie(s, s.running[i], s.running[victim])):
            victim = i
    return victim


@part
def remove_running_at(s: State, index: int) -> int:
    """Take the request at ``index`` out of ``running`` and return it."""
    queues = s.engine[0].queues
    request = s.running[index]
    for i in range(index, queues.num_running - 1):
        s.running[i] = s.running[i + 1]
    queues.num_running -= 1
    return request


@part
def end_preemption(s: State, request: int) -> None:
    """Count the time since a request was preempted, if it is."""
    if s.requests[request].status == PREEMPTED and request < len(s.preempted_us):
        s.preempted_us[request] += s.engine[0].clock.now_us


@part
def preempt(s: State, request: int) -> None:
    """Free a request's blocks and put it back into the queue; its outputs stay, all of it is computed again."""
    current, totals, r = s.engine[0].current_step, s.engine[0].totals, s.requests[request]
    remember_private(s, request)
    if s.engine[0].settings.has_loads:
        s.transfers[request].is_prefill_chunk = 0
    take_states_back(s, request)
    free(s, request)
    forget_progress(s, request)
    r.status = PREEMPTED
    if request < len(s.preempted_us):  # a fleet's engines go without
        s.preempted_us[request] -= s.engine[0].clock.now_us
    r.num_computed_tokens = (
        0  # it begins anew, but for what the prefix cache still has when it is admitted again
    )
    if s.engine[0].settings.keeps_placeholders == 0:
        r.num_stale_output_tokens = r.num_in_flight_tokens
        r.num_output_placeholders = 0
    r.num_preemptions += 1
    totals.num_preemptions += 1
    s.preempted[current.num_preempted] = request
    current.num_preempted += 1
    if s.engine[0].settings.has_queue_apart:
        join_behind_passed_over(s, request)
    else:
        prepend_request(s, request)


@part
def is_being_written(s: State, batch: int, request: int) -> bool:
    """Return whether an earlier batch in flight may still write to a request's blocks.

    A transfer into them would not wait for it, so an engine that KV is transferred to frees none (vllm 0.32.0
    v1/core/sched/scheduler.py:_request_blocks_can_be_freed).
    """
    num_in_flight = s.requests[request].num_in_flight_tokens
    for i in range(s.batches[batch].num_entries):
        if s.entries[batch, i].request == request:
            num_in_flight -= s.entries[batch, i].num_tokens
    return num_in_flight > 0


@phase
def preempt_until_it_fits(s: State, batch: int, request: int, num_tokens: int) -> bool:
    """Preempt the least urgent until ``request`` has its slots; return False when it was the victim itself.

    False, too, when the victim's blocks cannot be freed yet: it goes on running.
    """
    settings, current = s.engine[0].settings, s.engine[0].current_step
    while True:
        index = least_urgent_running(s)
        if settings.defers_block_frees and is_being_written(s, batch, s.running[index]):
            return False
        victim = remove_running_at(s, index)
        # With fcfs the victim is the last of ``running``, which this step has not reached. With other policies it may
        # have its share already; it then stood before the request in hand, whose place moves up.
        if settings.policy != FCFS:
            was_scheduled = take_out_of_batch(s, batch, victim)
            if was_scheduled or (index < current.req_index and settings.moves_cursor_for_every_victim):
                current.req_index -= 1
        preempt(s, victim)
        if victim == request:
            return False
        if allocate_slots(s, request, num_tokens):
            return True
