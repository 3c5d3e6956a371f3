"""The prefix cache: which key a block's content has, and the table from key to blocks (vLLM's block_pool.py).

Keys are dense integers. Those of contents that requests may share were numbered before the engine started
(``Requests.hash_ids``); a request gets keys of its own for the rest of its blocks when it first loses them.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def cdiv(a: int, b: int) -> int:
    """Return a / b rounded up."""
    return (a + b - 1) // b


@part
def log_cache_change(s: State, hash_id: int) -> None:
    """Note that a content has come to the prefix cache or has gone, where a router looks at it now and then."""
    if len(s.cache_log) > 0:
        settings, queues = s.engine[0].settings, s.engine[0].queues
        if hash_id % settings.num_kv_cache_groups == settings.first_group_to_ask:
            s.cache_log[queues.num_cache_changes % len(s.cache_log)] = hash_id // settings.num_kv_cache_groups
            queues.num_cache_changes += 1


@part
def has_content(s: State, content: int) -> bool:
    """Return whether a content is in the prefix cache: of several groups, in the one that is asked first."""
    settings = s.engine[0].settings
    return s.hashes[content * settings.num_kv_cache_groups + settings.first_group_to_ask].oldest != 0


@part
def forget_hash(s: State, block: int) -> None:
    """Evict a block's content from the prefix cache."""
    b = s.blocks[block]
    if b.hash_id < 0:
        b.hash_id = NEVER
        return
    h = s.hashes[b.hash_id]
    if b.previous_same_hash == 0:
        h.oldest = b.next_same_hash
        if h.oldest == 0:
            log_cache_change(s, b.hash_id)
    else:
        s.blocks[b.previous_same_hash].next_same_hash = b.next_same_hash
    if b.next_same_hash == 0:
        h.newest = b.previous_same_hash
    else:
        s.blocks[b.next_same_hash].previous_same_hash = b.previous_same_hash
    b.hash_id = NEVER


@part
def remember_hash(s: State, block: int, hash_id: int) -> None:
    """Enter a full block into the prefix cache; equal content is kept twice, the oldest first."""
    b, h = s.blocks[block], s.hashes[hash_id]
    b.hash_id = hash_id
    b.next_same_hash = 0
    b.previous_same_hash = h.newest
    if h.newest == 0:
        h.oldest = block
        log_cache_change(s, hash_id)
    else:
        s.blocks[h.newest].next_same_hash = block
    h.newest = block


@part
def hash_of_block(s: State, request: int, index: int) -> int:
    """Return the table's key for the content of a request's block, NEVER where only itself could ask for it."""
    r = s.requests[request]
    if index < r.num_hashes:
        return s.hash_ids[r.hash_start + index]
    if r.private_start != NEVER:
        return r.private_start + index - r.num_hashes
    return NEVER


@part
def has_hashes_past(s: State, request: int, index: int) -> bool:
    """Return whether a request's blocks from ``index`` on must be entered into the table when they fill."""
    r = s.requests[request]
    return s.engine[0].settings.enable_prefix_caching and (r.num_hashes > index or r.private_start != NEVER)


@phase
def num_hashed_tokens(s: State, request: int, num_tokens: int) -> int:
    """Return how many of a request's first ``num_tokens`` are in blocks that have a hash.

    One that covers tokens behind its block exists once they are known (``VersionRules.hashes_ahead_of_drafts``).
    """
    lookahead = s.engine[0].settings.num_hash_lookahead_tokens
    return min(num_tokens, s.requests[request].num_tokens - lookahead) if lookahead > 0 else num_tokens


@part
def cache_full_blocks(s: State, request: int, num_tokens: int) -> None:
    """Enter the full blocks among a request's first ``num_tokens`` into the prefix cache."""
    settings, r = s.engine[0].settings, s.requests[request]
    if not settings.enable_prefix_caching or num_tokens < (r.num_cached_blocks + 1) * settings.block_size:
        return
    if settings.num_hash_lookahead_tokens > 0:
        num_tokens = num_hashed_tokens(s, request, num_tokens)
    num_full = min(num_tokens // settings.block_size, r.num_blocks)
    if has_hashes_past(s, request, r.num_cached_blocks):
        for i in range(r.num_cached_blocks, num_full):
            key = hash_of_block(s, request, i)
            if key == NEVER:
                break
            remember_hash(s, s.block_table[r.slot, i], key)
    r.num_cached_blocks = num_full


@part
def give_private_keys(s: State, request: int) -> None:
    """Give a request keys of its own in the hash table, for its blocks that no other request can ask for."""
    settings, queues, r = s.engine[0].settings, s.engine[0].queues, s.requests[request]
    r.private_start = queues.num_keys
    queues.num_keys += cdiv(r.max_total_tokens, settings.hash_block_size) + 1


@part
def remember_private_blocks(s: State, request: int) -> None:
    """Enter a request's own cached blocks into the table before it loses them, so that it can find them again.

    No other request can ask for these blocks, so until a preemption they need no entry, only the knowledge that
    they are hashed. This is what makes ordinary requests cheap; what vLLM would look up is the same.
    """
    settings, r = s.engine[0].settings, s.requests[request]
    if not settings.enable_prefix_caching or r.private_start != NEVER:
        return
    give_private_keys(s, request)
    for i in range(r.num_hashes, r.num_cached_blocks):
        remember_hash(s, s.block_table[r.slot, i], r.private_start + i - r.num_hashes)
