"""Requests whose client goes away: dropped between two steps, blocks freed (vLLM's scheduler.py:finish_requests)."""

from __future__ import annotations

from sim.engine.asked_features import (
    abort_held,
    depart,
    free_once_written,
    keep_row,
    leave_pin,
    let_go_of_inputs,
)
from sim.engine.deadlines import first_deadline_us, is_over, next_deadline_us
from sim.engine.dtypes import ABORTED, GAVE_UP, NEVER, PENDING, PREEMPTED, RUNNING, WAITING
from sim.engine.log import log_completion
from sim.engine.preemption import end_preemption, remove_running_at
from sim.engine.state import State
from sim.engine.waiting import hear_before_deadlines, remove_request
from sim.jit.compile import part, phase


@phase
def abort(s: State, request: int) -> None:
    """Drop a request wherever it is; results of it that are still in flight are passed over."""
    settings, queues, r = s.engine[0].settings, s.engine[0].queues, s.requests[request]
    slot = r.slot
    if settings.has_kv_offloading and r.status != PENDING and not is_over(s, request):
        depart(s, request, r.num_computed_tokens)
    let_go_of_inputs(s, request)
    if r.status == RUNNING:
        for i in range(queues.num_running):
            if s.running[i] == request:
                remove_running_at(s, i)
                break
        free_once_written(s, request)
        if settings.has_kv_offloading:
            keep_row(s, request, slot)
    elif settings.has_loads and s.transfers[request].is_held:
        end_preemption(s, request)
        abort_held(s, request)
    elif r.status == WAITING or r.status == PREEMPTED:  # noqa: PLR1714 - numba compares scalars
        end_preemption(s, request)
        remove_request(s, request)
        if settings.session_kv_ttl_us > 0 and r.scheduled_us == NEVER:
            leave_pin(s, request)
    elif r.status != PENDING:
        return
    r.status = ABORTED
    queues.is_blocked = 0
    queues.fruitless_since = NEVER
    queues.has_finished_ids = 1


@phase
def drop_overdue(s: State, until_us: int) -> None:
    """Abort every request whose deadline has come before ``until_us``."""
    clock, queues = s.engine[0].clock, s.engine[0].queues
    while True:
        due_us = first_deadline_us(s)
        if due_us == NEVER or due_us > clock.now_us or due_us >= until_us:
            return
        request = s.deadlines[queues.num_deadlines_taken]
        queues.num_deadlines_taken += 1
        abort(s, request)
        log_completion(s, request, clock.now_us, GAVE_UP)


@part
def drop_requests_past_their_deadline(s: State, until_us: int) -> bool:
    """Abort what is overdue, and was so before ``until_us``, before the next step; return whether anything was."""
    clock = s.engine[0].clock
    hear_before_deadlines(s, clock.now_us)
    due_us = next_deadline_us(s)
    if due_us != NEVER and due_us <= clock.now_us and due_us < until_us:
        drop_overdue(s, until_us)
        return True
    return False
