"""``session_kv_ttl_us``: the KV of a session's round stays pinned until the next round comes, or for that long.

It is not vLLM's: there a block that no request holds goes as soon as it is the one used longest ago. Li et al.,
"Continuum: Efficient and Robust Multi-Turn LLM Agent Scheduling with KV Cache Time-to-Live", 2025 (arXiv 2511.02230),
pins the blocks of a program that waits for a tool. Its rules, here with one TTL for all:

1. A request that has all its tokens, and that others go on from, keeps a reference to each of its blocks that they can
   find: the leading ones, whose contents are named.
2. It lets go of them when all that go on from it were admitted, or when the TTL is over, at the first step that is
   scheduled then or later. While one that came in time waits in the queue, the TTL does not end. They go to the back
   of the free queue, the last block first, as the blocks of a finished request do.
3. A running request that finds no block for its next tokens takes pins away before it preempts any. The head of the
   queue does so only when no request runs: else it waits for those that run. So no request waits for ever.
4. The pin of the session that began last goes first; of one session, the newest. The head's own goes last.
"""

from __future__ import annotations

import numpy as np

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache import ring
from sim.engine.kv_cache.allocate_slots import allocate_slots, fits, get_computed_blocks
from sim.engine.kv_cache.blocks import insert_free, touch
from sim.engine.records.pin_records import LINEAGE, NO_PIN, SESSION_PIN
from sim.engine.state import PER_REQUEST, Records, State, records
from sim.jit.compile import part, phase
from sim.requests import Requests


def lineage_records(requests: Requests) -> Records:
    """Return of each request where it pins, and whose pin it goes on from."""
    rows: Records = PER_REQUEST["lineage"].rows(records(0, LINEAGE), len(requests))
    if requests.kv_number is not None and requests.goes_on_from is not None:
        rows["pin"], rows["goes_on_from"] = (
            requests.kv_number + 1,
            requests.goes_on_from + 1,
        )  # row 0 is the head
    return rows


def with_session_kv(state: State, requests: Requests, lineage: Records, ttl_us: int) -> State:
    """Return the state of an engine that pins KV, with a place for every request that others go on from.

    ``lineage``: ``lineage_records``; engines may share them.
    """
    if requests.goes_on_from is None:
        return state
    num_pins = 1 + int(max(lineage["pin"].max(initial=NO_PIN), lineage["goes_on_from"].max(initial=NO_PIN)))
    pins = records(num_pins, SESSION_PIN)
    pins["num_left"] = np.bincount(lineage["goes_on_from"], minlength=num_pins)
    pins["began_us"] = NEVER
    state.engine["settings"]["session_kv_ttl_us"] = ttl_us
    return state._replace(lineage=lineage, session_pins=pins)


@part
def num_blocks_to_pin(s: State, request: int) -> int:
    """Return how many blocks a request that ends will pin, before it loses them (1); NEVER: none goes on from it."""
    row, r = s.lineage[request].pin, s.requests[request]
    if row == NO_PIN or s.session_pins[row].num_blocks > 0:
        return NEVER
    return min(r.num_cached_blocks, r.num_hashes)


@phase
def pin(s: State, request: int, num_blocks: int) -> None:
    """Pin the blocks of a request that has ended (1)."""
    r, row, before = s.requests[request], s.lineage[request].pin, s.lineage[request].goes_on_from
    p = s.session_pins[row]
    p.began_us = r.arrival_us
    if before != NO_PIN and s.session_pins[before].began_us != NEVER:
        p.began_us = s.session_pins[before].began_us
    if num_blocks == 0 or p.num_left <= 0:
        return
    p.hash_start, p.num_blocks = r.hash_start, num_blocks
    p.expires_us = r.last_token_us + s.engine[0].settings.session_kv_ttl_us
    for i in range(num_blocks):
        touch(s, s.hashes[s.hash_ids[r.hash_start + i]].oldest)
    ring.append(s.session_pins, row)


@phase
def unpin(s: State, row: int) -> None:
    """Release the blocks that a row pins (2)."""
    p, queues = s.session_pins[row], s.engine[0].queues
    for i in range(p.num_blocks - 1, -1, -1):
        block = s.hashes[s.hash_ids[p.hash_start + i]].oldest  # the same: a block that is held stays
        s.blocks[block].ref_cnt -= 1
        if s.blocks[block].ref_cnt == 0:
            queues.num_free_blocks += 1
            insert_free(s, block, s.blocks[0].previous_free)
    p.num_blocks = 0
    ring.unlink(s.session_pins, row)
    queues.head_is_blocked = queues.is_blocked = 0


@part
def next_expiry_us(s: State) -> int:
    """Return when the next TTL ends, NEVER where none does before a request is admitted."""
    row = s.session_pins[NO_PIN].next
    while row != NO_PIN and s.session_pins[row].num_waiting > 0:
        row = s.session_pins[row].next
    return NEVER if row == NO_PIN else s.session_pins[row].expires_us


@phase
def unpin_expired(s: State) -> None:
    """Release the blocks that have been pinned for their time, at the start of a step (2)."""
    row = s.session_pins[NO_PIN].next
    while row != NO_PIN:
        p = s.session_pins[row]
        if p.expires_us <= s.engine[0].clock.now_us and p.num_waiting == 0:
            unpin(s, row)
        row = p.next


@phase
def note_waiting(s: State, request: int) -> None:
    """Keep a pin until its session's next round, which joins the queue, is admitted, if the TTL has not ended (2)."""
    before = s.lineage[request].goes_on_from
    if before != NO_PIN and s.session_pins[before].num_blocks > 0:
        p = s.session_pins[before]
        s.lineage[request].is_in_time = s.requests[request].queued_us < p.expires_us
        p.num_waiting += s.lineage[request].is_in_time


@phase
def leave_pin(s: State, request: int) -> None:
    """Release a pin when the last request that goes on from it is admitted or gone (2)."""
    before = s.lineage[request].goes_on_from
    if before == NO_PIN:
        return
    p = s.session_pins[before]
    p.num_left -= 1
    p.num_waiting -= s.lineage[request].is_in_time
    s.lineage[request].is_in_time = 0
    if p.num_left <= 0 and p.num_blocks > 0:
        unpin(s, before)


@part
def first_to_go(s: State, spared: int) -> int:
    """Return which pin goes first (4), NO_PIN where there is none; ``spared`` goes last."""
    row, found = s.session_pins[NO_PIN].next, NO_PIN
    while row != NO_PIN:
        p = s.session_pins[row]
        if row != spared and (found == NO_PIN or p.began_us >= s.session_pins[found].began_us):
            found = row
        row = p.next
    if found == NO_PIN and spared != NO_PIN and s.session_pins[spared].num_blocks > 0:
        return spared
    return found


@phase
def unpin_until_it_fits(s: State, request: int, num_tokens: int) -> bool:
    """Take pins away until a running request has its slots (3); return False when they do not suffice."""
    while True:
        row = first_to_go(s, NO_PIN)
        if row == NO_PIN:
            return False
        unpin(s, row)
        if allocate_slots(s, request, num_tokens):
            return True


@phase
def unpin_for_head(s: State, request: int, num_tokens: int) -> bool:
    """Take pins away until the head of the queue fits, if no request runs (3); return False when it does not."""
    if s.engine[0].queues.num_running > 0:
        return False
    while True:
        row = first_to_go(s, s.lineage[request].goes_on_from)
        if row == NO_PIN:
            return False
        unpin(s, row)
        if fits(s, request, num_tokens, get_computed_blocks(s, request)):
            return True
