"""Blocks of a request that is gone and that a batch in flight still writes: they are free once its results are in.

A transfer into them would not be ordered behind that writing, so an engine that loads KV while several batches are in
flight waits (vllm 0.32.0 v1/core/sched/scheduler.py:_free_request_blocks, _drain_deferred_frees).
"""

from __future__ import annotations

from sim.engine.kv_cache.kv_cache_manager import free, free_late
from sim.engine.state import State
from sim.jit.compile import part, phase


@part
def free_once_written(s: State, request: int) -> None:
    """Free the blocks of a request that is gone, or note that they are free after the batch in flight."""
    kv = s.engine[0].kv_transfers
    if not s.engine[0].settings.defers_block_frees or s.requests[request].num_in_flight_tokens == 0:
        free(s, request)
        return
    d = s.deferred_frees[kv.num_deferred]
    d.request, d.fence = request, kv.num_scheduled
    kv.num_deferred += 1


@part
def free_written(s: State, batch: int) -> None:
    """Free what was written up to a batch whose results are in."""
    if s.engine[0].settings.defers_block_frees and s.batches[batch].num_entries > 0:
        free_deferred(s)


@phase
def free_deferred(s: State) -> None:
    """Count a batch whose results are in, and free what was written up to it."""
    kv = s.engine[0].kv_transfers
    kv.num_processed += 1
    num = 0
    while num < kv.num_deferred and s.deferred_frees[num].fence <= kv.num_processed:
        free_late(s, s.deferred_frees[num].request)
        num += 1
    kv.num_deferred -= num
    if num > 0:
        for i in range(kv.num_deferred):
            d, later = s.deferred_frees[i], s.deferred_frees[i + num]
            d.request, d.fence = later.request, later.fence
