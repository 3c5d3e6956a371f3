"""KV blocks: the free queue, references, and the table from content to block (vLLM's block_pool.py)."""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.partial_hashes import forget_partial
from sim.engine.kv_cache.prefix_cache import forget_hash
from sim.engine.state import State
from sim.jit.compile import part


@part
def unlink_free(s: State, block: int) -> None:
    """Take a block out of the free queue, wherever it is."""
    b = s.blocks[block]
    s.blocks[b.previous_free].next_free = b.next_free
    s.blocks[b.next_free].previous_free = b.previous_free


@part
def insert_free(s: State, block: int, after: int) -> None:
    """Put a block into the free queue behind ``after``; 0, the ring's head, means at the front."""
    b = s.blocks[block]
    before = s.blocks[after].next_free
    b.previous_free = after
    b.next_free = before
    s.blocks[after].next_free = block
    s.blocks[before].previous_free = block


@part
def get_new_block(s: State) -> int:
    """Return the block at the front of the free queue, its old content forgotten, with one reference."""
    block = s.blocks[0].next_free
    unlink_free(s, block)
    forget_hash(s, block)
    if s.engine[0].settings.matches_inside_blocks:
        forget_partial(s, block)
    s.blocks[block].ref_cnt = 1
    s.engine[0].queues.num_free_blocks -= 1
    return block


@part
def touch(s: State, block: int) -> None:
    """Add a reference to a cached block; a block that no request held leaves the free queue."""
    b = s.blocks[block]
    if b.ref_cnt == 0:  # it was free, and kept its content: a hit takes it back before it is given to another
        unlink_free(s, block)
        s.engine[0].queues.num_free_blocks -= 1
    b.ref_cnt += 1


@part
def free_blocks(s: State, request: int) -> None:
    """Drop a request's references, its last block first.

    A block that no request holds goes to the back of the free queue when it carries a hash (least recently used
    goes first), and to the front when it does not: it can never be hit again (vllm 0.32.0 block_pool.py:free_blocks).
    Before 0.24 all of them went to the back.
    """
    settings, queues, r = s.engine[0].settings, s.engine[0].queues, s.requests[request]
    if r.slot == NEVER:
        return
    front = 0
    for i in range(r.num_blocks - 1, -1, -1):
        block = s.block_table[r.slot, i]
        b = s.blocks[block]
        b.ref_cnt -= 1
        if b.ref_cnt > 0:
            continue
        queues.num_free_blocks += 1
        goes_to_back = i < r.num_cached_blocks and not (settings.recycle_private_first and b.hash_id == NEVER)
        if goes_to_back or not settings.frees_unhashed_blocks_first:
            insert_free(s, block, s.blocks[0].previous_free)
        else:
            insert_free(s, block, front)
            front = block
    s.free_slots[queues.num_free_slots] = r.slot
    queues.num_free_slots += 1
    r.slot = NEVER
    r.num_blocks = 0
    r.num_cached_blocks = 0
    queues.head_is_blocked = 0
