"""Contents that end inside blocks, in the prefix cache: as ``prefix_cache`` has whole blocks (vLLM's block_pool.py).

A content's key says where it ends, so the blocks of one key are all in this list, or all in that one. A block has one
such content at most. vLLM would keep several (``cached_block_hashes_by_block``); they come together only in a block
whose tokens are one request's outputs and, to the last, another one's prompt, after a preemption.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.prefix_cache import log_cache_change
from sim.engine.state import State
from sim.jit.compile import phase


@phase
def forget_partial(s: State, block: int) -> None:
    """Take the content that ends inside a block out of the prefix cache, if it has one."""
    p = s.partial_hashes[block]
    if p.hash_id >= 0:
        h = s.hashes[p.hash_id]
        if p.previous_same_hash == 0:
            h.oldest = p.next_same_hash
            if h.oldest == 0:
                log_cache_change(s, p.hash_id)
        else:
            s.partial_hashes[p.previous_same_hash].next_same_hash = p.next_same_hash
        if p.next_same_hash == 0:
            h.newest = p.previous_same_hash
        else:
            s.partial_hashes[p.next_same_hash].previous_same_hash = p.previous_same_hash
    p.hash_id = NEVER


@phase
def remember_partial(s: State, block: int, key: int) -> None:
    """Enter a content that ends inside a block into the prefix cache, behind those that are alike."""
    p, h = s.partial_hashes[block], s.hashes[key]
    p.hash_id, p.next_same_hash, p.previous_same_hash = key, 0, h.newest
    if h.newest == 0:
        h.oldest = block
        log_cache_change(s, key)
    else:
        s.partial_hashes[h.newest].next_same_hash = block
    h.newest = block
