"""The waiting queue: a linked list for fcfs, a heap for every other policy (vLLM's request_queue.py)."""

from __future__ import annotations

from sim.engine.deadlines import add_deadline, gives_up_us, learnt_us, next_to_give_up
from sim.engine.dtypes import ALL_COMPILE, FCFS, NEVER, REJECTED
from sim.engine.state import State
from sim.jit.compile import part, phase

MOST_PASSED = 1000
"""So many requests, and twice those pending, may be passed by those that join the list before fingers are placed."""


@part
def goes_before(s: State, a: int, b: int) -> bool:
    """Return whether request ``a`` is more urgent; ties by arrival, then number (vLLM's Request.__lt__)."""
    x, y = s.requests[a], s.requests[b]
    if x.urgency != y.urgency:
        return x.urgency < y.urgency
    if x.arrival_us != y.arrival_us:
        return x.arrival_us < y.arrival_us
    return a < b


@part
def sift_up(s: State, at: int) -> None:
    """Restore the heap after its element ``at`` became more urgent."""
    request = s.heap[at]
    while at > 0:
        parent = (at - 1) // 2
        if not goes_before(s, request, s.heap[parent]):
            break
        s.heap[at] = s.heap[parent]
        at = parent
    s.heap[at] = request


@part
def sift_down(s: State, at: int) -> None:
    """Restore the heap after its element ``at`` became less urgent."""
    request, length = s.heap[at], s.engine[0].queues.num_waiting
    while 2 * at + 1 < length:
        child = 2 * at + 1
        if child + 1 < length and goes_before(s, s.heap[child + 1], s.heap[child]):
            child += 1
        if not goes_before(s, s.heap[child], request):
            break
        s.heap[at] = s.heap[child]
        at = child
    s.heap[at] = request


@part
def add_request(s: State, request: int) -> None:
    """Put a request at its place in the queue: the end for fcfs."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if settings.policy != FCFS:
        s.heap[queues.num_waiting] = request
        queues.num_waiting += 1
        sift_up(s, queues.num_waiting - 1)
        queues.head_is_blocked = 0
        return
    if queues.head_is_blocked == ALL_COMPILE:
        queues.head_is_blocked = 0
    r = s.requests[request]
    r.next_waiting, r.previous_waiting = NEVER, queues.last_waiting
    if queues.last_waiting == NEVER:
        queues.first_waiting = request
    else:
        s.requests[queues.last_waiting].next_waiting = request
    queues.last_waiting = request
    queues.num_waiting += 1


@part
def prepend_request(s: State, request: int) -> None:
    """Put a preempted request back: at the front for fcfs, at its own place for the others."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if settings.policy != FCFS:
        add_request(s, request)
        return
    r = s.requests[request]
    r.next_waiting, r.previous_waiting = queues.first_waiting, NEVER
    if queues.first_waiting == NEVER:
        queues.last_waiting = request
    else:
        s.requests[queues.first_waiting].previous_waiting = request
    queues.first_waiting = request
    queues.num_waiting += 1
    queues.head_is_blocked = 0


@phase
def join_behind_passed_over(s: State, request: int) -> None:
    """Put a request right behind those that were passed over, which stand in a queue of their own (fcfs)."""
    queues, r = s.engine[0].queues, s.requests[request]
    before = queues.last_passed_over - 1
    after = queues.first_waiting if before == NEVER else s.requests[before].next_waiting
    r.previous_waiting, r.next_waiting = before, after
    if before == NEVER:
        queues.first_waiting = request
    else:
        s.requests[before].next_waiting = request
    if after == NEVER:
        queues.last_waiting = request
    else:
        s.requests[after].previous_waiting = request
    queues.num_waiting += 1
    queues.head_is_blocked = 0


@phase
def join_passed_over(s: State, request: int) -> None:
    """Put a request whose grammar compiles at the end of those that were passed over."""
    join_behind_passed_over(s, request)
    s.engine[0].queues.last_passed_over = request + 1


@part
def peek_request(s: State) -> int:
    """Return the head of the queue."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    return queues.first_waiting if settings.policy == FCFS else s.heap[0]


@part
def remove_request(s: State, request: int) -> None:
    """Take a request out of the queue, wherever it is."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    queues.head_is_blocked = 0
    if settings.policy != FCFS:
        at = 0
        while s.heap[at] != request:
            at += 1
        queues.num_waiting -= 1
        s.heap[at] = s.heap[queues.num_waiting]
        if at < queues.num_waiting:
            sift_down(s, at)
            sift_up(s, at)
        return
    r = s.requests[request]
    if settings.has_queue_apart and queues.last_passed_over == request + 1:
        queues.last_passed_over = r.previous_waiting + 1
    if r.previous_waiting == NEVER:
        queues.first_waiting = r.next_waiting
    else:
        s.requests[r.previous_waiting].next_waiting = r.next_waiting
    if r.next_waiting == NEVER:
        queues.last_waiting = r.previous_waiting
    else:
        s.requests[r.next_waiting].previous_waiting = r.previous_waiting
    queues.num_waiting -= 1


