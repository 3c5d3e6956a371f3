"""When an engine hears that a transfer has ended, and what it does then.

A worker reports ended transfers with the results of a step: those that had ended when the step was scheduled, since it
asks as it launches the step. So blocks that were read are free, and a request whose blocks were filled can be
scheduled, once the results of that step are in. An engine with nothing to compute takes an empty step for it (vllm
0.32.0 v1/worker/kv_connector_model_runner_mixin.py, v1/core/sched/scheduler.py:_update_from_kv_xfer_finished).
"""

from __future__ import annotations

from sim.engine.dtypes import ABORTED, NEVER, WAITING_FOR_REMOTE_KVS
from sim.engine.kv_cache.kv_cache_manager import free
from sim.engine.kv_transfer.remote_kvs import drop_held
from sim.engine.records.transfer_records import FINISHED_RECVING
from sim.engine.state import State
from sim.jit.compile import part, phase


@phase
def deliver(s: State, request: int, kind: int, time_us: int) -> None:
    """End a transfer at ``time_us``, no earlier than any before it; the engine hears of it in its next step."""
    kv = s.engine[0].kv_transfers
    event = s.kv_events[kv.num_delivered % len(s.kv_events)]
    event.time_us, event.request, event.kind = time_us, request, kind
    kv.num_delivered += 1


@part
def next_kv_event_us(s: State) -> int:
    """Return when the first transfer ended that no step has taken along, NEVER where there is none."""
    kv = s.engine[0].kv_transfers
    if kv.num_polled == kv.num_delivered:
        return NEVER
    return s.kv_events[kv.num_polled % len(s.kv_events)].time_us


@part
def has_news(s: State) -> bool:
    """Return whether the next step will bring news of a transfer."""
    event_us = next_kv_event_us(s)
    return event_us != NEVER and event_us <= s.engine[0].clock.now_us


@part
def poll_transfers(s: State, batch: int) -> None:
    """Give a batch that is being scheduled what has ended by now."""
    kv = s.engine[0].kv_transfers
    while has_news(s):
        kv.num_polled += 1
    s.batches[batch].num_polled = kv.num_polled


@part
def brings_news(s: State, batch: int) -> bool:
    """Return whether the results of a batch in flight say of any transfer that it has ended."""
    return s.batches[batch].num_polled > s.engine[0].kv_transfers.num_applied


@phase
def hear_of_transfers(s: State, batch: int) -> None:
    """Take in what a batch's results say: blocks that were read are free, a request that has all its KV is ready."""
    kv = s.engine[0].kv_transfers
    kv.num_heard = 0
    while brings_news(s, batch):
        event = s.kv_events[kv.num_applied % len(s.kv_events)]
        kv.num_applied += 1
        kv.num_heard += 1
        r = s.requests[event.request]
        if event.kind == FINISHED_RECVING and r.status == WAITING_FOR_REMOTE_KVS:
            s.transfers[event.request].is_received = 1
            kv.num_ready += 1
        else:
            kv.num_delayed -= 1
            free(s, event.request)
        s.engine[0].queues.is_blocked = 0


@phase
def abort_held(s: State, request: int) -> None:
    """Drop a request that holds blocks and does not run; blocks that are being filled are free only once they are."""
    is_loading = s.requests[request].status == WAITING_FOR_REMOTE_KVS and not s.transfers[request].is_received
    drop_held(s, request)
    s.requests[request].status = ABORTED
    if is_loading:
        s.engine[0].kv_transfers.num_delayed += 1
    else:
        free(s, request)


@part
def keeps_blocks(s: State, request: int) -> bool:
    """Return whether a finished request holds its blocks until another engine has read them; count it."""
    if not s.engine[0].settings.is_kv_producer or not s.transfers[request].do_remote_decode:
        return False
    s.engine[0].kv_transfers.num_delayed += 1
    return True


@part
def keeps_state_for_jumps(s: State) -> bool:
    """Return whether equal steps may be taken at once: none brings news, and no request that is ready could join."""
    kv, settings, queues = s.engine[0].kv_transfers, s.engine[0].settings, s.engine[0].queues
    if kv.num_applied < kv.num_delivered or kv.num_deferred > 0:
        return False
    return kv.num_ready == 0 or queues.num_running >= settings.max_num_seqs
