"""A router's interface: choose an instance, and note what happens to the request. All of it is compiled.

A decision is ``has_room``, ``choose_instance``, ``note_routed``; later, once each, ``note_first_token`` and
``note_finished``; ``note_snapshot`` whenever ``Fleet`` has been refreshed. ``choose_instance`` changes nothing but
scratch: ``note_routed`` may then name another instance, as recordings of real routers do. Where ``has_room`` is False,
``with_room_for`` makes room, in Python.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet, RequestTable, add_in_flight, num_prompt_ids
from sim.cluster.routing import router_state as st
from sim.cluster.routing.cache_aware import choose_by_tree, enter_tree
from sim.cluster.routing.connections import choose_by_connection, leave_connection, take_connection
from sim.cluster.routing.kv_cost import choose_by_cost, hold_blocks, release_blocks
from sim.cluster.routing.prefix_tree import drop_sender, has_room_for_insert
from sim.cluster.routing.recent import keep_at_most, num_free_slots, oldest_key
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
def has_room(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> bool:
    """Return whether the router's memory can take this request."""
    settings, num_ids = router.settings[0], num_prompt_ids(fleet, requests, request)
    if settings.keeps_prefixes:
        return num_free_slots(router.prefixes) > num_ids  # one more for blocks of its own
    if settings.policy == st.CACHE_AWARE:
        return has_room_for_insert(router.tree, num_ids)
    if settings.policy == st.KV_COST:
        return len(router.num_active) >= 2 * (settings.num_active_pairs + num_ids)
    return True


@phase
def choose_instance(router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int) -> int:
    """Return the number of the instance that gets a request; NOWHERE without a candidate."""
    policy = router.settings[0].policy
    if fleet.counts[0].num_candidates == 0:
        return NOWHERE
    if policy == st.ROUND_ROBIN:
        return choose_in_turn(router, fleet)
    if policy == st.RANDOM:
        return choose_at_random(router, fleet, request)
    if policy == st.POWER_OF_TWO:
        return choose_of_two(router, fleet, request)
    if policy in (st.SESSION, st.KUBE_PROXY):
        return choose_again(router, fleet, requests, request, time_us)
    return choose_by_looking(router, fleet, requests, request, time_us)


@phase
def choose_again(router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int) -> int:
    """Return the choice of a policy that keeps to one made before."""
    if router.settings[0].policy == st.SESSION:
        return choose_by_session(router, fleet, requests, request)
    return choose_by_connection(router, fleet, request, time_us)


@phase
def choose_by_looking(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int
) -> int:
    """Return the choice of a policy that examines every candidate."""
    policy = router.settings[0].policy
    if policy == st.LEAST_LOADED:
        return choose_least_loaded(router, fleet, request)
    if policy == st.ALWAYS_BUSIEST:
        return choose_busiest(router, fleet)
    if policy == st.WEIGHTED:
        return choose_by_scores(router, fleet, requests, request)
    if policy == st.VLLM_DP:
        return choose_as_vllm(router, fleet)
    if policy == st.CACHE_AWARE:
        return choose_by_tree(router, fleet, requests, request, time_us)
    return choose_by_cost(router, fleet, requests, request)


@phase
def note_routed(router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int) -> None:
    """Note that a request goes to an instance; the last ``choose_instance`` must have been for it."""
    settings = router.settings[0]
    add_in_flight(fleet, instance, 1)
    router.work[instance].num_dispatched += 1
    if settings.policy == st.ROUND_ROBIN:
        settings.next_place += 1
    elif settings.policy == st.SESSION:
        if requests.session[request] != NOWHERE:
            router.session_instance[requests.session[request]] = instance
    elif settings.policy == st.WEIGHTED:
        if settings.keeps_prefixes:
            remember_prefix(router, fleet, requests, request, instance)
        if settings.is_cold and router.weights[NO_HIT_LRU] > 0.0:
            take_cold_turn(router, instance)
    elif settings.policy == st.VLLM_DP:
        move_start(router, fleet)
    elif settings.policy == st.CACHE_AWARE:
        enter_tree(router, fleet, requests, request, instance)
    elif settings.policy == st.KV_COST:
        hold_blocks(router, fleet, requests, request, instance)
    elif settings.policy == st.KUBE_PROXY:
        take_connection(router, request, instance)


@phase
def note_first_token(router: Router, requests: RequestTable, request: int, instance: int) -> None:
    """Note that a request's prefill is done; called once, at the latest right before ``note_finished``."""
    if router.settings[0].policy == st.KV_COST:
        router.work[instance].num_prefill_tokens -= requests.prompt_tokens[request]


@phase
def note_finished(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int, time_us: int
) -> None:
    """Note that a request has left its instance, for any reason."""
    add_in_flight(fleet, instance, -1)
    if router.settings[0].policy == st.KV_COST:
        release_blocks(router, fleet, requests, request, instance)
    elif router.settings[0].policy == st.KUBE_PROXY:
        leave_connection(router, request, time_us)


@phase
def note_snapshot(router: Router, fleet: Fleet) -> None:
    """Note that every instance's reported state has been refreshed: what was sent before is in it."""
    if router.settings[0].policy == st.VLLM_DP:
        for instance in range(len(fleet.instances)):
            router.work[instance].num_dispatched = 0


@phase
def forget_instance(router: Router, requests: RequestTable, instance: int) -> None:
    """Note that an instance has nothing cached any more: what was sent there is gone."""
    if router.settings[0].keeps_prefixes:
        keep_at_most(router.prefixes, instance, 0)
    elif router.settings[0].policy == st.CACHE_AWARE:
        while router.tree.senders.lists[instance].num_keys > 0:
            drop_sender(router.tree, requests.hash_ids, instance, oldest_key(router.tree.senders, instance))
