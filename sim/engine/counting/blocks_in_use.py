"""How many blocks the running requests have, and whether the next step might lack one, though none is handed out.

A request that decodes fills a block every ``block_size`` steps. How many do so after which steps, modulo that, says
with their tokens how many blocks all of them have, and when the cache is full; no request is looked at. It is counted
from the first time on that anyone asks. Of several KV cache groups only an upper bound is known.
"""

from __future__ import annotations

from sim.engine.counting.ends import RANKS, residue_of
from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.run import in_flight
from sim.engine.schedule import capped, effective_long_prefill_threshold, length_limit
from sim.engine.state import State
from sim.jit.compile import part, phase


@phase
def count_residues(s: State) -> None:
    """Count the requests that decode by the step after which their blocks are full."""
    c = s.engine[0].counting
    for k in range(s.engine[0].settings.block_size):
        s.first_in_round[k] = 0
    for i in range(c.num_ends):
        s.first_in_round[residue_of(s, s.preempted[i] // RANKS, s.running[i])] += 1
    c.counts_residues = 1


@part
def blocks_of(s: State, num_computed: int) -> int:
    """Return how many blocks a request has of which so many tokens are computed, or in a step that computes them."""
    return cdiv(num_computed, s.engine[0].settings.block_size)


@part
def blocks_of_decodes(s: State) -> int:
    """Return how many blocks those have that the next step computes a token of: by their tokens and what is free."""
    c, length = s.engine[0].counting, s.engine[0].settings.block_size
    num_places = c.context_tokens - c.num_decodes
    k = c.num_scheduled % length
    for num_free in range(length):
        num_places += num_free * s.first_in_round[k]
        k = k + 1 if k + 1 < length else 0
    return num_places // length


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
    """Return how many blocks the running requests have: those that decode, whose prompt is begun, and that end.

    In the midst of scheduling, those of the batch in hand, too.
    """
    clock, c = s.engine[0].clock, s.engine[0].counting
    if not c.counts_residues:
        count_residues(s)
    num_blocks = blocks_of_decodes(s)
    request = c.first_begun
    while request != NEVER:
        num_blocks += blocks_of(s, s.requests[request].num_computed_tokens)
        request = s.requests[request].next_waiting
    first, last = c.first_of_firsts, c.first_of_lasts
    for i in range(clock.num_batches + 1):
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
def is_tight(s: State) -> bool:
    """Return whether the running requests together come to need more blocks than there are."""
    return s.engine[0].counting.num_blocks > len(s.blocks) - 1


@phase
def next_step_may_lack(s: State) -> bool:
    """Return whether a running request might find no block in the next step; note how many there are before it."""
    settings, c = s.engine[0].settings, s.engine[0].counting
    c.num_free_blocks = len(s.blocks) - 1 - blocks_in_use(s)
    num_needed = c.num_surplus + s.first_in_round[c.num_scheduled % settings.block_size]
    request, threshold = c.first_begun, effective_long_prefill_threshold(s)
    budget = settings.max_num_batched_tokens - c.num_decodes - c.num_surplus
    while request != NEVER:
        r = s.requests[request]
        num_tokens = min(capped(r.num_prompt_tokens - r.num_computed_tokens, threshold), budget)
        num_needed += blocks_of(s, r.num_computed_tokens + num_tokens) - blocks_of(s, r.num_computed_tokens)
        budget -= num_tokens
        request = r.next_waiting
    return num_needed > c.num_free_blocks


@phase
def steps_until_full(s: State) -> int:
    """Return how many steps find the blocks for those that decode, of which there must be one."""
    c, length = s.engine[0].counting, s.engine[0].settings.block_size
    num_steps = c.num_free_blocks // c.num_decodes * length
    num_left, k = c.num_free_blocks % c.num_decodes, c.num_scheduled % length
    while s.first_in_round[k] <= num_left:
        num_left -= s.first_in_round[k]
        num_steps += 1
        k = k + 1 if k + 1 < length else 0
    return num_steps


@phase
def has_first_blocks(s: State, request: int, num_tokens: int, kept_free: int) -> bool:
    """Return whether the head of the queue may be admitted with so many tokens, as ``allocate_slots.fits`` does."""
    num_blocks = blocks_of(s, num_tokens)
    if s.engine[0].settings.scheduler_reserve_full_isl:
        num_blocks = max(num_blocks, blocks_of(s, s.requests[request].num_prompt_tokens))
    return num_blocks + kept_free + blocks_in_use(s) <= len(s.blocks) - 1
