"""Blocks of groups while requests decode: in most steps they need nothing.

A request needs a visit in the steps in which a block of some group fills, a new one begins, or one leaves its window.
When the next such step comes is known from its lengths and kept (``next_visit``), so each request is asked once per
visit, and a step at which no request is due costs a comparison per request. Groups of one kind and the same numbers
have their blocks at the same places, so one of them answers for all.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.groups.slots import blocks_to_go_on, go_on_in_groups
from sim.engine.kv_cache.groups.windows import has_to_let_go
from sim.engine.records.group_records import ALIGNED_STATE, CHUNKED, SLIDING
from sim.engine.state import State
from sim.jit.compile import part, phase

ENDLESS = 1 << 60


@part
def next_multiple(number: int, size: int) -> int:
    """Return the next multiple of ``size`` behind ``number``."""
    return (number // size + 1) * size


@part
def processed_at(s: State, request: int, step: int) -> int:
    """Return behind how many tokens blocks may be let go in a step: what is in flight may still read the others.

    At the door that may be a whole prompt, later it is one token of an async engine and none of a sync one.
    """
    r = s.requests[request]
    settings = s.engine[0].settings
    in_flight = r.num_in_flight_tokens if step == 0 else settings.async_scheduling
    return max(0, r.num_computed_tokens + step - in_flight * settings.excludes_tokens_in_flight)


@part
def processed_when_let_go(s: State, group: int, num_processed: int) -> int:
    """Return behind how many processed tokens, more than now, the next block of a group may be let go; NEVER: none."""
    g = s.kv_cache_groups[group]
    if g.kind == SLIDING:
        return next_multiple(max(0, num_processed - g.window + 1), g.block_size) + g.window - 1
    if g.kind == CHUNKED:
        return next_multiple(num_processed, g.window)
    if g.kind == ALIGNED_STATE:
        return next_multiple(max(0, num_processed - 1), g.block_size) + 1
    return NEVER


@phase
def next_visit(s: State, request: int, step: int) -> int:
    """Return the first step of a jump, behind ``step``, in which a request's blocks change in any group.

    Step j computes the j-th token from now on.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    ahead, computed, after = settings.async_scheduling, r.num_computed_tokens, step + 1
    ahead *= settings.excludes_tokens_in_flight
    processed = processed_at(s, request, step)
    first = ENDLESS
    group = settings.first_group_to_ask
    while group != NEVER:
        g, have = s.kv_cache_groups[group], s.group_rows[r.slot, group]
        first = min(first, max(after, have.num_blocks * g.block_size - computed))  # a new block
        if settings.enable_prefix_caching:  # one is full
            first = min(first, next_multiple(r.num_tokens + step, g.block_size) - r.num_tokens)
        let_go = processed_when_let_go(s, group, processed)
        if let_go != NEVER:
            first = min(first, max(after, let_go + ahead - computed))
        group = g.next_to_ask
    return first


@phase
def is_due_at_once(s: State, request: int) -> bool:
    """Return whether a request's blocks change in the first step of a jump."""
    settings, r = s.engine[0].settings, s.requests[request]
    num_processed = processed_at(s, request, 0)
    group = settings.first_group_to_ask
    while group != NEVER:
        g, have = s.kv_cache_groups[group], s.group_rows[r.slot, group]
        if r.num_computed_tokens + 1 > have.num_blocks * g.block_size:
            return True
        if settings.enable_prefix_caching and r.num_tokens >= (have.num_cached_blocks + 1) * g.block_size:
            return True
        if has_to_let_go(s, request, group, num_processed):
            return True
        group = g.next_to_ask
    return False


@part
def step_of_visit(s: State, request: int) -> int:
    """Return in which of the coming decode steps a request's blocks change next; the answer is kept for later."""
    r = s.requests[request]
    have = s.group_rows[r.slot, 0]
    if have.next_visit == 0:
        step = 0 if is_due_at_once(s, request) else next_visit(s, request, 0)
        have.next_visit = r.num_computed_tokens + step
    return max(0, have.next_visit - r.num_computed_tokens)


