"""Which content of host memory goes first from 0.33 on: each chunk has a rank, the lowest goes.

A request gets a rank when it first uses anything, and gives it to all that it uses while it runs; of these the last
block goes first. When it is gone, each gets a rank of its own, the first block the highest. The chunks that no transfer
needs are in a heap (vllm 0.33.0 v1/kv_offload/cpu/policies/lru.py:LRUCachePolicy).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.ring import use
from sim.engine.kv_offload.contents import block_size_of, place_of
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def order_of(s: State, group: int, index: int) -> int:
    """Return where a block stands among those of its request, the one that goes first lowest."""
    return group - (index + 1) * block_size_of(s, group) * s.engine[0].settings.num_kv_cache_groups


# -- the heap -------------------------------------------------------------------------------------------------


@part
def goes_before(s: State, a: int, b: int) -> bool:
    """Return whether chunk ``a`` is given up before chunk ``b``."""
    x, y = s.chunks[a], s.chunks[b]
    return x.rank < y.rank or (x.rank == y.rank and x.order < y.order)


@part
def put_at(s: State, at: int, chunk: int) -> None:
    """Put a chunk at a place of the heap, which counts from 1."""
    s.chunk_heap[at] = chunk
    s.chunks[chunk].heap_at = at


@phase
def settle(s: State, at: int) -> None:
    """Restore the heap after the chunk at a place has another rank."""
    chunk, length = s.chunk_heap[at], s.engine[0].kv_offload.heap_length
    while at > 1 and goes_before(s, chunk, s.chunk_heap[at // 2]):
        put_at(s, at, s.chunk_heap[at // 2])
        at //= 2
    while 2 * at <= length:
        child = 2 * at
        if child < length and goes_before(s, s.chunk_heap[child + 1], s.chunk_heap[child]):
            child += 1
        if not goes_before(s, s.chunk_heap[child], chunk):
            break
        put_at(s, at, s.chunk_heap[child])
        at = child
    put_at(s, at, chunk)


@part
def put_in_heap(s: State, chunk: int) -> None:
    """Put a chunk among those that may go."""
    kv = s.engine[0].kv_offload
    kv.heap_length += 1
    put_at(s, kv.heap_length, chunk)
    settle(s, kv.heap_length)


@part
def take_from_heap(s: State, chunk: int) -> None:
    """Take a chunk from among those that may go."""
    kv, at = s.engine[0].kv_offload, s.chunks[chunk].heap_at
    last = s.chunk_heap[kv.heap_length]
    kv.heap_length -= 1
    s.chunks[chunk].heap_at = 0
    if last != chunk:
        put_at(s, at, last)
        settle(s, at)


@phase
def take_first(s: State) -> int:
    """Take the first chunk that may go for the offer in hand, which needs some itself; there must be one."""
    aside = 0
    chunk = s.chunk_heap[1]
    while s.chunks[chunk].offer == s.engine[0].kv_offload.num_offers:
        take_from_heap(s, chunk)
        s.chunks[chunk].next_of_job = aside
        aside = chunk
        chunk = s.chunk_heap[1]
    take_from_heap(s, chunk)
    while aside != 0:
        put_in_heap(s, aside)
        aside = s.chunks[aside].next_of_job
    return chunk


# -- what transfers need --------------------------------------------------------------------------------------


@part
def let_go(s: State, chunk: int) -> None:
    """Note that no transfer needs a chunk any more."""
    s.engine[0].kv_offload.num_evictable += 1
    if s.engine[0].settings.gives_up_by_place:
        put_in_heap(s, chunk)


@part
def hold(s: State, chunk: int) -> None:
    """Note that a transfer needs a chunk that none needed."""
    s.engine[0].kv_offload.num_evictable -= 1
    if s.engine[0].settings.gives_up_by_place:
        take_from_heap(s, chunk)


# -- uses -----------------------------------------------------------------------------------------------------


@part
def rank_of(s: State, request: int) -> int:
    """Return the rank of what a request uses while it runs."""
    t, kv = s.transfers[request], s.engine[0].kv_offload
    if t.rank == 0:
        kv.num_ranks += 1
        t.rank = kv.num_ranks
    return t.rank


@part
def set_rank(s: State, chunk: int, rank: int, order: int) -> None:
    """Give a chunk a rank."""
    c = s.chunks[chunk]
    c.rank, c.order = rank, order
    if c.heap_at != 0:
        settle(s, c.heap_at)


@part
def note_use(s: State, request: int, chunk: int, order: int) -> None:
    """Note that a request uses a content for the first time; ``chunk``: where the tier has it, 0 nowhere yet."""
    rank, c = rank_of(s, request), s.chunks[chunk]
    if chunk != 0 and (c.rank < rank or (c.rank == rank and c.order < order)):
        set_rank(s, chunk, rank, order)


@phase
def note_use_of_load(s: State, request: int, group: int, index: int, chunk: int) -> None:
    """Note that a request loads a block."""
    private_start = s.requests[request].private_start
    if private_start == NEVER or s.seen_keys[place_of(s, private_start, group, index)] <= 0:
        note_use(s, request, chunk, order_of(s, group, index))


@part
def use_last(s: State, chunk: int) -> None:
    """Mark a content as used last, by a request that is gone."""
    if s.engine[0].settings.gives_up_by_place:
        s.engine[0].kv_offload.num_ranks += 1
        set_rank(s, chunk, s.engine[0].kv_offload.num_ranks, 0)
    else:
        use(s.chunks, chunk)
