"""A router's whole state: settings and memories of every policy; those that its own policy does not need are empty."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import Records, more_pairs, new_pairs, num_words, records
from sim.cluster.draws import ROUTE
from sim.cluster.fleet import Fleet, RequestTable
from sim.cluster.routing.prefix_tree import PrefixTree, new_prefix_tree, with_more_room
from sim.cluster.routing.recent import RecentKeys, new_recent_keys, with_more_slots
from sim.cluster.routing.routing_policies import (
    SCORERS,
    AlwaysBusiest,
    CacheAware,
    KubeProxy,
    KvCost,
    LeastLoaded,
    OwnPolicy,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
    RoutingPolicy,
    Session,
    VllmDp,
    Weighted,
    version_of,
)
from sim.config import Compatibility, InvalidConfig
from sim.requests import Int64s

POLICIES = (
    RoundRobin,
    RandomChoice,
    PowerOfTwo,
    Session,
    LeastLoaded,
    AlwaysBusiest,
    Weighted,
    VllmDp,
    CacheAware,
    KvCost,
    KubeProxy,
)
(
    ROUND_ROBIN,
    RANDOM,
    POWER_OF_TWO,
    SESSION,
    LEAST_LOADED,
    ALWAYS_BUSIEST,
    WEIGHTED,
    VLLM_DP,
    CACHE_AWARE,
    KV_COST,
    KUBE_PROXY,
) = range(len(POLICIES))

DP_FIXED_START, DP_ROTATING, DP_IN_FLIGHT_FLOOR = 0, 1, 2
"""The three rules of vLLM's balancer; ``VllmDp`` says which version has which."""

SETTINGS = np.dtype(
    [
        ("policy", np.int64),
        ("seed", np.int64),
        ("stream", np.int64),  # of its draws (``sim/cluster/draws.py``), and the next
        ("counts_twice", np.int64),  # compatibility blis: load = waiting + running + in flight
        ("has_random_ties", np.int64),
        (
            "next_place",
            np.int64,
        ),  # round-robin: decisions so far; vllm-dp: where the next scan begins; kube-proxy: of
        # the request in hand in ``connections``
        # weighted
        ("keeps_prefixes", np.int64),
        ("asks_caches", np.int64),
        ("prefix_capacity_blocks", np.int64),
        ("is_cold", np.int64),  # the request in hand hits nothing anywhere
        # vllm-dp
        ("dp_rule", np.int64),
        ("num_clients", np.int64),
        # cache-aware
        ("cache_threshold", np.float64),
        ("balance_abs_threshold", np.float64),
        ("balance_rel_threshold", np.float64),
        ("takes_least_loaded_owner", np.int64),
        ("max_tree_ids", np.int64),
        ("eviction_interval_us", np.int64),
        ("next_eviction_us", np.int64),
        # kv-cost
        ("prefill_load_scale", np.float64),
        ("overlap_score_credit", np.float64),
        ("overlap_score_credit_decay", np.float64),
        ("host_cache_hit_weight", np.float64),
        ("decode_active_request_weight", np.float64),
        ("temperature", np.float64),
        ("num_active_pairs", np.int64),
        # kube-proxy
        ("keep_alive_us", np.int64),
        ("num_connections", np.int64),
        ("takes_turns", np.int64),
        ("num_opened", np.int64),
    ],
    align=True,
)

WORK = np.dtype(
    [("num_dispatched", np.int64), ("num_prefill_tokens", np.int64), ("num_active_blocks", np.int64)],
    align=True,
)
"""What a router has put on an instance: since the last snapshot; prompts without a first token; blocks in use."""

CONNECTION = np.dtype(
    [("instance", np.int64), ("request", np.int64), ("idle_since_us", np.int64)],
    align=True,
)
"""A connection: where to, which request used it last, and since when none does (``connections.BUSY``: one does)."""


class Router(NamedTuple):
    """A policy's whole state. Compiled functions take it as one and change it in place."""

    settings: Records  # SETTINGS[1]
    weights: NDArray[np.float64]  # weighted: per scorer, their sum 1
    scores: NDArray[np.float64]  # per instance, of the last decision; higher is better
    matched: Int64s  # scratch: leading blocks of the request in hand that an instance has
    work: Records  # WORK[num_instances]
    cold_order: Int64s  # no-hit-lru: instances, the longest without a cold request first
    session_instance: Int64s  # per session
    prefixes: RecentKeys  # weighted: blocks sent to each instance
    tree: PrefixTree  # cache-aware
    active: NDArray[np.int64]  # kv-cost: per block the instances where a request in flight has it, as bits
    num_active: Records  # kv-cost: map from (instance, block) to how many requests have it
    connections: Records  # kube-proxy: CONNECTION, those that are open, the first opened first
    connection_of: Int64s  # kube-proxy: per request its place there while it uses one


FIRST_CAPACITY = 1024


