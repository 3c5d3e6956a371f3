"""Blocks of the GPU that are being stored and may be free: a request that gets one waits for the store."""

from __future__ import annotations

from sim.engine.state import State
from sim.jit.compile import part


@part
def fence(s: State, chunk: int) -> None:
    """Make the next user of the block that a chunk is stored from wait for the store."""
    c = s.chunks[chunk]
    if c.is_fenced:
        return
    f = s.fences[c.block]
    c.next_of_block, c.is_fenced = f.first_chunk, 1
    f.first_chunk = chunk


@part
def end_fence(s: State, chunk: int) -> None:
    """End all waiting for a chunk."""
    c = s.chunks[chunk]
    if not c.is_fenced:
        return
    c.is_fenced = 0
    f = s.fences[c.block]
    if f.first_chunk == chunk:
        f.first_chunk = c.next_of_block
        return
    before = f.first_chunk
    while s.chunks[before].next_of_block != chunk:
        before = s.chunks[before].next_of_block
    s.chunks[before].next_of_block = c.next_of_block
