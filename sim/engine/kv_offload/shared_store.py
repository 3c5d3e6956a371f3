"""One store of KV blocks behind several instances (LMCache, the Mooncake store): what one puts there, all find.

A block is there for every instance from the moment its transfer has ended, and only then; an instance moves blocks
over a link of its own. A request uses a block when it loads it or when it offers it; the first block of what it uses
counts as used last. What was used longest ago goes, unless a transfer needs it. What no other request can ask for
takes room, too, and no request finds it. Everything is a function of the time: which instance asks does not matter.
With KV cache groups each group's block is a content of its own, and of blocks that end together the first group's is
used last.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.prefix_cache import cdiv
from sim.engine.kv_cache.ring import append, unlink, use
from sim.engine.kv_offload.contents import block_size_of, first_to_load, key_of
from sim.engine.state import State
from sim.jit.compile import part, phase

NO_ROOM = -1


@part
def slot_of(s: State, key: int) -> int:
    """Return where the store has a content, or will once it is there; 0: nowhere."""
    return s.store_slots[key] if 0 <= key < len(s.store_slots) else 0


@part
def is_in_store(s: State, key: int) -> int:
    """Return 1 where a content is in the store now, 0 where not."""
    slot = slot_of(s, key)
    if slot == 0 or s.store_blocks[slot].ready_us == NEVER:
        return 0
    return 1 if s.store_blocks[slot].ready_us <= s.engine[0].clock.now_us else 0


# -- loads ----------------------------------------------------------------------------------------------------


@phase
def pin_for_load(s: State, request: int) -> int:
    """Keep the blocks that a request is about to load, and mark them as used, the first one last; return how many."""
    settings, t, num = s.engine[0].settings, s.transfers[request], 0
    num_tokens, end = t.num_local_tokens + t.num_external_computed_tokens, 0
    for group in range(settings.num_kv_cache_groups):
        size = block_size_of(s, group)
        end = max(end, cdiv(num_tokens, size) * size)
    for tokens in range(end, t.num_local_tokens, -settings.hash_block_size):
        for group in range(settings.num_kv_cache_groups - 1, -1, -1):
            size = block_size_of(s, group)
            i = tokens // size - 1
            if tokens % size != 0 or i >= cdiv(num_tokens, size):
                continue
            if i < first_to_load(s, group, t.num_local_tokens, num_tokens):
                continue
            slot = slot_of(s, key_of(s, request, group, i))
            s.store_blocks[slot].num_pins += 1
            use(s.store_blocks, slot)
            num += 1
    return num


@phase
def note_load_end(s: State, request: int, end_us: int) -> None:
    """Keep the blocks of a load that was handed over until it has ended."""
    t = s.transfers[request]
    num_tokens = t.num_local_tokens + t.num_external_computed_tokens
    for group in range(s.engine[0].settings.num_kv_cache_groups):
        first = first_to_load(s, group, t.num_local_tokens, num_tokens)
        for i in range(first, cdiv(num_tokens, block_size_of(s, group))):
            b = s.store_blocks[slot_of(s, key_of(s, request, group, i))]
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
def begin_to_put(s: State, num: int) -> None:
    """Note for each group where its blocks of an offer end; they stand together in it."""
    settings = s.engine[0].settings
    if settings.has_kv_cache_groups:
        for group in range(settings.num_kv_cache_groups):
            s.kv_cache_groups[group].num_to_put = 0
        for i in range(num):
            s.kv_cache_groups[s.offered[i].order % settings.num_kv_cache_groups].num_to_put = i + 1


@phase
def next_to_put(s: State, num_left: int) -> int:
    """Return which block of an offer comes next, of ``num_left``: the one that ends last, the first group's last."""
    settings = s.engine[0].settings
    if settings.has_kv_cache_groups == 0:
        return num_left - 1
    found = last = NEVER
    for group in range(settings.num_kv_cache_groups - 1, -1, -1):
        i = s.kv_cache_groups[group].num_to_put - 1
        if i < 0 or s.offered[i].order % settings.num_kv_cache_groups != group:
            continue
        end = (group - s.offered[i].order) // settings.num_kv_cache_groups
        if end > last:
            found, last = i, end
    s.kv_cache_groups[s.offered[found].order % settings.num_kv_cache_groups].num_to_put = found
    return found


@phase
def put_wanted(s: State, num: int) -> int:
    """Take room for the contents of an offer that the store lacks; return the first of their pieces, linked."""
    kv, offer, first = s.engine[0].kv_offload, s.kv_store[0].num_offers, 0
    begin_to_put(s, num)
    for num_left in range(num, 0, -1):
        i = next_to_put(s, num_left)
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
        c.order = s.offered[i].order
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
