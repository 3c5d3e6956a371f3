"""The score of each candidate by each scorer, 0 to 1, added up with its weight.

By default a load counts each request once. With ``compatibility: blis`` load is waiting + running + in flight, and
queue-depth scores that load, as the peer documents it.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE, Records
from sim.cluster.fleet import (
    ACTIVE_ADAPTER,
    WAITING_ADAPTER,
    Fleet,
    RequestTable,
    load_of,
    num_full_blocks,
)
from sim.cluster.routing.router_state import Router, Scored
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
def add_score(router: Router, rows: Scored, row: int, scorer: int, score: float) -> None:
    """Add a score, kept within 0 and 1, with its scorer's weight."""
    rows.scores[row] += router.weights[scorer] * min(1.0, max(0.0, score))


@phase
def note_cold(router: Router, fleet: Fleet) -> None:
    """Note whether the request in hand hits nowhere."""
    settings = router.settings[0]
    settings.is_cold = 1
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        hits = (
            fleet.instances[instance].num_cached_blocks if settings.asks_caches else router.matched[instance]
        )
        if hits > 0:
            settings.is_cold = 0


@part
def score_prefixes(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, rows: Scored, first: int, end: int
) -> None:
    """prefix-affinity: the share of the prompt's full blocks that the router has sent there, without a gap."""
    num = max(1, num_full_blocks(fleet, requests, request))
    for row in range(first, end):
        add_score(router, rows, row, PREFIX_AFFINITY, rows.matched[row] / num)


@part
def is_compared(scorer: int) -> bool:
    """Return whether a scorer's scores lie between those of the worst and of the best candidate."""
    is_queue = scorer == QUEUE_DEPTH or scorer == RUNNING_REQUESTS or scorer == VLLM_DP_COUNTS  # noqa: PLR1714 - numba compares scalars
    return is_queue or scorer == PRECISE_PREFIX_CACHE or scorer == ACTIVE_REQUESTS  # noqa: PLR1714 - likewise


@part
def column(router: Router, seen: Records, scorer: int) -> int:
    """Return the number by which a comparing scorer ranks candidates."""
    if scorer == PRECISE_PREFIX_CACHE:
        return seen.num_cached_blocks
    if scorer == QUEUE_DEPTH:
        return load_of(seen, 1) if router.settings[0].counts_twice else seen.num_waiting
    if scorer == ACTIVE_REQUESTS:
        return seen.num_in_flight
    if scorer == RUNNING_REQUESTS:
        return seen.num_running
    return WAITING_WEIGHT * seen.num_waiting + seen.num_running


@phase
def compare_candidates(router: Router, fleet: Fleet) -> None:
    """Find the least and the most of each column that some scorer compares, over all candidates."""
    for scorer in range(len(router.weights)):
        if router.weights[scorer] == 0.0 or not is_compared(scorer):
            continue
        least = most = column(router, fleet.instances[fleet.candidates[0]], scorer)
        for place in range(fleet.counts[0].num_candidates):
            value = column(router, fleet.instances[fleet.candidates[place]], scorer)
            least, most = min(least, value), max(most, value)
        router.least[scorer], router.most[scorer] = least, most


@part
def score_min_max(router: Router, rows: Scored, scorer: int, first: int, end: int) -> None:
    """Score candidates between the worst, 0, and the best, 1; all 1 where all are alike.

    precise-prefix-cache: more cached blocks are better. queue-depth (waiting), running-requests and vllm-dp
    (4 * waiting + running): fewer are.
    """
    least, most = router.least[scorer], router.most[scorer]
    for row in range(first, end):
        value = column(router, rows.seen[row], scorer)
        good = value - least if scorer == PRECISE_PREFIX_CACHE else most - value
        add_score(router, rows, row, scorer, good / (most - least) if most > least else 1.0)


