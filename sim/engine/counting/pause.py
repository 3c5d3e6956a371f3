"""What an engine tells of itself at a pause, though blocks were only counted: those in use, and each request's tokens.

All of it follows from where the run stands; only the requests that run are looked at.
"""

from __future__ import annotations

from sim.engine.counting.ends import PUSHES
from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.run import add_arrivals, in_flight
from sim.engine.schedule import length_limit
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def blocks_of(s: State, num_computed: int) -> int:
    """Return how many blocks a request has of which so many tokens are computed, or in a step that computes them."""
    return cdiv(num_computed, s.engine[0].settings.block_size)


@part
def blocks_at_end(s: State, batch: int, request: int) -> int:
    """Return how many blocks a request has whose last token a batch in flight gives.

    Of an EOS the scheduler does not know: any later batch computes a token behind it.
    """
    r, is_newest = s.requests[request], s.batches[batch].step == s.engine[0].totals.num_steps - 1
    has_surplus = not is_newest and length_limit(s, request) > r.max_total_tokens
    return blocks_of(s, r.max_total_tokens - 1 + has_surplus)


@phase
def blocks_in_use(s: State) -> int:
    """Return how many blocks the running requests have: those that decode, whose prompt is begun, and that end."""
    clock, c, num_blocks = s.engine[0].clock, s.engine[0].counting, 0
    for i in range(c.num_ends):
        num_left = s.preempted[i] // PUSHES - c.num_scheduled
        num_blocks += blocks_of(s, s.requests[s.running[i]].max_total_tokens - 1 - num_left)
    if c.prefilling != NEVER:
        num_blocks += blocks_of(s, s.requests[c.prefilling].num_computed_tokens)
    first, last = c.first_of_firsts, c.first_of_lasts
    for i in range(max(clock.num_batches, 1)):
        batch = in_flight(s, i)
        for _ in range(s.batches[batch].num_first_tokens):
            if first == NEVER:
                break
            if s.requests[first].max_total_tokens == s.requests[first].num_prompt_tokens + 1:
                num_blocks += blocks_at_end(s, batch, first)
            first = s.requests[first].next_waiting
        for _ in range(s.batches[batch].num_last_tokens):
            if last == NEVER:
                break
            num_blocks += blocks_at_end(s, batch, last)
            last = s.requests[last].previous_waiting
    return num_blocks


@part
def note_counted(s: State, ends_us: int, until_us: int) -> None:
    """Note what the engine is like while the step that has just been scheduled runs, if a pause falls into it."""
    if ends_us >= until_us:
        seen = s.engine[0].last_schedule
        seen.num_running = s.engine[0].queues.num_running
        seen.num_free_blocks = len(s.blocks) - 1 - blocks_in_use(s)


@part
def give_tokens(s: State, request: int) -> None:
    """Enter the tokens that a running request has been given by now."""
    totals, r = s.engine[0].totals, s.requests[request]
    if r.first_token_us != NEVER:
        r.num_tokens = r.num_prompt_tokens + totals.num_emissions - r.first_emission
        r.last_token_us = max(s.engine[0].clock.now_us, r.first_token_us)
        r.last_emission = totals.num_emissions - 1


@phase
def settle(s: State, until_us: int) -> None:
    """Bring all that is read of an engine up to the time at which it stands; those due before a pause wait."""
    clock, queues, c = s.engine[0].clock, s.engine[0].queues, s.engine[0].counting
    for i in range(c.num_ends):
        give_tokens(s, s.running[i])
    request = c.first_of_lasts
    while request != NEVER:
        give_tokens(s, request)
        request = s.requests[request].previous_waiting
    queues.num_free_blocks = len(s.blocks) - 1 - blocks_in_use(s)
    if clock.now_us >= until_us:
        add_arrivals(s, until_us - 1)
