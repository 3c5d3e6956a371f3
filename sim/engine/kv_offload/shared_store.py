"""One store of KV blocks behind several instances (LMCache, the Mooncake store): what one puts there, all find.

A block is there for every instance from the moment its transfer has ended, and only then; an instance moves blocks
over a link of its own. A request uses a block when it loads it or when it offers it; the first block of what it uses
counts as used last. What was used longest ago goes, unless a transfer needs it. What no other request can ask for
takes room, too, and no request finds it. Everything is a function of the time: which instance asks does not matter.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.prefix_cache import hash_of_block
from sim.engine.kv_cache.ring import append, unlink, use
from sim.engine.state import State
from sim.jit.compile import part, phase

NO_ROOM = -1


@part
def slot_of(s: State, key: int) -> int:
    """Return where the store has a content, or will once it is there; 0: nowhere."""
    return s.store_slots[key] if 0 <= key < len(s.store_slots) else 0


@phase
def num_blocks_in_store(s: State, request: int, first: int) -> int:
    """Return how many of a request's full blocks in a row, from ``first`` on, are in the store now."""
    now_us = s.engine[0].clock.now_us
    i, num = first, s.requests[request].num_tokens // s.engine[0].settings.block_size
    while i < num:
        slot = slot_of(s, hash_of_block(s, request, i))
        if slot == 0 or s.store_blocks[slot].ready_us == NEVER or s.store_blocks[slot].ready_us > now_us:
            break
        i += 1
    return i - first


# -- loads ----------------------------------------------------------------------------------------------------


@phase
def pin_for_load(s: State, request: int, first: int, num: int) -> None:
    """Keep the blocks that a request is about to load, and mark them as used, the first one last."""
    for i in range(first + num - 1, first - 1, -1):
        slot = slot_of(s, hash_of_block(s, request, i))
        s.store_blocks[slot].num_pins += 1
        use(s.store_blocks, slot)


@phase
def note_load_end(s: State, request: int, num: int, end_us: int) -> None:
    """Keep the blocks of a load that was handed over until it has ended."""
    first = s.transfers[request].num_local_tokens // s.engine[0].settings.block_size
    for i in range(first, first + num):
        b = s.store_blocks[slot_of(s, hash_of_block(s, request, i))]
        b.num_pins -= 1
        b.busy_us = max(b.busy_us, end_us)


# -- stores ---------------------------------------------------------------------------------------------------


@part
def is_free_to_go(s: State, slot: int, offer: int) -> bool:
    """Return whether a block may be given up for an offer."""
    b = s.store_blocks[slot]
    return b.num_pins == 0 and b.busy_us <= s.engine[0].clock.now_us and b.offer != offer


@phase
def can_make_room(s: State, num: int, offer: int) -> bool:
    """Return whether ``num`` blocks may be given up."""
    slot = s.store_blocks[0].next
    while slot != 0 and num > 0:
        num -= is_free_to_go(s, slot, offer)
        slot = s.store_blocks[slot].next
    return num <= 0


@part
def take_slot(s: State, offer: int) -> int:
    """Return a free place of the store, or that of the block that was used longest ago; there must be one."""
    store = s.kv_store[0]
    if store.num_blocks < len(s.store_blocks) - 1:
        store.num_blocks += 1
        return store.num_blocks
    slot = s.store_blocks[0].next
    while not is_free_to_go(s, slot, offer):
        slot = s.store_blocks[slot].next
    unlink(s.store_blocks, slot)
    if s.store_blocks[slot].key != NEVER:
        s.store_slots[s.store_blocks[slot].key] = 0
    return slot


@part
def take_piece(s: State) -> int:
    """Return a row of ``chunks``, which notes a block on its way to the store."""
    kv = s.engine[0].kv_offload
    if kv.first_free_piece != 0:
        piece = kv.first_free_piece
        kv.first_free_piece = s.chunks[piece].next
        return piece
    kv.num_chunks += 1
    return kv.num_chunks


@part
def free_piece(s: State, piece: int) -> None:
    """Give a row of ``chunks`` back."""
    kv = s.engine[0].kv_offload
    s.chunks[piece].next = kv.first_free_piece
    kv.first_free_piece = piece
    kv.num_pieces -= 1


@phase
def put_wanted(s: State, num: int) -> int:
    """Take room for the contents of an offer that the store lacks; return the first of their pieces, linked."""
    kv, offer, first = s.engine[0].kv_offload, s.kv_store[0].num_offers, 0
    for i in range(num - 1, -1, -1):
        key = s.offered[i].key
        if slot_of(s, key) != 0:
            use(s.store_blocks, slot_of(s, key))
            continue
        is_findable = 0 <= key < len(s.store_slots)
        place = take_slot(s, offer)
        append(s.store_blocks, place)
        b = s.store_blocks[place]
        b.key, b.ready_us, b.busy_us, b.num_pins, b.offer = key if is_findable else NEVER, NEVER, 0, 1, offer
        if is_findable:
            s.store_slots[key] = place
        piece = take_piece(s)
        kv.num_pieces += 1
        c = s.chunks[piece]
        c.key, c.block, c.next_of_job, c.is_fenced = place, s.offered[i].block, first, 0
        first = piece
    return first


@phase
def offer_to_store(s: State, num: int) -> int:
    """Offer the first ``num`` of ``offered``; return the pieces to move, linked, 0: none, or NO_ROOM."""
    store, kv = s.kv_store[0], s.engine[0].kv_offload
    store.num_offers += 1
    num_wanted = 0
    for i in range(num):
        place = slot_of(s, s.offered[i].key)
        if place != 0:
            s.store_blocks[place].offer = store.num_offers
        else:
            num_wanted += 1
    kv.num_wanted = num_wanted
    num_free = len(s.store_blocks) - 1 - store.num_blocks
    if num_wanted > len(s.chunks) - 1 - kv.num_pieces or not can_make_room(
        s, num_wanted - num_free, store.num_offers
    ):
        return NO_ROOM
    return put_wanted(s, num)


@phase
def note_store_end(s: State, piece: int, end_us: int) -> None:
    """Make the blocks of a transfer known to every instance once it has ended."""
    while piece != 0:
        b = s.store_blocks[s.chunks[piece].key]
        b.ready_us = b.busy_us = end_us
        b.num_pins -= 1
        piece = s.chunks[piece].next_of_job