@part
def visit(s: State, request: int, step: int) -> int:
    """Give a request its blocks in a step of a jump; return in which step they change next."""
    r = s.requests[request]
    total, num_known = r.num_computed_tokens + step + 1, r.num_tokens + step
    go_on_in_groups(s, request, total - 1, total, processed_at(s, request, step), num_known)
    step = next_visit(s, request, step)
    s.group_rows[r.slot, 0].next_visit = r.num_computed_tokens + step
    return step


@part
def lets_go(s: State, request: int, num_processed: int) -> bool:
    """Return whether a request's visit may free a block."""
    group = s.engine[0].settings.first_group_to_ask
    while group != NEVER:
        if has_to_let_go(s, request, group, num_processed):
            return True
        group = s.kv_cache_groups[group].next_to_ask
    return False


@part
def can_take(s: State, step: int, watches_for_room: bool) -> bool:
    """Return whether a step finds blocks for all requests that are due in it, and none that waits may get in by it."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    num_needed = 0
    for i in range(queues.num_running):
        if s.next_in_round[i] != step:
            continue
        request = s.running[i]
        if watches_for_room and lets_go(s, request, processed_at(s, request, step)):
            return False
        total = s.requests[request].num_computed_tokens + step + 1
        slots = min(total + settings.num_lookahead_tokens, settings.max_model_len)
        for group in range(settings.num_kv_cache_groups):
            num_needed += blocks_to_go_on(s, request, group, total - 1, slots, total)
    return num_needed <= queues.num_free_blocks


@part
def first_visits(s: State) -> int:
    """Note when each running request is due first (``next_in_round``); return the first of these steps."""
    first = ENDLESS
    for i in range(s.engine[0].queues.num_running):
        due = step_of_visit(s, s.running[i])
        s.next_in_round[i] = due
        first = min(first, due)
    return first


@part
def visit_all_due(s: State, step: int) -> int:
    """Give all requests that are due in a step their blocks, in running order; return the next step with any."""
    first = ENDLESS
    for i in range(s.engine[0].queues.num_running):
        if s.next_in_round[i] == step:
            s.next_in_round[i] = visit(s, s.running[i], step)
        first = min(first, s.next_in_round[i])
    return first


@phase
def hand_out_blocks_of_groups(s: State, num_steps: int) -> int:
    """Give each request its blocks in all groups, step by step; return how many steps found enough, at most so many.

    Where the head of the queue waits for blocks, the step that frees one is taken singly: the head may get in by it.
    """
    settings, queues = s.engine[0].settings, s.engine[0].queues
    has_seats = queues.num_running < min(settings.max_num_seqs, settings.max_num_batched_tokens)
    watches_for_room = queues.num_waiting > 0 and has_seats
    step = first_visits(s)
    while step < num_steps:
        if not can_take(s, step, watches_for_room):
            return step
        step = visit_all_due(s, step)
    return num_steps


@part
def needs_nothing(s: State, request: int, num_new_tokens: int) -> bool:
    """Return whether a step changes no block of a running request: one token, the next visit known to come later.

    A request whose state at the prompt's end is marked anew in each step (``caching.mark_state_of_prompt``) is visited.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    ahead = settings.async_scheduling
    return (
        num_new_tokens == 1
        and r.num_computed_tokens < s.group_rows[r.slot, 0].next_visit
        and r.num_computed_tokens == r.num_tokens - 1 + ahead
        and r.num_in_flight_tokens >= ahead
        and not settings.aligns_states
        and settings.num_lookahead_tokens == 0
    )


@part
def allocate_in_groups(s: State, request: int, num_new_tokens: int) -> bool:
    """Give a running request the blocks for its next tokens; return False, only counting it, when they lack."""
    if needs_nothing(s, request, num_new_tokens):
        return True
    r, settings = s.requests[request], s.engine[0].settings
    num_computed = min(r.num_computed_tokens, settings.max_model_len)
    in_flight = r.num_in_flight_tokens * settings.excludes_tokens_in_flight
    total, num_processed = num_computed + num_new_tokens, max(0, num_computed - in_flight)
    if go_on_in_groups(s, request, num_computed, total, num_processed, r.num_tokens):
        return True
    s.engine[0].totals.num_kv_allocation_failures += 1
    return False
