"""cache-aware routing as sglang-router 0.3.2 and vllm-router 0.1.17 have it: 400 of 400 decisions of each.

1. Loads are requests in flight. Where they differ too much, the least loaded instance gets the request.
2. Else the longest known prefix is looked up in one tree; more than the threshold, and its owner gets it.
3. Else the least loaded instance does.

The first candidate wins ties. The request enters the tree for the instance that gets it in any of these ways.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE, has_bit
from sim.cluster.fleet import Fleet, RequestTable, num_prompt_ids
from sim.cluster.routing.prefix_tree import (
    ROOT,
    drop_sender,
    evict_beyond,
    has_room_for_insert,
    insert,
    match_node,
)
from sim.cluster.routing.recent import oldest_key
from sim.cluster.routing.router_state import PolicyFunctions, Router
from sim.cluster.routing.routing_policies import CacheAware
from sim.cluster.routing.simple import choose_least_loaded, load_seen
from sim.jit.compile import part, phase


@phase
def choose_by_tree(router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int) -> int:
    """Return the owner of the request's prefix, or the least loaded candidate."""
    evict_when_due(router, requests, time_us)
    least_loaded = choose_least_loaded(router, fleet, request)
    if is_imbalanced(router, fleet, load_seen(router, fleet, least_loaded)):
        return least_loaded
    first = requests.hash_starts[request]
    node, num_matched = match_node(
        router.tree, requests.hash_ids, first, first + num_prompt_ids(fleet, requests, request)
    )
    # A share of the prompt, whose last tokens may fill no block; with blocks of one token, of the whole text.
    prompt_tokens = requests.prompt_tokens[request]
    rate = num_matched * fleet.counts[0].block_size / prompt_tokens if prompt_tokens > 0 else 0.0
    if not rate > router.settings[0].cache_threshold or node == ROOT:
        return least_loaded
    owner = owner_of(router, fleet, node)
    return least_loaded if owner == NOWHERE else owner


@part
def evict_when_due(router: Router, requests: RequestTable, time_us: int) -> None:
    """Cut the tree to size once per interval: it is done at the next use, as nothing reads the tree in between."""
    settings = router.settings[0]
    if time_us >= settings.next_eviction_us:
        evict_beyond(router.tree, requests.hash_ids, settings.max_tree_ids)
        settings.next_eviction_us = (
            time_us // settings.eviction_interval_us + 1
        ) * settings.eviction_interval_us


@part
def is_imbalanced(router: Router, fleet: Fleet, least: int) -> bool:
    """Return whether the most loaded candidate has too much more than ``least``."""
    settings, most = router.settings[0], least
    for place in range(fleet.counts[0].num_candidates):
        most = max(most, load_seen(router, fleet, fleet.candidates[place]))
    return most - least > settings.balance_abs_threshold and most > settings.balance_rel_threshold * least


@phase
def owner_of(router: Router, fleet: Fleet, node: int) -> int:
    """Return the candidate that owns a node, NOWHERE if all its instances are gone.

    A creator that was evicted from the node gives way to the first candidate that was sent it.
    """
    settings, holders = router.settings[0], router.tree.senders.holders
    creator = router.tree.nodes[node].creator
    if (
        not settings.takes_least_loaded_owner
        and fleet.instances[creator].is_candidate
        and has_bit(holders, node, creator)
    ):
        return creator
    owner, least = NOWHERE, 0
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        if not has_bit(holders, node, instance):
            continue
        load = load_seen(router, fleet, instance) if settings.takes_least_loaded_owner else 0
        if owner == NOWHERE or load < least:
            owner, least = instance, load
    return owner


@part
def enter_tree(router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int) -> None:
    """Note that a request's prompt went to an instance."""
    first = requests.hash_starts[request]
    insert(router.tree, requests.hash_ids, first, first + num_prompt_ids(fleet, requests, request), instance)


@part
def has_room_in_tree(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> bool:
    """Return whether a prompt can enter the tree."""
    return has_room_for_insert(router.tree, num_prompt_ids(fleet, requests, request))


@phase
def leave_tree(router: Router, requests: RequestTable, instance: int) -> None:
    """Forget what was sent to an instance, the oldest first."""
    while router.tree.senders.lists[instance].num_keys > 0:
        drop_sender(router.tree, requests.hash_ids, instance, oldest_key(router.tree.senders, instance))


FUNCTIONS = {
    CacheAware: PolicyFunctions(
        choose=choose_by_tree, has_room=has_room_in_tree, note_choice=enter_tree, forget_instance=leave_tree
    )
}
