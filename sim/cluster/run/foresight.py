"""The soonest that an instance can end a request: a decision that reads who is in flight alone need not look before.

A step gives a request one token at most, and takes as long as the shortest step of the latency model at least. So an
instance with k steps to go before any of its requests can have its last token is left alone for k such steps, whatever
comes meanwhile: others make steps longer, never shorter. It is then advanced in one go, as far as it had come behind.
"""

from __future__ import annotations

from sim.cluster.arrays import Records
from sim.cluster.run.world import FOREVER, NEVER, TOO_MANY, World
from sim.engine import dtypes as dt
from sim.engine.counting.ends import RANKS, next_end
from sim.engine.deadlines import next_deadline_us
from sim.engine.run import in_flight
from sim.engine.state import State, engine_at
from sim.engine.step_time.step_duration import BETA1, BETA2, blackbox_us, output_delay_us
from sim.jit.compile import part, phase
from sim.latency.latency_model import BLACKBOX, SCALE

MOST_EXAMINED = 32
"""Of longer queues no more are examined: one that cannot end soon would not make up for the time."""


@part
def is_foreseen(state: State) -> bool:
    """Return whether requests that wait stand in the queue, and each step is seen where it ends."""
    settings = state.engine[0].settings
    return (
        settings.pipeline_parallel_size <= 1 and settings.has_loads == 0 and settings.session_kv_ttl_us == 0
    )


@part
def time_to_go_us(state: State, request: int, least_us: int, reads_engines: int) -> int:
    """Return how long after the end of its next step a request's last token is seen, at the soonest.

    ``reads_engines``: there, and not by its client.
    """
    r = state.requests[request]
    steps_us: int = max(r.max_total_tokens - r.num_tokens - 1, 0) * least_us
    if reads_engines:
        return steps_us
    return steps_us + output_delay_us(state.latency, r.max_total_tokens - r.num_prompt_tokens)


@phase
def is_calm(world: World, state: State, time_us: int) -> bool:
    """Return whether until a request ends, or comes, decisions miss nothing of an engine but blocks that it takes.

    Nobody waits, nobody leaves with the step under way at ``time_us``, whoever runs has a first token if any decision
    hears of it, and has all the blocks that it can ask for: nobody is preempted.
    """
    queues, settings, num_blocks = state.engine[0].queues, state.engine[0].settings, 0
    if queues.num_waiting > 0 or queues.first_pending != NEVER:
        return False
    last = state.engine[0].last_schedule
    if state.engine[0].clock.now_us > time_us and last.num_running > queues.num_running:
        return False
    for i in range(queues.num_running):
        r = state.requests[state.running[i]]
        if world.loop[0].hears_first_tokens and r.num_tokens <= r.num_prompt_tokens:
            return False
        num_blocks += r.max_total_tokens // settings.block_size + 2
    return num_blocks < len(state.blocks)


@part
def ties_with_next(state: State) -> bool:
    """Return whether more than one request has its last token in the step that gives the next last one."""
    step, num = next_end(state), min(5, state.engine[0].counting.num_ends)
    for i in range(1, num):  # noqa: SIM110 - numba knows no any() of a generator; those below the root of the heap
        if state.preempted[i] // RANKS == step:
            return True
    return False


@part
def has_blocks_for(state: State, num_requests: int) -> bool:
    """Return whether an engine has all the blocks that so many requests may ask for: none of them is preempted."""
    return num_requests * state.block_table.shape[1] < len(state.blocks)


@part
def shortest_step_us(world: World, instance: int, state: State, least_us: int) -> int:
    """Return what no step is shorter than before one of those that decode ends, while blocks are counted.

    All of them are in each, unless one is preempted. A request that comes and makes that possible has the instance
    looked at again (``end_of_new_us``).
    """
    num = world.fleet.instances[instance].num_in_flight
    if state.engine[0].settings.latency_kind != BLACKBOX or not has_blocks_for(state, num):
        return least_us
    return max(least_us, blackbox_us(state.latency, 0, state.engine[0].counting.num_decodes))


@part
def end_in_flight_us(state: State) -> int:
    """Return when a batch in flight ends that gives a last token, while blocks are counted; FOREVER without any."""
    clock, c = state.engine[0].clock, state.engine[0].counting
    request = c.first_of_firsts
    while request != NEVER:
        r = state.requests[request]
        if r.max_total_tokens == r.num_prompt_tokens + 1:
            return state.batches[clock.oldest_batch].exec_end_us
        request = r.next_waiting
    for i in range(clock.num_batches):
        b = state.batches[in_flight(state, i)]
        if b.num_last_tokens > 0:
            return b.exec_end_us
    return FOREVER


