"""The score of each candidate by each scorer, 0 to 1, added to ``Router.scores`` with its weight.

By default a load counts each request once. With ``compatibility: blis`` load is waiting + running + in flight, and
queue-depth scores that load, as the peer documents it.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import (
    ACTIVE_ADAPTER,
    WAITING_ADAPTER,
    Fleet,
    RequestTable,
    num_full_blocks,
    num_prompt_ids,
)
from sim.cluster.routing.recent import match_prefix
from sim.cluster.routing.router_state import Router
from sim.cluster.routing.simple import load_seen
from sim.cluster.routing.vllm_dp import WAITING_WEIGHT
from sim.jit.compile import part, phase

(
    PREFIX_AFFINITY,
    PRECISE_PREFIX_CACHE,
    NO_HIT_LRU,
    QUEUE_DEPTH,
    KV_UTILIZATION,
    LOAD_BALANCE,
    ACTIVE_REQUESTS,
    RUNNING_REQUESTS,
    LOAD_AWARE,
    VLLM_DP_COUNTS,
    LORA_AFFINITY,
) = range(11)
"""As in ``policies.SCORERS``."""

NEUTRAL = 0.5
LONG_QUEUE = 128.0
"""load-aware: a queue of this many waiting requests counts as full (llm-d)."""

HAS_ADAPTER, HAS_ADAPTER_ROOM, IS_LOADING_ADAPTER = 1.0, 0.8, 0.6
"""lora-affinity's scores (gateway-api-inference-extension); else 0."""


@part
def add_score(router: Router, instance: int, scorer: int, score: float) -> None:
    """Add a score, kept within 0 and 1, with its scorer's weight."""
    router.scores[instance] += router.weights[scorer] * min(1.0, max(0.0, score))


@part
def find_matches(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> None:
    """Find how much of the prompt each instance has, as the instances report it or as the router remembers."""
    settings = router.settings[0]
    settings.is_cold = 1
    if settings.keeps_prefixes:
        num = num_prompt_ids(fleet, requests, request)
        match_prefix(
            router.prefixes.holders, requests.hash_ids, requests.hash_starts[request], num, router.matched
        )
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        hits = (
            fleet.instances[instance].num_cached_blocks if settings.asks_caches else router.matched[instance]
        )
        if hits > 0:
            settings.is_cold = 0


@phase
def score_prefixes(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> None:
    """prefix-affinity: the share of the prompt's full blocks that the router has sent there, without a gap."""
    num = max(1, num_full_blocks(fleet, requests, request))
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        add_score(router, instance, PREFIX_AFFINITY, router.matched[instance] / num)


@part
def column(router: Router, fleet: Fleet, scorer: int, instance: int) -> int:
    """Return the number by which a comparing scorer ranks candidates."""
    state = fleet.instances[instance]
    if scorer == PRECISE_PREFIX_CACHE:
        return state.num_cached_blocks
    if scorer == QUEUE_DEPTH:
        return load_seen(router, fleet, instance) if router.settings[0].counts_twice else state.num_waiting
    if scorer == RUNNING_REQUESTS:
        return state.num_running
    return WAITING_WEIGHT * state.num_waiting + state.num_running


@phase
def score_min_max(router: Router, fleet: Fleet, scorer: int) -> None:
    """Score candidates between the worst, 0, and the best, 1; all 1 where all are alike.

    precise-prefix-cache: more cached blocks are better. queue-depth (waiting), running-requests and vllm-dp
    (4 * waiting + running): fewer are.
    """
    least = most = column(router, fleet, scorer, fleet.candidates[0])
    for place in range(fleet.counts[0].num_candidates):
        value = column(router, fleet, scorer, fleet.candidates[place])
        least, most = min(least, value), max(most, value)
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        value = column(router, fleet, scorer, instance)
        good = value - least if scorer == PRECISE_PREFIX_CACHE else most - value
        add_score(router, instance, scorer, good / (most - least) if most > least else 1.0)


@phase
def score_cold_turns(router: Router, fleet: Fleet) -> None:
    """no-hit-lru: a request that hits nowhere goes to the instance that has gone longest without such a request."""
    num = fleet.counts[0].num_candidates
    rank = 0
    for place in range(len(router.cold_order)):
        instance = router.cold_order[place]
        if fleet.instances[instance].is_candidate:
            turn = 1.0 - rank / (num - 1) if num > 1 else 1.0
            add_score(router, instance, NO_HIT_LRU, turn if router.settings[0].is_cold else NEUTRAL)
            rank += 1


@phase
def score_active_requests(router: Router, fleet: Fleet) -> None:
    """active-requests: how far below the most in flight on any candidate; 1 if none is in flight."""
    most = 0
    for place in range(fleet.counts[0].num_candidates):
        most = max(most, fleet.instances[fleet.candidates[place]].num_in_flight)
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        below = most - fleet.instances[instance].num_in_flight
        add_score(router, instance, ACTIVE_REQUESTS, below / most if most > 0 else 1.0)


@part
def own_score(router: Router, fleet: Fleet, scorer: int, instance: int) -> float:
    """Return a candidate's score by a scorer that reads no other candidate's state."""
    state = fleet.instances[instance]
    if scorer == KV_UTILIZATION:
        return 1.0 - state.kv_usage
    if scorer == LOAD_BALANCE:
        return 1.0 / (1.0 + load_seen(router, fleet, instance))
    return 0.5 * (1.0 - min(float(state.num_waiting), LONG_QUEUE) / LONG_QUEUE)


@phase
def score_each(router: Router, fleet: Fleet, scorer: int) -> None:
    """kv-utilization: free KV; load-balance: 1 / (1 + load); load-aware: 0.5 down to 0 as the queue grows."""
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        add_score(router, instance, scorer, own_score(router, fleet, scorer, instance))


@phase
def score_adapters(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> None:
    """lora-affinity: whether the adapter is there, could be, or is on its way; all 1 for a request without one."""
    adapter = requests.adapter[request]
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        score = 1.0
        if adapter != NOWHERE:
            score = adapter_score(fleet, instance, fleet.adapters[instance, adapter])
        add_score(router, instance, LORA_AFFINITY, score)


@part
def adapter_score(fleet: Fleet, instance: int, has: int) -> float:
    """Return lora-affinity's score of an instance that ``has`` the adapter in this way."""
    if has == ACTIVE_ADAPTER:
        return HAS_ADAPTER
    if fleet.instances[instance].num_adapters < fleet.instances[instance].max_adapters:
        return HAS_ADAPTER_ROOM
    return IS_LOADING_ADAPTER if has == WAITING_ADAPTER else 0.0


@part
def score(router: Router, fleet: Fleet, requests: RequestTable, request: int, scorer: int) -> None:
    """Add a scorer's scores of all candidates."""
    if scorer == PREFIX_AFFINITY:
        score_prefixes(router, fleet, requests, request)
    elif scorer == NO_HIT_LRU:
        score_cold_turns(router, fleet)
    elif scorer == ACTIVE_REQUESTS:
        score_active_requests(router, fleet)
    elif scorer == LORA_AFFINITY:
        score_adapters(router, fleet, requests, request)
    elif scorer == KV_UTILIZATION or scorer == LOAD_BALANCE or scorer == LOAD_AWARE:  # noqa: PLR1714, SIM109 - numba compares scalars
        score_each(router, fleet, scorer)
    else:
        score_min_max(router, fleet, scorer)
