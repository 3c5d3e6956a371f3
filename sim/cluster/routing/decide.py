"""A router's interface: choose an instance, and note what happens to the request. All of it is compiled.

A decision is ``has_room``, ``choose_instance``, ``note_routed``; later, once each, ``note_first_token`` and
``note_finished``; ``note_snapshot`` whenever ``Fleet`` has been refreshed. ``choose_instance`` changes nothing but
scratch: ``note_routed`` may then name another instance, as recordings of real routers do. Where ``has_room`` is False,
``with_room_for`` makes room, in Python.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet, RequestTable, num_prompt_ids
from sim.cluster.routing import router_state as st
from sim.cluster.routing.cache_aware import choose_by_tree, enter_tree
from sim.cluster.routing.kv_cost import choose_by_cost, hold_blocks, release_blocks
from sim.cluster.routing.prefix_tree import drop_sender, has_room_for_insert
from sim.cluster.routing.recent import forget, num_free_slots, oldest_key
from sim.cluster.routing.router_state import Router
from sim.cluster.routing.scorers import NO_HIT_LRU
from sim.cluster.routing.simple import (
    choose_at_random,
    choose_busiest,
    choose_by_session,
    choose_in_turn,
    choose_least_loaded,
    choose_of_two,
)
from sim.cluster.routing.vllm_dp import choose_as_vllm, move_start
from sim.cluster.routing.weighted import choose_by_scores, remember_prefix, take_cold_turn
from sim.jit.compile import phase


@phase
def has_room(r: Router, f: Fleet, q: RequestTable, request: int) -> bool:
    """Return whether the router's memory can take this request."""
    s, num_ids = r.settings[0], num_prompt_ids(f, q, request)
    if s.keeps_prefixes:
        return num_free_slots(r.prefixes) >= num_ids
    if s.policy == st.CACHE_AWARE:
        return has_room_for_insert(r.tree, num_ids)
    if s.policy == st.KV_COST:
        return len(r.num_active) >= 2 * (s.num_active_pairs + num_ids)
    return True


@phase
def choose_instance(r: Router, f: Fleet, q: RequestTable, request: int, time_us: int) -> int:
    """Return the number of the instance that gets a request; NOWHERE without a candidate."""
    policy = r.settings[0].policy
    if f.counts[0].num_candidates == 0:
        return NOWHERE
    if policy == st.ROUND_ROBIN:
        return choose_in_turn(r, f)
    if policy == st.RANDOM:
        return choose_at_random(r, f, request)
    if policy == st.POWER_OF_TWO:
        return choose_of_two(r, f, request)
    if policy == st.SESSION:
        return choose_by_session(r, f, q, request)
    return choose_by_looking(r, f, q, request, time_us)


@phase
def choose_by_looking(r: Router, f: Fleet, q: RequestTable, request: int, time_us: int) -> int:
    """Return the choice of a policy that examines every candidate."""
    policy = r.settings[0].policy
    if policy == st.LEAST_LOADED:
        return choose_least_loaded(r, f, request)
    if policy == st.ALWAYS_BUSIEST:
        return choose_busiest(r, f)
    if policy == st.WEIGHTED:
        return choose_by_scores(r, f, q, request)
    if policy == st.VLLM_DP:
        return choose_as_vllm(r, f)
    if policy == st.CACHE_AWARE:
        return choose_by_tree(r, f, q, request, time_us)
    return choose_by_cost(r, f, q, request)


@phase
def note_routed(r: Router, f: Fleet, q: RequestTable, request: int, instance: int) -> None:
    """Note that a request goes to an instance; the last ``choose_instance`` must have been for it."""
    s = r.settings[0]
    f.instances[instance].num_in_flight += 1
    r.work[instance].num_dispatched += 1
    if s.policy == st.ROUND_ROBIN:
        s.next_place += 1
    elif s.policy == st.SESSION:
        if q.session[request] != NOWHERE:
            r.session_instance[q.session[request]] = instance
    elif s.policy == st.WEIGHTED:
        if s.keeps_prefixes:
            remember_prefix(r, f, q, request, instance)
        if s.is_cold and r.weights[NO_HIT_LRU] > 0.0:
            take_cold_turn(r, instance)
    elif s.policy == st.VLLM_DP:
        move_start(r, f)
    elif s.policy == st.CACHE_AWARE:
        enter_tree(r, f, q, request, instance)
    elif s.policy == st.KV_COST:
        hold_blocks(r, f, q, request, instance)


@phase
def note_first_token(r: Router, q: RequestTable, request: int, instance: int) -> None:
    """Note that a request's prefill is done; called once, at the latest right before ``note_finished``."""
    if r.settings[0].policy == st.KV_COST:
        r.work[instance].num_prefill_tokens -= q.prompt_tokens[request]


@phase
def note_finished(r: Router, f: Fleet, q: RequestTable, request: int, instance: int) -> None:
    """Note that a request has left its instance, for any reason."""
    f.instances[instance].num_in_flight -= 1
    if r.settings[0].policy == st.KV_COST:
        release_blocks(r, f, q, request, instance)


@phase
def note_snapshot(r: Router, f: Fleet) -> None:
    """Note that every instance's reported state has been refreshed: what was sent before is in it."""
    for instance in range(len(f.instances)):
        r.work[instance].num_dispatched = 0


@phase
def forget_instance(r: Router, q: RequestTable, instance: int) -> None:
    """Note that an instance has nothing cached any more: what was sent there is gone."""
    if r.settings[0].keeps_prefixes:
        while r.prefixes.lists[instance].num_keys > 0:
            forget(r.prefixes, instance, oldest_key(r.prefixes, instance))
    elif r.settings[0].policy == st.CACHE_AWARE:
        while r.tree.senders.lists[instance].num_keys > 0:
            drop_sender(r.tree, q.hash_ids, instance, oldest_key(r.tree.senders, instance))