@phase
def skip_head(s: State, request: int) -> None:
    """Pass over the head of the queue for the rest of a step."""
    current = s.engine[0].current_step
    remove_request(s, request)
    s.skipped[current.num_skipped] = request
    current.num_skipped += 1


@phase
def put_skipped_back(s: State) -> None:
    """Put requests that were passed over back where they stood; note where all wait for grammars alone."""
    queues, current = s.engine[0].queues, s.engine[0].current_step
    is_all = current.num_skipped > 0 and queues.num_waiting == 0 and queues.next_grammar_us != NEVER
    for i in range(current.num_skipped - 1, -1, -1):
        prepend_request(s, s.skipped[i])
    settings = s.engine[0].settings
    if settings.has_queue_apart and current.num_skipped > 0 and queues.last_passed_over == 0:
        queues.last_passed_over = s.skipped[current.num_skipped - 1] + 1
    others = settings.limits_adapters + settings.has_loads + settings.may_pass_over_empty
    if is_all and others == 0 and settings.pipeline_parallel_size == 1:
        queues.head_is_blocked = ALL_COMPILE


@part
def next_queued_us(s: State) -> int:
    """Return when the next request joins the queue, NEVER when none will."""
    first = s.engine[0].queues.first_pending
    return NEVER if first == NEVER else s.requests[first].queued_us


@part
def earlier(a_us: int, b_us: int) -> int:
    """Return the earlier of two times, either of which may be NEVER."""
    if a_us == NEVER or (b_us != NEVER and b_us < a_us):
        return b_us
    return a_us


@part
def add_pending(s: State, request: int) -> None:
    """Add a request to the pending list at its ``queued_us``, behind those of the same time."""
    queues, r = s.engine[0].queues, s.requests[request]
    queues.num_added += 1
    if queues.first_pending == NEVER:
        queues.first_pending = queues.last_pending = request
        queues.first_finger = queues.num_fingers = queues.num_pending_passed = 0
        r.next_waiting = NEVER
        return
    after = finger_behind(s, r.queued_us) if queues.first_finger < queues.num_fingers else NEVER
    before = queues.last_pending if after == NEVER else before_pending(s, after)
    num_passed = 0
    while before != NEVER and s.requests[before].queued_us > r.queued_us:
        after = before
        before = before_pending(s, after)
        num_passed += 1
    put_between(s, request, before, after)
    if num_passed > 0:
        queues.num_pending_passed += num_passed
        if queues.num_pending_passed > MOST_PASSED + 2 * (queues.num_added - queues.num_joined):
            place_fingers(s)


@part
def before_pending(s: State, request: int) -> int:
    """Return the request before one in the pending list, NEVER before the first."""
    if request == s.engine[0].queues.first_pending:
        return NEVER
    return s.requests[request].previous_waiting


@part
def put_between(s: State, request: int, before: int, after: int) -> None:
    """Put a request into the pending list between two; NEVER: there is none."""
    queues, r = s.engine[0].queues, s.requests[request]
    r.next_waiting = after
    if before == NEVER:
        queues.first_pending = request
    else:
        r.previous_waiting = before
        s.requests[before].next_waiting = request
    if after == NEVER:
        queues.last_pending = request
    else:
        s.requests[after].previous_waiting = request


@phase
def finger_behind(s: State, queued_us: int) -> int:
    """Return the first finger's request that joins after a time, NEVER where none does."""
    queues = s.engine[0].queues
    low, high = queues.first_finger, queues.num_fingers
    while low < high:
        middle = (low + high) // 2
        if s.requests[s.fingers[middle]].queued_us > queued_us:
            high = middle
        else:
            low = middle + 1
    return NEVER if low == queues.num_fingers else s.fingers[low]


@phase
def place_fingers(s: State) -> None:
    """Note requests of the pending list at equal distances: a request that joins need not pass all behind its place.

    It takes as long as half of what was passed since it was done last.
    """
    queues = s.engine[0].queues
    stride = (queues.num_added - queues.num_joined) // len(s.fingers) + 1
    queues.first_finger = queues.num_fingers = queues.num_pending_passed = 0
    request, place = queues.first_pending, 0
    while request != NEVER:
        if place % stride == 0 and queues.num_fingers < len(s.fingers):
            s.fingers[queues.num_fingers] = request
            queues.num_fingers += 1
        request = s.requests[request].next_waiting
        place += 1


