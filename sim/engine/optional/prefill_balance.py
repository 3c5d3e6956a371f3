"""``prefill_schedule_interval`` N: data-parallel ranks in step compute prompts together, every N-th step.

A step of a wave whose number, from 0, is no multiple of N defers prompts: no request is admitted with more than one
token to compute, and a running request whose last step left prompt over sits the step out. Not so where no running
request decodes, nor after a step that did not defer and left requests waiting for room (vllm 0.32.0
v1/engine/core.py:DPEngineCoreProc._should_throttle_prefills, v1/core/sched/scheduler.py:schedule).
"""

from __future__ import annotations

from sim.engine.dtypes import FCFS, NEVER, SAMPLES, WAITING
from sim.engine.state import State
from sim.jit.compile import part, phase

IS_CHUNK, IS_DEFERRED = 1, 2
"""Marks of a request: its last step left known tokens over; it was passed over since it was last admitted."""


@phase
def begin_balance(s: State) -> None:
    """Decide whether the step in hand defers prompts."""
    settings, queues, current = s.engine[0].settings, s.engine[0].queues, s.engine[0].current_step
    current.defers_prefills = 0
    if current.step_of_wave % settings.prefill_schedule_interval == 0 or queues.is_prefill_bound:
        return
    for i in range(queues.num_running):
        if not s.prefill_marks[s.running[i]] & IS_CHUNK:
            current.defers_prefills = 1
            return


@part
def sits_out(s: State, request: int) -> bool:
    """Return whether a running request's prompt waits for a step that does not defer."""
    return s.engine[0].current_step.defers_prefills == 1 and s.prefill_marks[request] & IS_CHUNK != 0


@part
def is_deferred(s: State, request: int) -> bool:
    """Return whether a waiting request counts as passed over, not as waiting for room; a new grammar's does at once."""
    if s.prefill_marks[request] & IS_DEFERRED:
        return True
    return (
        s.engine[0].settings.waits_for_grammars == 1
        and s.traits[request].is_guided == 1
        and s.requests[request].status == WAITING
    )


@part
def num_waiting_for_room(s: State) -> int:
    """Return how many waiting requests were not passed over."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if settings.waits_for_grammars + settings.limits_adapters == 0:
        return queues.num_waiting
    num = 0
    if settings.policy != FCFS:
        for i in range(queues.num_waiting):
            num += not is_deferred(s, s.heap[i])
        return num
    request = queues.first_waiting
    while request != NEVER:
        num += not is_deferred(s, request)
        request = s.requests[request].next_waiting
    return num


@phase
def end_balance(s: State, batch: int) -> None:
    """Note what the step left over; ``skipped`` has the requests that it passed over."""
    queues, current = s.engine[0].queues, s.engine[0].current_step
    for i in range(current.num_skipped):
        s.prefill_marks[s.skipped[i]] |= IS_DEFERRED
    for i in range(s.batches[batch].num_entries):
        entry = s.entries[batch, i]
        s.prefill_marks[entry.request] = 0 if entry.kind & SAMPLES else IS_CHUNK
    if current.num_preempted == 0 and not current.defers_prefills:
        queues.is_prefill_bound = num_waiting_for_room(s) > 0
