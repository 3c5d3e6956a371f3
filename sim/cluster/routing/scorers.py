"""The score of each candidate by each scorer, 0 to 1, added to ``Router.scores`` with its weight.

By default a load counts each request once. With ``compatibility: blis`` load is waiting + running + in flight, and
queue-depth scores that load, as the peer documents it.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import ACTIVE_ADAPTER, WAITING_ADAPTER, Fleet, RequestTable, num_prompt_ids
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
def add_score(r: Router, instance: int, scorer: int, score: float) -> None:
    """Add a score, kept within 0 and 1, with its scorer's weight."""
    r.scores[instance] += r.weights[scorer] * min(1.0, max(0.0, score))


@part
def find_matches(r: Router, f: Fleet, q: RequestTable, request: int) -> None:
    """Find how much of the prompt each instance has, as the instances report it or as the router remembers."""
    s = r.settings[0]
    s.is_cold = 1
    if s.keeps_prefixes:
        num = num_prompt_ids(f, q, request)
        match_prefix(r.prefixes.holders, q.hash_ids, q.hash_starts[request], num, r.matched)
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        hits = f.instances[instance].num_cached_blocks if s.asks_caches else r.matched[instance]
        if hits > 0:
            s.is_cold = 0


@phase
def score_prefixes(r: Router, f: Fleet, q: RequestTable, request: int) -> None:
    """prefix-affinity: the share of the prompt's blocks with ids that the router has sent there."""
    num = max(1, num_prompt_ids(f, q, request))
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        add_score(r, instance, PREFIX_AFFINITY, r.matched[instance] / num)


@part
def column(r: Router, f: Fleet, scorer: int, instance: int) -> int:
    """Return the number by which a comparing scorer ranks candidates."""
    i = f.instances[instance]
    if scorer == PRECISE_PREFIX_CACHE:
        return i.num_cached_blocks
    if scorer == QUEUE_DEPTH:
        return load_seen(r, f, instance) if r.settings[0].counts_twice else i.num_waiting
    if scorer == RUNNING_REQUESTS:
        return i.num_running
    return WAITING_WEIGHT * i.num_waiting + i.num_running


@phase
def score_min_max(r: Router, f: Fleet, scorer: int) -> None:
    """Score candidates between the worst, 0, and the best, 1; all 1 where all are alike.

    precise-prefix-cache: more cached blocks are better. queue-depth (waiting), running-requests and vllm-dp
    (4 * waiting + running): fewer are.
    """
    least = most = column(r, f, scorer, f.candidates[0])
    for place in range(f.counts[0].num_candidates):
        value = column(r, f, scorer, f.candidates[place])
        least, most = min(least, value), max(most, value)
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        value = column(r, f, scorer, instance)
        good = value - least if scorer == PRECISE_PREFIX_CACHE else most - value
        add_score(r, instance, scorer, good / (most - least) if most > least else 1.0)


@phase
def score_cold_turns(r: Router, f: Fleet) -> None:
    """no-hit-lru: a request that hits nowhere goes to the instance that has gone longest without such a request."""
    num = f.counts[0].num_candidates
    rank = 0
    for place in range(len(r.cold_order)):
        instance = r.cold_order[place]
        if f.instances[instance].is_candidate:
            turn = 1.0 - rank / (num - 1) if num > 1 else 1.0
            add_score(r, instance, NO_HIT_LRU, turn if r.settings[0].is_cold else NEUTRAL)
            rank += 1


@phase
def score_active_requests(r: Router, f: Fleet) -> None:
    """active-requests: how far below the most in flight on any candidate; 1 if none is in flight."""
    most = 0
    for place in range(f.counts[0].num_candidates):
        most = max(most, f.instances[f.candidates[place]].num_in_flight)
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        below = most - f.instances[instance].num_in_flight
        add_score(r, instance, ACTIVE_REQUESTS, below / most if most > 0 else 1.0)


@part
def own_score(r: Router, f: Fleet, scorer: int, instance: int) -> float:
    """Return a candidate's score by a scorer that reads no other candidate's state."""
    i = f.instances[instance]
    if scorer == KV_UTILIZATION:
        return 1.0 - i.kv_usage
    if scorer == LOAD_BALANCE:
        return 1.0 / (1.0 + load_seen(r, f, instance))
    return 0.5 * (1.0 - min(float(i.num_waiting), LONG_QUEUE) / LONG_QUEUE)


@phase
def score_each(r: Router, f: Fleet, scorer: int) -> None:
    """kv-utilization: free KV; load-balance: 1 / (1 + load); load-aware: 0.5 down to 0 as the queue grows."""
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        add_score(r, instance, scorer, own_score(r, f, scorer, instance))


@phase
def score_adapters(r: Router, f: Fleet, q: RequestTable, request: int) -> None:
    """lora-affinity: whether the adapter is there, could be, or is on its way; all 1 for a request without one."""
    adapter = q.adapter[request]
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        score = 1.0
        if adapter != NOWHERE:
            score = adapter_score(f, instance, f.adapters[instance, adapter])
        add_score(r, instance, LORA_AFFINITY, score)


@part
def adapter_score(f: Fleet, instance: int, has: int) -> float:
    """Return lora-affinity's score of an instance that ``has`` the adapter in this way."""
    if has == ACTIVE_ADAPTER:
        return HAS_ADAPTER
    if f.instances[instance].num_adapters < f.instances[instance].max_adapters:
        return HAS_ADAPTER_ROOM
    return IS_LOADING_ADAPTER if has == WAITING_ADAPTER else 0.0
