"""States that go to host memory: each that stays in the prefix cache and ends within a prompt, by a store of its own.

They are offered before everything else that a step offers, request by request in the order in which they entered the
prefix cache, group by group. What has no room is not offered again (vllm 0.32.0
distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:_build_aligned_boundary_store_jobs).
"""

from __future__ import annotations

from sim.engine.kv_offload.contents import key_of, place_of
from sim.engine.kv_offload.fences import fence
from sim.engine.kv_offload.links import put_on_link
from sim.engine.kv_offload.recency import order_of
from sim.engine.kv_offload.tier import offer
from sim.engine.records.offload_records import STORE
from sim.engine.state import State
from sim.jit.compile import phase


@phase
def offer_state(s: State, number: int) -> None:
    """Offer a state that was handed on."""
    h = s.handed_states[number]
    request = h.request
    o = s.offered[0]
    o.key, o.block = key_of(s, request, h.group, h.index), h.block
    o.place = place_of(s, s.requests[request].private_start, h.group, h.index)
    o.order = order_of(s, h.group, h.index)
    job = offer(s, request, 1)
    if job > 0:
        s.transfers[request].num_stores += 1
        fence(s, s.kv_jobs[job].first_chunk)
        put_on_link(s, STORE, job)


@phase
def offer_states(s: State) -> None:
    """Offer the states that were handed on since the last stores, but for those that were taken back."""
    settings, kv = s.engine[0].settings, s.engine[0].kv_offload
    for number in range(kv.num_handed):
        t = s.transfers[s.handed_states[number].request]
        if t.first_handed != number + 1:
            continue
        for group in range(settings.num_kv_cache_groups):
            at = t.first_handed
            while at != 0:
                if s.handed_states[at - 1].group == group:
                    offer_state(s, at - 1)
                at = s.handed_states[at - 1].next
        t.first_handed = 0
    kv.num_handed = 0