@phase
def score_cold_turns(router: Router, fleet: Fleet, rows: Scored) -> None:
    """no-hit-lru: a request that hits nowhere goes to the instance that has gone longest without such a request."""
    num = fleet.counts[0].num_candidates
    rank = 0
    for place in range(len(router.cold_order)):
        instance = router.cold_order[place]
        if fleet.instances[instance].is_candidate:
            turn = 1.0 - rank / (num - 1) if num > 1 else 1.0
            add_score(router, rows, instance, NO_HIT_LRU, turn if router.settings[0].is_cold else NEUTRAL)
            rank += 1


@part
def score_active_requests(router: Router, rows: Scored, first: int, end: int) -> None:
    """active-requests: how far below the most in flight on any candidate; 1 if none is in flight."""
    most = router.most[ACTIVE_REQUESTS]
    for row in range(first, end):
        below = most - rows.seen[row].num_in_flight
        add_score(router, rows, row, ACTIVE_REQUESTS, below / most if most > 0 else 1.0)


@part
def own_score(router: Router, seen: Records, scorer: int) -> float:
    """Return a candidate's score by a scorer that reads no other candidate's state."""
    if scorer == KV_UTILIZATION:
        return 1.0 - seen.kv_usage
    if scorer == LOAD_BALANCE:
        return 1.0 / (1.0 + load_of(seen, router.settings[0].counts_twice))
    return 0.5 * (1.0 - min(float(seen.num_waiting), LONG_QUEUE) / LONG_QUEUE)


@part
def score_each(router: Router, rows: Scored, scorer: int, first: int, end: int) -> None:
    """kv-utilization: free KV; load-balance: 1 / (1 + load); load-aware: 0.5 down to 0 as the queue grows."""
    for row in range(first, end):
        add_score(router, rows, row, scorer, own_score(router, rows.seen[row], scorer))


@phase
def score_adapters(router: Router, fleet: Fleet, requests: RequestTable, request: int, rows: Scored) -> None:
    """lora-affinity: whether the adapter is there, could be, or is on its way; all 1 for a request without one."""
    adapter = requests.adapter[request]
    for instance in range(len(fleet.instances)):
        score = 1.0
        if adapter != NOWHERE:
            score = adapter_score(fleet, instance, fleet.adapters[instance, adapter])
        add_score(router, rows, instance, LORA_AFFINITY, score)


@part
def adapter_score(fleet: Fleet, instance: int, has: int) -> float:
    """Return lora-affinity's score of an instance that ``has`` the adapter in this way."""
    if has == ACTIVE_ADAPTER:
        return HAS_ADAPTER
    if fleet.instances[instance].num_adapters < fleet.instances[instance].max_adapters:
        return HAS_ADAPTER_ROOM
    return IS_LOADING_ADAPTER if has == WAITING_ADAPTER else 0.0


@phase
def score_rows(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, rows: Scored, first: int, end: int
) -> None:
    """Score some rows; scorers are added in one fixed order, so that equal sums are equal.

    no-hit-lru and lora-affinity score all instances, whatever the rows (``compares_alone``).
    """
    for row in range(first, end):
        rows.scores[row] = 0.0
    for scorer in range(len(router.weights)):
        if router.weights[scorer] == 0.0:
            continue
        if scorer == PREFIX_AFFINITY:
            score_prefixes(router, fleet, requests, request, rows, first, end)
        elif scorer == NO_HIT_LRU:
            score_cold_turns(router, fleet, rows)
        elif scorer == ACTIVE_REQUESTS:
            score_active_requests(router, rows, first, end)
        elif scorer == LORA_AFFINITY:
            score_adapters(router, fleet, requests, request, rows)
        elif scorer == KV_UTILIZATION or scorer == LOAD_BALANCE or scorer == LOAD_AWARE:  # noqa: PLR1714, SIM109 - numba compares scalars
            score_each(router, rows, scorer, first, end)
        else:
            score_min_max(router, rows, scorer, first, end)
