"""A router's whole state: settings and memories of every policy; those that its own policy does not need are empty."""

from __future__ import annotations

from collections.abc import Callable
from lazy_dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import NOWHERE, Records, more_pairs, new_pairs, num_words, records
from sim.cluster.draws import ROUTE
from sim.cluster.fleet import INSTANCE, Fleet, RequestTable
from sim.cluster.routing.prefix_tree import PrefixTree, new_prefix_tree, with_more_room
from sim.cluster.routing.recent import RecentKeys, new_recent_keys, with_more_slots
from sim.cluster.routing.routing_policies import (
    POLICIES,
    SCORERS,
    CacheAware,
    KubeProxy,
    KvCost,
    OwnPolicy,
    RoutedFleet,
    RoutingPolicy,
    Session,
    Weighted,
)
from sim.config import Compatibility, InvalidConfig
from sim.requests import Int64s

NUMBERS = {policy: number for number, policy in enumerate(POLICIES)}
"""The numbers by which compiled code knows the policies."""

SETTINGS = np.dtype(
    [
        ("policy", np.int64),
        ("seed", np.int64),
        ("stream", np.int64),  # of its draws (``sim/cluster/draws.py``), and the next
        ("counts_twice", np.int64),  # compatibility blis: load = waiting + running + in flight
        # round-robin: decisions so far; vllm-dp: where the next scan begins; kube-proxy: of the request in hand in
        # ``connections``
        ("next_place", np.int64),
        ("must_see", np.int64),  # weighted: the instance to be looked at before it can decide, or NOWHERE
        *((name, np.float64) for policy in NUMBERS for name in policy.floats),
        *((name, np.int64) for policy in NUMBERS for name in policy.integers),
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


class Scored(NamedTuple):
    """What is scored: instances, or shelves of them (``shelves``) as if each were one."""

    seen: Records  # INSTANCE
    matched: Int64s  # leading blocks of the request in hand that were sent there
    scores: NDArray[np.float64]  # to be filled


class Router(NamedTuple):
    """A policy's whole state. Compiled functions take it as one and change it in place."""

    settings: Records  # SETTINGS[1]
    weights: NDArray[np.float64]  # weighted: per scorer, their sum 1
    scores: NDArray[np.float64]  # per instance, of the last decision; higher is better
    least: Int64s  # weighted: of each scorer's column, among the candidates
    most: Int64s
    shelves: Scored  # weighted: the best of each number on a shelf (``shelves``); or of no rows
    shelf_least: NDArray[np.int64]  # [num_shelves, scorers]: likewise of the columns
    shelf_most: NDArray[np.int64]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFunctions:
    """A policy's compiled functions; each takes those of its question's parameters that it names.

    The questions, with their parameters, are in ``sim/cluster/routing/decide.py``; None: the policy has nothing to say.
    """

    choose: Callable[..., int]
    has_room: Callable[..., bool] | None = None
    note_choice: Callable[..., None] | None = None
    note_first_token: Callable[..., None] | None = None
    note_departure: Callable[..., None] | None = None
    note_snapshot: Callable[..., None] | None = None
    forget_instance: Callable[..., None] | None = None

    def of(self, question: str) -> Any:  # noqa: ANN401 - a function, None, or what numba has in its place
        """Return the function that answers a question."""
        return getattr(self, question)


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
    keeps_prefixes = isinstance(policy, Weighted) and policy.keeps_prefixes
    is_tree, is_cost = isinstance(policy, CacheAware), isinstance(policy, KvCost)
    num_connections = len(requests.prompt_tokens) if isinstance(policy, KubeProxy) else 0
    num_sessions = int(requests.session.max(initial=-1)) + 1 if isinstance(policy, Session) else 0
    return Router(
        settings=settings_of(policy, fleet, seed=seed, stream=stream, compatibility=compatibility),
        weights=(weights := weights_of(policy)),
        least=np.zeros(len(weights), np.int64),
        most=np.zeros(len(weights), np.int64),
        shelves=Scored(
            records(len(fleet.shelves), INSTANCE),
            np.zeros(len(fleet.shelves), np.int64),
            np.zeros(len(fleet.shelves)),
        ),
        shelf_least=np.zeros((len(fleet.shelves), len(weights)), np.int64),
        shelf_most=np.zeros((len(fleet.shelves), len(weights)), np.int64),
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
    settings["policy"], settings["seed"], settings["stream"] = NUMBERS[type(policy)], seed, stream
    settings["must_see"] = NOWHERE
    settings["counts_twice"] = is_blis = compatibility == "blis"
    routed = RoutedFleet(len(fleet.instances), int(fleet.counts["block_size"][0]), is_blis)
    for name, number in policy.numbers(routed).items():
        settings[name] = number
    return settings


def with_room_for(router: Router, num_ids: int) -> Router:
    """Return the same router with room for a request of ``num_ids`` blocks, and about as much again as it has."""
    settings = router.settings[0]
    if settings.keeps_prefixes:
        capacity = 2 * len(router.prefixes.slots) + num_ids + 1
        router = router._replace(prefixes=with_more_slots(router.prefixes, capacity))
    if settings.policy == NUMBERS[CacheAware]:
        num_slots = 2 * len(router.tree.senders.slots) + num_ids + len(router.work)
        tree = with_more_room(router.tree, num_nodes=2 * len(router.tree.nodes), num_slots=num_slots)
        router = router._replace(tree=tree)
    if settings.policy == NUMBERS[KvCost]:
        router = router._replace(num_active=more_pairs(router.num_active, len(router.num_active) + num_ids))
    return router