@part
def lift_first_finger(s: State) -> None:
    """Remove the head of the pending list: no finger stays on it."""
    queues = s.engine[0].queues
    if queues.first_finger < queues.num_fingers and s.fingers[queues.first_finger] == queues.first_pending:
        queues.first_finger += 1


@part
def take_first_pending(s: State) -> None:
    """Take the head of the pending list out; there must be one."""
    queues = s.engine[0].queues
    lift_first_finger(s)
    queues.num_joined += 1
    queues.first_pending = s.requests[queues.first_pending].next_waiting


@part
def note_taken_in(s: State, request: int, time_us: int) -> None:
    """Note when the engine, between two steps, found a request in its queue, if that was not noted yet.

    A jump notes it for those that come while it lasts; what a later step would note then counts no more.
    """
    if s.taken_in_us[request] == NEVER:
        s.taken_in_us[request] = time_us


@part
def drop_pending(s: State, request: int) -> None:
    """Take a request out of the pending list before it has joined the queue."""
    queues, r = s.engine[0].queues, s.requests[request]
    queues.num_added -= 1
    if request == queues.first_pending:
        lift_first_finger(s)
        queues.first_pending = r.next_waiting
        return
    queues.num_fingers = queues.first_finger  # there may be one on it
    s.requests[r.previous_waiting].next_waiting = r.next_waiting
    if request == queues.last_pending:
        queues.last_pending = r.previous_waiting
    else:
        s.requests[r.next_waiting].previous_waiting = r.previous_waiting


@phase
def release_held(s: State, seen_us: int) -> None:
    """Make a closed loop's next request arrive: its user has seen an answer, a refusal too, and thought.

    Under a cap a slot is free; the request that takes it arrives when it is due, if that is later.
    """
    settings, queues = s.engine[0].settings, s.engine[0].queues
    if queues.next_held >= queues.num_requests:
        return
    request = s.held[queues.next_held]
    r = s.requests[request]
    held_us = r.arrival_us
    r.arrival_us = seen_us + settings.think_time_us
    if settings.is_capped:
        r.arrival_us = max(r.arrival_us, held_us)
    r.urgency += settings.age_weight_per_us * (r.arrival_us - held_us)
    r.queued_us += r.arrival_us  # it held its own delay
    add_pending(s, request)
    if settings.has_deadlines and s.deadline_us[request] != NEVER:
        if not settings.is_capped:  # it has as long from its arrival as it had
            s.deadline_us[request] += r.arrival_us - held_us
        add_deadline(s, request)
    queues.next_held += 1


@phase
def drop_refused(s: State, request: int) -> None:
    """Take a request that the front end refuses out of the pending list; a closed loop's next one may go."""
    drop_pending(s, request)
    if s.engine[0].settings.is_closed_loop:
        release_held(s, s.requests[request].queued_us)


@part
def first_refused(s: State, before_us: int) -> int:
    """Return the first request that the front end refuses before a time, NEVER if there is none."""
    request = s.engine[0].queues.first_pending
    while request != NEVER and s.requests[request].queued_us < before_us:
        if s.requests[request].status == REJECTED:
            return request
        request = s.requests[request].next_waiting
    return NEVER


@phase
def hear_answers(s: State, before_us: int) -> None:
    """Let a closed loop's next requests go for the answers before a time: refusals, and clients that gave up.

    In the order of their times: of two answers the earlier one lets the next request go. To let go of one may bring
    another such answer. Requests whose clients gave up are dropped between two steps (``abort.drop_overdue``).
    """
    queues = s.engine[0].queues
    while True:
        refused, given_up = first_refused(s, before_us), next_to_give_up(s)
        if given_up != NEVER:
            due_us = gives_up_us(s, given_up)
            if due_us < before_us and (refused == NEVER or due_us <= s.requests[refused].queued_us):
                queues.num_deadlines_heard += 1
                release_held(s, due_us)
                continue
        if refused == NEVER:
            return
        drop_refused(s, refused)


@part
def hear_before_deadlines(s: State, by_us: int) -> None:
    """Let a closed loop's next requests go for all answers by a time, where clients give up: those that go may, too."""
    settings = s.engine[0].settings
    if settings.has_deadlines and settings.is_closed_loop:
        hear_answers(s, by_us + 1)


@part
def answer(s: State, request: int, seen_us: int) -> None:
    """Let a closed loop's next request go for a last token that is seen at ``seen_us``, if its client still waits."""
    if s.engine[0].settings.is_closed_loop:
        free_us = learnt_us(s, request, seen_us, s.engine[0].clock.now_us)
        if free_us != NEVER:
            release_held(s, free_us)