@phase
def counted_end_us(world: World, instance: int, state: State, now_us: int, least_us: int) -> int:
    """Return when one of those that run may end, at the soonest, while blocks are counted; FOREVER without any.

    It is the time itself if no other request comes before.
    """
    clock, c = state.engine[0].clock, state.engine[0].counting
    end_us, free_us = FOREVER, now_us
    if clock.num_batches > 0:
        end_us, free_us = end_in_flight_us(state), max(now_us, clock.device_free_us)
        if end_us < FOREVER:
            return end_us
    request = c.first_begun
    while request != NEVER:
        end_us = min(end_us, free_us + least_us + time_to_go_us(state, request, least_us, 0))
        request = state.requests[request].next_waiting
    if c.num_ends > 0:
        delay_us = 0
        if not ties_with_next(state):  # else another of them may be seen sooner
            r = state.requests[state.running[0]]
            delay_us = min(least_us, output_delay_us(state.latency, r.max_total_tokens - r.num_prompt_tokens))
        steps_us = (next_end(state) - c.num_scheduled) * shortest_step_us(world, instance, state, least_us)
        end_us = min(end_us, free_us + steps_us + delay_us)
    return end_us


@part
def waits_behind_all(state: State) -> bool:
    """Return whether none of those that wait can run before one of those that run has ended.

    All seats are taken; who is preempted meanwhile goes in front of the others.
    """
    settings, queues = state.engine[0].settings, state.engine[0].queues
    has_seats = queues.num_running < settings.max_num_seqs
    return not has_seats and settings.policy == dt.FCFS and settings.has_traits == 0


@phase
def least_time_to_go_us(state: State, least_us: int, reads_engines: int, is_counted: bool) -> int:
    """Return the least ``time_to_go_us`` of requests that run or wait; FOREVER without any.

    ``is_counted``: of those that wait alone.
    """
    queues, is_fcfs = state.engine[0].queues, state.engine[0].settings.policy == dt.FCFS
    to_go_us = FOREVER
    for i in range(0 if is_counted else queues.num_running):
        to_go_us = min(to_go_us, time_to_go_us(state, state.running[i], least_us, reads_engines))
    if queues.num_waiting == 0 or waits_behind_all(state):
        return to_go_us
    if queues.num_waiting > MOST_EXAMINED:
        return 0
    request = queues.first_waiting
    for i in range(queues.num_waiting):
        if not is_fcfs:
            request = state.heap[i]
        to_go_us = min(to_go_us, time_to_go_us(state, request, least_us, reads_engines))
        request = state.requests[request].next_waiting
    return to_go_us


@part
def end_of_pending_us(state: State, now_us: int, least_us: int) -> int:
    """Return when one of those that have yet to join the queue may end; FOREVER without any."""
    request, end_us = state.engine[0].queues.first_pending, FOREVER
    for _ in range(MOST_EXAMINED):
        if request == NEVER:
            return end_us
        r = state.requests[request]
        joins_us = max(now_us, r.queued_us)
        end_us = min(end_us, joins_us + least_us + time_to_go_us(state, request, least_us, 0))
        request = r.next_waiting
    if request == NEVER:
        return end_us
    return min(end_us, max(now_us, state.requests[request].queued_us) + least_us)  # nor any behind it


@phase
def next_end_us(world: World, instance: int, time_us: int) -> int:
    """Return when an instance may end a request, at the soonest, that was advanced to ``time_us``."""
    state, least_us = engine_at(world.engines, instance), world.least_step_us[instance]
    clock = state.engine[0].clock
    now_us = max(clock.now_us, time_us)
    end_us = end_of_pending_us(state, now_us, least_us)
    is_counted = world.counted_addresses[instance] != 0
    if is_counted:
        old_end_us = counted_end_us(world, instance, state, now_us, least_us)
        note_foreseen(world, instance, state, old_end_us)
        end_us = min(end_us, old_end_us)
    to_go_us = least_time_to_go_us(state, least_us, world.loop[0].reads_engines, is_counted)
    if to_go_us < FOREVER:
        first_us = now_us + least_us
        if clock.num_batches > 0:
            first_us = state.batches[clock.oldest_batch].exec_end_us
        end_us = min(end_us, first_us + to_go_us)
    deadline_us = next_deadline_us(state)
    return end_us if deadline_us == NEVER else min(end_us, deadline_us)