def new_router(
    policy: RoutingPolicy,
    fleet: Fleet,
    requests: RequestTable,
    *,
    seed: int = 42,
    stream: int = ROUTE,
    compatibility: Compatibility = "vllm",
) -> Router:
    """Return a router that has not decided anything yet, for these requests over this fleet.

    ``stream``: of its random numbers; two routers of one cluster have different ones.
    """
    if isinstance(policy, OwnPolicy):
        raise InvalidConfig("routing.policy: got a function, expected a built-in policy")
    num_instances, num_blocks = len(fleet.instances), int(requests.hash_ids.max(initial=-1)) + 1
    keeps_prefixes = isinstance(policy, Weighted) and needs_prefixes(policy)
    is_tree, is_cost = isinstance(policy, CacheAware), isinstance(policy, KvCost)
    num_connections = len(requests.prompt_tokens) if isinstance(policy, KubeProxy) else 0
    num_sessions = int(requests.session.max(initial=-1)) + 1 if isinstance(policy, Session) else 0
    return Router(
        settings=settings_of(policy, fleet, seed=seed, stream=stream, compatibility=compatibility),
        weights=weights_of(policy),
        scores=np.zeros(num_instances),
        matched=np.zeros(num_instances, np.int64),
        work=records(num_instances, WORK),
        cold_order=np.sort(fleet.candidates[: int(fleet.counts["num_candidates"][0])]),
        session_instance=np.full(num_sessions, -1, np.int64),
        prefixes=new_recent_keys(
            num_instances,
            num_keys=num_blocks if keeps_prefixes else 0,
            capacity=FIRST_CAPACITY if keeps_prefixes else 0,
        ),
        tree=new_prefix_tree(num_instances, capacity=FIRST_CAPACITY if is_tree else 1),
        active=np.zeros((num_blocks if is_cost else 0, num_words(num_instances)), np.int64),
        num_active=new_pairs(FIRST_CAPACITY if is_cost else 0),
        connections=records(num_connections, CONNECTION),
        connection_of=np.full(num_connections, -1, np.int64),
    )


def needs_prefixes(policy: Weighted) -> bool:
    """Return whether a scorer reads what the router sent to each instance."""
    weights = policy.scorers
    asks = weights.get("precise-prefix-cache", 0) > 0
    return weights.get("prefix-affinity", 0) > 0 or (weights.get("no-hit-lru", 0) > 0 and not asks)


def weights_of(policy: RoutingPolicy) -> NDArray[np.float64]:
    """Return the weight of each of ``SCORERS``, their sum 1; nothing unless the policy is weighted."""
    if not isinstance(policy, Weighted):
        return np.zeros(0)
    weights = np.array([float(policy.scorers.get(scorer, 0)) for scorer in SCORERS])
    return weights / weights.sum()


def settings_of(
    policy: RoutingPolicy, fleet: Fleet, *, seed: int, stream: int, compatibility: Compatibility
) -> Records:
    """Return the settings of a policy as compiled code reads them."""
    settings = records(1, SETTINGS)
    settings["policy"] = POLICIES.index(type(policy))
    settings["seed"], settings["stream"] = seed, stream
    settings["counts_twice"] = is_blis = compatibility == "blis"
    if isinstance(policy, LeastLoaded):
        settings["has_random_ties"] = is_blis or policy.ties == "random"
    elif isinstance(policy, Weighted):
        settings["keeps_prefixes"] = needs_prefixes(policy)
        settings["asks_caches"] = policy.scorers.get("precise-prefix-cache", 0) > 0
        settings["prefix_capacity_blocks"] = policy.prefix_capacity_blocks
    elif isinstance(policy, VllmDp):
        version = version_of(policy.vllm_version)
        settings["dp_rule"] = int(version >= (0, 25)) + int(version >= (0, 27))
        settings["num_clients"] = policy.clients
        settings["next_place"] = len(fleet.instances) * policy.client // policy.clients
    elif isinstance(policy, CacheAware):
        settings["takes_least_loaded_owner"] = policy.owner == "least-loaded"
        settings["max_tree_ids"] = policy.max_tree_size // int(fleet.counts["block_size"][0])
        settings["next_eviction_us"] = policy.eviction_interval_us
        for name in (
            "cache_threshold",
            "balance_abs_threshold",
            "balance_rel_threshold",
            "eviction_interval_us",
        ):
            settings[name] = getattr(policy, name)
    elif isinstance(policy, KubeProxy):
        settings["keep_alive_us"] = policy.keep_alive_us
        settings["takes_turns"] = policy.mode == "ipvs"
    elif isinstance(policy, KvCost):
        for setting in fields(policy):
            settings[setting.name] = getattr(policy, setting.name)
    return settings


def with_room_for(router: Router, num_ids: int) -> Router:
    """Return the same router with room for a request of ``num_ids`` blocks, and about as much again as it has."""
    settings = router.settings[0]
    if settings.keeps_prefixes:
        capacity = 2 * len(router.prefixes.slots) + num_ids + 1
        router = router._replace(prefixes=with_more_slots(router.prefixes, capacity))
    if settings.policy == CACHE_AWARE:
        num_slots = 2 * len(router.tree.senders.slots) + num_ids + len(router.work)
        tree = with_more_room(router.tree, num_nodes=2 * len(router.tree.nodes), num_slots=num_slots)
        router = router._replace(tree=tree)
    if settings.policy == KV_COST:
        router = router._replace(num_active=more_pairs(router.num_active, len(router.num_active) + num_ids))
    return router
