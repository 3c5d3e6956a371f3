"""When clients give up: the requests with a deadline in the order in which it passes."""

from __future__ import annotations

from sim.engine.dtypes import ABORTED, FINISHED, NEVER
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def is_over(s: State, request: int) -> bool:
    """Return whether a request was finished, refused or dropped."""
    return FINISHED <= s.requests[request].status <= ABORTED


@part
def gives_up_us(s: State, request: int) -> int:
    """Return when a client with a deadline gives up: then, or when it sends, if that is later."""
    return max(s.deadline_us[request], s.requests[request].arrival_us)


@phase
def first_deadline_us(s: State) -> int:
    """Return when the first client that still waits gives up, NEVER when none will; passes over the others."""
    queues = s.engine[0].queues
    while queues.num_deadlines_taken < queues.num_deadlines:
        request = s.deadlines[queues.num_deadlines_taken]
        if not is_over(s, request):
            return gives_up_us(s, request)
        queues.num_deadlines_taken += 1
    return NEVER


@part
def next_deadline_us(s: State) -> int:
    """Return when the next client gives up, NEVER when none will."""
    queues = s.engine[0].queues
    if queues.num_deadlines_taken >= queues.num_deadlines:
        return NEVER
    return first_deadline_us(s)


@phase
def next_to_give_up(s: State) -> int:
    """Return the request whose client is the next to give up, of those whose place in a closed loop nobody has yet."""
    queues = s.engine[0].queues
    while queues.num_deadlines_heard < queues.num_deadlines:
        request = s.deadlines[queues.num_deadlines_heard]
        if not is_over(s, request):
            return request
        queues.num_deadlines_heard += 1
    return NEVER


@phase
def add_deadline(s: State, request: int) -> None:
    """Remember when a request's client gives up, if it does, behind those of the same time."""
    queues = s.engine[0].queues
    if s.deadline_us[request] == NEVER:
        return
    due_us, at = gives_up_us(s, request), queues.num_deadlines
    first = max(queues.num_deadlines_taken, queues.num_deadlines_heard)
    while at > first and gives_up_us(s, s.deadlines[at - 1]) > due_us:
        s.deadlines[at] = s.deadlines[at - 1]
        at -= 1
    s.deadlines[at] = request
    queues.num_deadlines += 1


@part
def learnt_us(s: State, request: int, seen_us: int, now_us: int) -> int:
    """Return when a client's place is free: it has seen its last token at ``seen_us``, or gave up before.

    NEVER where it gave up before ``now_us``: then the place was handed on (``waiting.hear_answers``).
    """
    if s.engine[0].settings.has_deadlines and s.deadline_us[request] != NEVER:
        due_us = gives_up_us(s, request)
        return NEVER if due_us < now_us else min(seen_us, due_us)
    return seen_us
