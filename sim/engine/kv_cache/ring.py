"""Rows of an array in a ring by their last use: ``next`` and ``previous`` of each, row 0 its head.

The head's ``next`` was used longest ago. The free queue of KV blocks is a ring of its own (``kv_cache/blocks.py``): it
is what an engine's speed is made of.
"""

from __future__ import annotations

from sim.engine.state import Records
from sim.jit.compile import part


@part
def append(ring: Records, row: int) -> None:
    """Put a row at the end: nothing was used later."""
    r, head = ring[row], ring[0]
    r.previous, r.next = head.previous, 0
    ring[head.previous].next = row
    head.previous = row


@part
def unlink(ring: Records, row: int) -> None:
    """Take a row out."""
    r = ring[row]
    ring[r.previous].next = r.next
    ring[r.next].previous = r.previous


@part
def use(ring: Records, row: int) -> None:
    """Mark a row as used last."""
    unlink(ring, row)
    append(ring, row)
