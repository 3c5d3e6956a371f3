"""Data-parallel ranks of a model with experts: all start their steps together, and one with nothing to do joins in.

Every layer with experts brings the tokens of all ranks together, so a step takes as long as the slowest rank. What
experts take goes by the tokens of all ranks (``among_ranks_us``), where the latency model tells experts apart. A rank
without a request runs a dummy step of one token while any other has work (vllm 0.32.0 v1/engine/core.py:
DPEngineCoreProc.run_busy_loop, execute_dummy_batch). Between two steps each rank takes in its requests and decides by
itself. Two things are left out: the ranks check only at every 16th step whether none has work, so that dummy steps go
on for some steps after the last request; and the time that it takes to wake the other ranks.
"""

from __future__ import annotations

import numpy as np

from sim.cluster.run.world import NEVER, World
from sim.engine import dtypes as dt
from sim.engine.deadlines import next_deadline_us
from sim.engine.kv_offload.waking import has_unfinished
from sim.engine.log import recount_step
from sim.engine.optional.added_time import next_grammar_us
from sim.engine.run import NEEDS_ROOM
from sim.engine.state import engine_at
from sim.engine.step_time.step_sums import sums_of
from sim.engine.waiting import earlier
from sim.engine.watching.called_run import run_engine
from sim.jit.compile import part, phase
from sim.latency.latency_model import TABULATED
from sim.latency.tabulated import CAPTURED, SHARED, among_ranks_us, tabulated_us


@phase
def boundary_us(world: World, first: int, end: int) -> int:
    """Return when the ranks ``first`` to ``end`` next decide: when their step ends, or a request joins idle ones."""
    planned_us, next_us, now_us = NEVER, NEVER, 0
    for rank in range(first, end):
        state = engine_at(world.engines, rank)
        clock, queues = state.engine[0].clock, state.engine[0].queues
        now_us = max(now_us, clock.now_us)
        if clock.oldest_runs:
            return state.batches[clock.oldest_batch].exec_end_us
        is_at_work = has_unfinished(state) and not queues.is_blocked
        if clock.num_batches > 0 or is_at_work:  # Python made room in between
            planned_us = clock.now_us
        event_us = earlier(next_deadline_us(state), next_grammar_us(state))
        if queues.first_pending != dt.NEVER:
            queued_us = state.requests[queues.first_pending].queued_us
            event_us = earlier(event_us, queued_us)
        if event_us != NEVER:
            next_us = event_us if next_us == NEVER else min(next_us, event_us)
    if planned_us != NEVER:
        return planned_us
    return NEVER if next_us == NEVER else max(now_us, next_us)


@part
def tokens_of(world: World, rank: int) -> int:
    """Return how many tokens a rank brings to the next step; one where it has a dummy."""
    state = engine_at(world.engines, rank)
    clock = state.engine[0].clock
    if clock.num_batches == 0:
        return 1
    b = state.batches[clock.oldest_batch]
    return max(1, int(b.num_prefill_tokens + b.num_decode_tokens))


@phase
def share_experts(world: World, first: int, end: int) -> None:
    """Let the next step of every rank take what it takes beside what the others bring to the experts.

    Each was planned as if the others had as many tokens. That is how it is while all have few enough for a CUDA graph,
    since all are padded to the fullest; else each has its own, and the experts have those of all.
    """
    total, most = 0, 0
    for rank in range(first, end):
        tokens = tokens_of(world, rank)
        total, most = total + tokens, max(most, tokens)
    expert_tokens = (2 * total + end - first) // (2 * (end - first))
    for rank in range(first, end):
        state = engine_at(world.engines, rank)
        settings, clock = state.engine[0].settings, state.engine[0].clock
        if settings.latency_kind != TABULATED or state.terms[SHARED] == 0.0:
            return
        if most <= state.terms[CAPTURED]:
            return
        b = state.batches[clock.oldest_batch]
        if clock.num_batches > 0 and b.num_prefill_tokens + b.num_decode_tokens > 0:
            sums = sums_of(state, clock.oldest_batch)
            alone_us = int(np.rint(tabulated_us(state.terms, sums)))
            among_us = int(np.rint(among_ranks_us(state.terms, sums, expert_tokens)))
            own_us = b.exec_end_us
            b.exec_end_us = max(0, own_us + among_us - alone_us)
            recount_step(state, own_us, b.exec_end_us)


@phase
def start_together(world: World, first: int, end: int, now_us: int) -> None:
    """Start the next step of all ranks; it ends when the slowest one has done."""
    share_experts(world, first, end)
    takes_us, has_work = 0, False
    for rank in range(first, end):
        state = engine_at(world.engines, rank)
        clock = state.engine[0].clock
        own_us = state.engine[0].settings.dummy_step_us
        if clock.num_batches > 0:
            has_work = True
            own_us = state.batches[clock.oldest_batch].exec_end_us
        takes_us = max(takes_us, own_us)
    for rank in range(first, end):
        clock = engine_at(world.engines, rank).engine[0].clock
        clock.num_steps_of_wave = clock.num_steps_of_wave + 1 if has_work else 0
    if not has_work:
        return
    for rank in range(first, end):
        state = engine_at(world.engines, rank)
        clock = state.engine[0].clock
        if clock.num_batches > 0:
            clock.oldest_runs = 1
            state.batches[clock.oldest_batch].exec_end_us = now_us + takes_us


@phase
def run_ranks(world: World, first: int, end: int, until_us: int) -> int:
    """Take all steps of some ranks that start before ``until_us``; return NEVER, or the rank that needs room first."""
    while True:
        now_us = boundary_us(world, first, end)
        if now_us == NEVER or now_us >= until_us:
            return NEVER
        for rank in range(first, end):
            if run_engine(world.run_addresses[rank], world.engines, rank, now_us, 0) == NEEDS_ROOM:
                return rank
        start_together(world, first, end, now_us)


@part
def is_rank(world: World, instance: int) -> bool:
    """Return whether an instance is one of several ranks in lockstep."""
    return world.first_rank[instance] != NEVER
