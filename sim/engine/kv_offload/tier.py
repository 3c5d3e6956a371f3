"""The chunks of host memory: what is in them, which goes next, what is stored and what is not.

The chunk that was used longest ago and that no transfer needs is given up for a new content. A request uses a content
when it loads it, or when it offers it for storing and the tier has it or takes it; that counts once, when the request
is gone, its first block as used last (vllm 0.32.0 v1/kv_offload/cpu/manager.py, policies/lru.py; ``recency.py`` has
what 0.33 does).
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.ring import append, unlink, use
from sim.engine.kv_offload.contents import block_size_of, place_of
from sim.engine.kv_offload.links import new_job
from sim.engine.kv_offload.recency import note_use, rank_of, take_first, use_last
from sim.engine.kv_offload.shared_store import NO_ROOM, offer_to_store
from sim.engine.records.offload_records import STORE
from sim.engine.state import State
from sim.jit.compile import part, phase

MOST_COUNTED = 64_000
"""Contents whose offers are counted (vLLM's ``max_tracker_size``); the one whose last offer is longest ago goes."""

REFUSED = -1
"""In place of a job: there is no room for what is offered."""


@phase
def use_in_reverse(s: State, private_start: int, num_tokens: int) -> None:
    """Mark the contents that a request used as used last, the block that ends first after all others.

    Where blocks of several groups end together, the first group's is used last.
    """
    settings = s.engine[0].settings
    if settings.has_shared_store:
        return
    for end in range(num_tokens // settings.hash_block_size, 0, -1):
        for group in range(settings.num_kv_cache_groups - 1, -1, -1):
            size, tokens = block_size_of(s, group), end * settings.hash_block_size
            if tokens % size != 0:
                continue
            key = s.seen_keys[place_of(s, private_start, group, tokens // size - 1)] - 1
            if key >= 0 and s.cpu_slot_of_key[key] != 0:
                use_last(s, s.cpu_slot_of_key[key])


# -- offers ---------------------------------------------------------------------------------------------------


@phase
def count_offer(s: State, num: int) -> None:
    """Count the offer of ``num`` contents; none of them goes for another."""
    kv = s.engine[0].kv_offload
    num_protected = 0
    for i in range(num):
        c = s.counted[s.offered[i].key + 1]
        if c.num_offers > 0:
            c.num_offers += 1
            num_protected += 1
            use(s.counted, s.offered[i].key + 1)
    num_others = kv.num_counted - num_protected
    for i in range(num):
        c = s.counted[s.offered[i].key + 1]
        if c.num_offers > 0:
            continue
        if kv.num_counted >= MOST_COUNTED:
            if num_others == 0:
                continue
            oldest = s.counted[0].next
            unlink(s.counted, oldest)
            s.counted[oldest].num_offers = 0
            kv.num_counted -= 1
            num_others -= 1
        c.num_offers = 1
        kv.num_counted += 1
        append(s.counted, s.offered[i].key + 1)


@part
def is_wanted(s: State, key: int) -> bool:
    """Return whether the tier lacks a content and would take it."""
    if s.cpu_slot_of_key[key] != 0:
        return False
    threshold = s.engine[0].settings.kv_store_threshold
    return threshold < 2 or s.counted[key + 1].num_offers >= threshold


@part
def first_evictable(s: State, chunk: int) -> int:
    """Return the first chunk from ``chunk`` on that may be given up for the offer in hand; there must be one."""
    while s.chunks[chunk].ref_cnt != 0 or s.chunks[chunk].offer == s.engine[0].kv_offload.num_offers:
        chunk = s.chunks[chunk].next
    return chunk


@phase
def take_chunks(s: State, request: int, num: int) -> int:
    """Fill chunks with the contents that are wanted of a request's offer; return the first of them, linked."""
    kv, is_by_place = s.engine[0].kv_offload, s.engine[0].settings.gives_up_by_place
    first = last = 0
    next_evicted = s.chunks[0].next
    for i in range(num):
        key = s.offered[i].key
        if not is_wanted(s, key):
            continue
        if kv.num_chunks < len(s.chunks) - 1:
            kv.num_chunks += 1
            chunk = kv.num_chunks
        else:
            chunk = take_first(s) if is_by_place else first_evictable(s, next_evicted)
            next_evicted = s.chunks[chunk].next
            unlink(s.chunks, chunk)
            s.cpu_slot_of_key[s.chunks[chunk].key] = 0
            kv.num_evictable -= 1
        s.cpu_slot_of_key[key] = chunk
        append(s.chunks, chunk)
        c = s.chunks[chunk]
        c.key, c.ref_cnt, c.block = key, NEVER, s.offered[i].block
        c.next_of_job = 0
        if is_by_place:
            c.rank, c.order = rank_of(s, request), s.offered[i].order
        if first == 0:
            first = chunk
        else:
            s.chunks[last].next_of_job = chunk
        last = chunk
    return first


@part
def note_job_of(s: State, job: int, first: int) -> None:
    """Note with each chunk of a transfer which one it is part of."""
    while first != 0:
        s.chunks[first].job = job
        first = s.chunks[first].next_of_job


@phase
def offer_shared(s: State, request: int, num: int) -> int:
    """Offer contents to the store that instances share; return the job, 0 or REFUSED as ``offer`` does."""
    first = offer_to_store(s, num)
    if first == NO_ROOM:
        return REFUSED
    if first == 0:
        return 0
    job = new_job(s, STORE, request, s.engine[0].kv_offload.num_wanted, first)
    note_job_of(s, job, first)
    return job


@phase
def offer(s: State, request: int, num: int) -> int:
    """Offer the first ``num`` of ``offered``, blocks of a request, for storing.

    Return the job that stores those that the tier lacks, 0 where it lacks none, REFUSED where they have no room.
    """
    settings, kv = s.engine[0].settings, s.engine[0].kv_offload
    if settings.has_shared_store:
        return offer_shared(s, request, num)
    if settings.kv_store_threshold >= 2:
        count_offer(s, num)
    kv.num_offers += 1
    num_wanted = num_protected = 0
    for i in range(num):
        key, chunk = s.offered[i].key, s.cpu_slot_of_key[s.offered[i].key]
        if chunk != 0:
            s.chunks[chunk].offer = kv.num_offers
            num_protected += s.chunks[chunk].ref_cnt == 0
            if s.chunks[chunk].ref_cnt == NEVER:
                continue
        elif is_wanted(s, key):
            num_wanted += 1
        else:
            continue
        if settings.gives_up_by_place and s.seen_keys[s.offered[i].place] <= 0:
            note_use(s, request, chunk, s.offered[i].order)
        s.seen_keys[s.offered[i].place] = key + 1
    if num_wanted == 0:
        return 0
    num_free = len(s.chunks) - 1 - kv.num_chunks
    if num_wanted - num_free > max(kv.num_evictable - num_protected, 0):
        return REFUSED
    first = take_chunks(s, request, num)
    job = new_job(s, STORE, request, num_wanted, first)
    note_job_of(s, job, first)
    return job
