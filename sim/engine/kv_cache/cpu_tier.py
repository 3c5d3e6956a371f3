"""The KV cache's second tier: contents that the GPU threw away, in host memory, least recently offloaded out first.

The rule. A block's content leaves the GPU when the block is handed out anew. If at that moment more than
``kv_offload_threshold`` of the GPU's usable blocks are in use, the new one included, and no other GPU block has the
content, it moves to the CPU tier, into the slot whose content came there longest ago; otherwise it is lost. Every full
block counts, also those that only their own request could ask for.

A waiting request's prefix is looked up block by block, on the GPU first, then here; the first block in neither ends it.
On admission its CPU blocks move back, each into a block from the free queue, and are cached from then on. Each adds
``kv_transfer_base_latency + ceil(block_size / kv_transfer_bandwidth)`` µs to the step that admits it. A content that
comes back less than 1,000 µs after it left counts as thrashing. Offloading takes no time.
"""

from __future__ import annotations

from sim.engine.dtypes import NEVER
from sim.engine.kv_cache.ring import unlink
from sim.engine.state import State
from sim.jit.compile import part, phase

THRASHING_US = 1000


@part
def is_on_cpu(s: State, key: int) -> bool:
    """Return whether the tier holds a content."""
    return s.engine[0].settings.num_cpu_blocks > 0 and s.cpu_slot_of_key[key] != 0


@part
def move_slot(s: State, slot: int, after: int) -> None:
    """Put a slot behind ``after`` in the ring; 0, its head, means at the front."""
    if slot == after:  # the last one, which goes to the end: it is there
        return
    unlink(s.cpu_slots, slot)
    c = s.cpu_slots[slot]
    c.previous = after
    c.next = s.cpu_slots[after].next
    s.cpu_slots[c.next].previous = slot
    s.cpu_slots[after].next = slot


@part
def offload(s: State, key: int) -> None:
    """Put a content into the tier, in place of the one that came longest ago; or back to the end of the row."""
    clock, totals = s.engine[0].clock, s.engine[0].totals
    slot = s.cpu_slot_of_key[key]
    if slot == 0:
        slot = s.cpu_slots[0].next
        c = s.cpu_slots[slot]
        if c.key != NEVER:
            s.cpu_slot_of_key[c.key] = 0
        c.key = key
        s.cpu_slot_of_key[key] = slot
    s.cpu_slots[slot].offloaded_us = clock.now_us
    move_slot(s, slot, s.cpu_slots[0].previous)
    totals.num_kv_offloads += 1


@phase
def offload_next(s: State) -> None:
    """Move the content of the block that is handed out next to the tier, if it has one and the rule says so."""
    settings, queues = s.engine[0].settings, s.engine[0].queues
    block = s.blocks[0].next_free
    b = s.blocks[block]
    num_used = len(s.blocks) - queues.num_free_blocks  # with that block
    if b.hash_id == NEVER or num_used <= settings.offload_above_blocks:
        return
    h = s.hashes[b.hash_id]
    if h.oldest == block and h.newest == block:
        offload(s, b.hash_id)


@phase
def take_from_cpu(s: State, key: int) -> None:
    """Take a content out of the tier for its way back; its slot is the next to be used."""
    settings, clock, current, totals = (
        s.engine[0].settings,
        s.engine[0].clock,
        s.engine[0].current_step,
        s.engine[0].totals,
    )
    slot = s.cpu_slot_of_key[key]
    c = s.cpu_slots[slot]
    s.cpu_slot_of_key[key] = 0
    c.key = NEVER
    move_slot(s, slot, 0)
    totals.num_kv_reloads += 1
    totals.num_kv_thrashings += clock.now_us - c.offloaded_us < THRASHING_US
    current.step_reload_us += settings.reload_us
