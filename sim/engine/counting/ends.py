"""Which request gets its last token in which step: known once its first token is scheduled, since none is preempted.

A heap whose least element is the next end; those of one step in the order in which the requests were admitted. Each
has four below it, so that few turns are taken. Its two columns lie in arrays that such a run has no other use for:
``State.preempted`` and ``State.running``. Where blocks may lack, requests are counted beside it by the step in which
they fill a block (``blocks_in_use.py``), in ``State.first_in_round``.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.run import in_flight
from sim.engine.state import State
from sim.jit.compile import part, phase

RANKS = 1 << 32
"""A key is a step times this, and how many requests were admitted before."""


@part
def residue_of(s: State, step: int, request: int) -> int:
    """Return after which steps, modulo the block size, the blocks of a request are full whose last step is ``step``."""
    return (step - s.requests[request].max_total_tokens + 1) % s.engine[0].settings.block_size


@part
def rise(s: State, at: int, key: int, request: int) -> None:
    """Put an end at a place of the heap that is free, or as far above it as it belongs."""
    while at > 0:
        parent = (at - 1) >> 2
        if s.preempted[parent] < key:
            break
        s.preempted[at], s.running[at] = s.preempted[parent], s.running[parent]
        at = parent
    s.preempted[at], s.running[at] = key, request


@part
def push_end(s: State, step: int, request: int) -> None:
    """Note in which step, counted by ``num_scheduled``, a request's last token is computed."""
    c = s.engine[0].counting
    rise(s, c.num_ends, step * RANKS + s.requests[request].slot, request)
    c.num_ends += 1
    if c.counts_residues:
        s.first_in_round[residue_of(s, step, request)] += 1


@part
def next_end(s: State) -> int:
    """Return the step of the next end; there must be one."""
    return s.preempted[0] // RANKS


@part
def pop_end(s: State) -> int:
    """Take the next end out of the heap; return its request.

    Its place goes down to a leaf, always to the least of four, and the last one comes up from there, seldom far. The
    least one is found by sums, not by branches, which no processor would foresee.
    """
    c = s.engine[0].counting
    request = s.running[0]
    if c.counts_residues:
        s.first_in_round[residue_of(s, next_end(s), request)] -= 1
    c.num_ends -= 1
    length, at, child = c.num_ends, 0, 1
    while child + 3 < length:
        left = child + (s.preempted[child + 1] < s.preempted[child])
        right = child + 2 + (s.preempted[child + 3] < s.preempted[child + 2])
        child = left + (right - left) * (s.preempted[right] < s.preempted[left])
        s.preempted[at], s.running[at] = s.preempted[child], s.running[child]
        at, child = child, 4 * child + 1
    if child < length:
        for other in range(child + 1, length):
            child += (other - child) * (s.preempted[other] < s.preempted[child])
        s.preempted[at], s.running[at] = s.preempted[child], s.running[child]
        at = child
    rise(s, at, s.preempted[length], s.running[length])
    return request


@part
def put_begun(s: State, request: int) -> None:
    """Put a request at the end of those whose prompts are begun: they stand there in the order of admission."""
    c = s.engine[0].counting
    s.requests[request].next_waiting = NEVER
    if c.first_begun == NEVER:
        c.first_begun = request
    else:
        s.requests[c.last_begun].next_waiting = request
    c.last_begun = request


@phase
def num_behind(s: State, slot: int) -> int:
    """Return how many of those that decode in the batch in hand were admitted after the request with a ``slot``."""
    clock, c, num, num_before = s.engine[0].clock, s.engine[0].counting, 0, 0
    for i in range(c.num_ends):
        num += s.preempted[i] % RANKS > slot
    for i in range(clock.num_batches):
        num_before += s.batches[in_flight(s, i)].num_last_tokens
    request = c.first_of_lasts
    while request != NEVER:
        num += num_before <= 0 and s.requests[request].slot > slot
        num_before -= 1
        request = s.requests[request].previous_waiting
    return num


# -- tokens in flight: a batch has the next ``num_first_tokens`` and ``num_last_tokens`` of two lists -----------------


@part
def put_first(s: State, request: int) -> None:
    """Put a request at the end of those whose first token is in flight."""
    c = s.engine[0].counting
    s.requests[request].next_waiting = NEVER
    if c.first_of_firsts == NEVER:
        c.first_of_firsts = request
    else:
        s.requests[c.last_of_firsts].next_waiting = request
    c.last_of_firsts = request


@part
def take_first(s: State) -> int:
    """Take the head of those whose first token is in flight; there must be one."""
    c = s.engine[0].counting
    request = c.first_of_firsts
    c.first_of_firsts = s.requests[request].next_waiting
    return request


@part
def put_last(s: State, request: int) -> None:
    """Put a request at the end of those whose last token is in flight."""
    c = s.engine[0].counting
    s.requests[request].previous_waiting = NEVER
    if c.first_of_lasts == NEVER:
        c.first_of_lasts = request
    else:
        s.requests[c.last_of_lasts].previous_waiting = request
    c.last_of_lasts = request


@part
def take_last(s: State) -> int:
    """Take the head of those whose last token is in flight; there must be one."""
    c = s.engine[0].counting
    request = c.first_of_lasts
    c.first_of_lasts = s.requests[request].previous_waiting
    return request
