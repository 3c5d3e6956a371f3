"""From counted blocks to blocks that are handed out: ``run`` goes on where a run that counts stands.

All that ``run`` would have left there follows from where the run stands, but for which block is whose. That nobody can
tell: as no two requests share a content, none of the free blocks is ever hit, and one is as good as another. A request
that is preempted later finds its own blocks, so those that are full carry their content.
"""

from __future__ import annotations

from sim.engine.counting.blocks_in_use import blocks_of
from sim.engine.counting.ends import RANKS, pop_end, rise
from sim.engine.counting.pause import give_tokens
from sim.engine.dtypes import IS_DECODE, NEVER, SAMPLES
from sim.engine.kv_cache.allocate_slots import append_new_block
from sim.engine.kv_cache.prefix_cache import cache_full_blocks
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def lay_ring(s: State) -> None:
    """Put all blocks into the free queue, as ``initial_state`` does: an engine of many is made without."""
    num_blocks = len(s.blocks)
    for block in range(num_blocks):
        b = s.blocks[block]
        b.next_free = block + 1 if block + 1 < num_blocks else 0
        b.previous_free = block - 1 if block > 0 else num_blocks - 1
        b.hash_id = NEVER


@part
def list_running(s: State) -> None:
    """Put all that run into ``running``, in no order; each knows how many of its tokens are computed, or in flight."""
    c = s.engine[0].counting
    for i in range(c.num_ends):
        r, num_left = s.requests[s.running[i]], s.preempted[i] // RANKS - c.num_scheduled
        r.num_computed_tokens = r.max_total_tokens - 1 - num_left
    num, request = c.num_ends, c.first_of_lasts
    while request != NEVER:
        s.requests[request].num_computed_tokens = s.requests[request].max_total_tokens - 1
        s.running[num] = request
        num += 1
        request = s.requests[request].previous_waiting
    request = c.first_of_firsts
    while request != NEVER:
        r = s.requests[request]
        if r.max_total_tokens == r.num_prompt_tokens + 1:  # the others stand in the heap
            s.running[num] = request
            num += 1
        request = r.next_waiting
    request = c.first_begun
    while request != NEVER:
        s.running[num] = request
        num += 1
        request = s.requests[request].next_waiting


@part
def sort_running(s: State) -> None:
    """Bring those that run into the order in which they were admitted, by the heap of ends."""
    queues, c = s.engine[0].queues, s.engine[0].counting
    c.counts_residues = 0
    for i in range(queues.num_running):
        rise(s, i, s.requests[s.running[i]].slot, s.running[i])
    c.num_ends = queues.num_running
    while c.num_ends > 0:
        request = pop_end(s)
        s.running[c.num_ends] = request
    for i in range(queues.num_running // 2):
        j = queues.num_running - 1 - i
        s.running[i], s.running[j] = s.running[j], s.running[i]


@part
def is_begun(s: State, request: int) -> bool:
    """Return whether a part of a running request's prompt is not computed, nor in flight."""
    return s.requests[request].num_computed_tokens < s.requests[request].num_prompt_tokens


@part
def hand_blocks_to(s: State, request: int, num_batches: int) -> None:
    """Give a running request its tokens, a row of the block table and its blocks.

    ``num_batches``: in flight; each gives it a token, or computes a part of its prompt.
    """
    queues, r = s.engine[0].queues, s.requests[request]
    give_tokens(s, request)
    r.num_in_flight_tokens *= num_batches
    r.num_output_placeholders = 0 if is_begun(s, request) else num_batches
    queues.num_free_slots -= 1
    r.slot = s.free_slots[queues.num_free_slots]
    r.num_blocks = r.num_cached_blocks = 0
    for _ in range(blocks_of(s, r.num_computed_tokens)):
        append_new_block(s, request)
    # the token in flight is not known yet: a block that it fills is entered later
    has_outputs = r.num_tokens > r.num_prompt_tokens
    cache_full_blocks(s, request, r.num_computed_tokens - r.num_output_placeholders * has_outputs)


@part
def fill_batch(s: State, batch: int) -> None:
    """Enter the running requests into a batch in flight, each with the tokens that it has there."""
    queues, c, b = s.engine[0].queues, s.engine[0].counting, s.batches[batch]
    for i in range(queues.num_running):
        request, entry = s.running[i], s.entries[batch, i]
        r = s.requests[request]
        entry.request, entry.num_tokens, entry.kind = request, 1, SAMPLES + IS_DECODE
        if r.num_computed_tokens <= r.num_prompt_tokens:
            entry.num_tokens, entry.kind = r.num_in_flight_tokens, 0 if is_begun(s, request) else SAMPLES
        r.num_in_flight_tokens = entry.num_tokens
        entry.computed = r.num_computed_tokens - entry.num_tokens
    for i in range(queues.num_running, b.num_entries):  # tokens behind an EOS, which are nobody's
        entry = s.entries[batch, i]
        entry.request, entry.num_tokens, entry.kind = c.surplus_request, 1, SAMPLES + IS_DECODE


@phase
def hand_over(s: State) -> None:
    """Leave an engine between two steps as ``run`` would have."""
    clock, queues = s.engine[0].clock, s.engine[0].queues
    queues.num_free_blocks = len(s.blocks) - 1
    if s.blocks[0].next_free == 0:
        lay_ring(s)
    list_running(s)
    sort_running(s)
    for i in range(queues.num_running):
        hand_blocks_to(s, s.running[i], clock.num_batches)
    if clock.num_batches > 0:
        fill_batch(s, clock.oldest_batch)