@part
def note_foreseen(world: World, instance: int, state: State, old_end_us: int) -> None:
    """Note when one of those that run may end, at the soonest, and whether all who come now are admitted at once."""
    queues, settings, seen = state.engine[0].queues, state.engine[0].settings, world.foreseen[instance]
    all_run = queues.num_waiting == 0 and queues.first_pending == NEVER
    is_known = settings.latency_kind == BLACKBOX and not settings.adds_time and all_run
    seen.old_end_us, seen.num_new = old_end_us, 0
    seen.num_new_tokens = 0 if is_known and state.engine[0].counting.first_begun == NEVER else TOO_MANY
    deadline_us = next_deadline_us(state)
    if deadline_us != NEVER:
        seen.new_end_us = min(seen.new_end_us, deadline_us)


@part
def are_admitted(state: State, seen: Records, request: int, num_in_flight: int) -> bool:
    """Return whether those that have come, the last one too, are in the first step scheduled then: all have room."""
    settings = state.engine[0].settings
    num_blocks = num_in_flight * state.block_table.shape[1] + settings.watermark_blocks
    num_tokens = seen.num_new_tokens + state.requests[request].num_prompt_tokens + settings.max_num_seqs
    return (
        num_in_flight <= settings.max_num_seqs
        and num_blocks < len(state.blocks)
        and num_tokens <= settings.max_num_batched_tokens
    )


@part
def note_new(state: State, seen: Records, request: int) -> None:
    """Move what is foreseen of an engine by a request that it has just got, and that is admitted at once.

    Until one ends, all that decode are in each step. So the steps before an old one's end that are scheduled after the
    new one has joined, of which there are some, take longer by its prompt and, after the first, by its token. Four
    steps may lie between: two that were scheduled before, the one in which an end is seen, and a rest of one.
    """
    clock, c, r, latency = (
        state.engine[0].clock,
        state.engine[0].counting,
        state.requests[request],
        state.latency,
    )
    step_us = blackbox_us(latency, 0, c.num_decodes + c.num_surplus + seen.num_new + 1)
    prompts_us = latency[BETA1] * seen.num_new_tokens // SCALE + seen.num_new + 1  # each is computed once
    joins_us = max(r.queued_us, clock.now_us, clock.device_free_us)
    num_steps = (seen.old_end_us - joins_us - prompts_us) // step_us - 4
    if seen.old_end_us < FOREVER and num_steps > 0:
        seen.old_end_us += latency[BETA1] * r.num_prompt_tokens // SCALE - 1
        seen.old_end_us += latency[BETA2] // SCALE * (num_steps - 1)
    step_us = blackbox_us(latency, 0, c.num_decodes + 1)
    first_us = blackbox_us(latency, r.num_prompt_tokens, c.num_decodes)
    end_us = r.queued_us + first_us + time_to_go_us(state, request, step_us, 0)
    seen.new_end_us = min(seen.new_end_us, end_us)
    seen.num_new += 1
    seen.num_new_tokens += r.num_prompt_tokens


@part
def end_of_new_us(world: World, instance: int, request: int) -> int:
    """Return when a request that an instance has just got may end, at the soonest, or another of the instance's."""
    state, least_us = engine_at(world.engines, instance), world.least_step_us[instance]
    if least_us == 0 or world.loop[0].reads_engines or not is_foreseen(state):
        return 0
    seen, deadline_us = world.foreseen[instance], FOREVER
    if world.loop[0].has_deadlines and state.deadline_us[request] != NEVER:
        deadline_us = state.deadline_us[request]
    if world.counted_addresses[instance] != 0:
        num = world.fleet.instances[instance].num_in_flight
        if has_blocks_for(state, num - 1) and not has_blocks_for(state, num):
            seen.num_new_tokens = TOO_MANY
            return 0
        if are_admitted(state, seen, request, num):
            note_new(state, seen, request)
            seen.new_end_us = min(seen.new_end_us, deadline_us)
            return min(seen.old_end_us, seen.new_end_us)
        seen.num_new_tokens = TOO_MANY
    due_us = world.due_us[(len(world.due_us) >> 1) + instance]
    end_us = state.requests[request].queued_us + least_us + time_to_go_us(state, request, least_us, 0)
    return min(due_us, end_us, deadline_us)
