"""The weighted policy: the candidate with the highest sum of weighted scores, ties at random."""

from __future__ import annotations

from sim.cluster.fleet import Fleet, RequestTable, num_prompt_ids
from sim.cluster.routing import scorers as sc
from sim.cluster.routing.recent import forget, oldest_key, touch
from sim.cluster.routing.router_state import Router
from sim.cluster.routing.simple import take_best
from sim.jit.compile import part, phase


@phase
def choose_by_scores(r: Router, f: Fleet, q: RequestTable, request: int) -> int:
    """Return a candidate with the highest score."""
    add_up_scores(r, f, q, request)
    best, num_ties = -1.0, 0
    for place in range(f.counts[0].num_candidates):
        score = r.scores[f.candidates[place]]
        if score > best:
            best, num_ties = score, 0
        num_ties += int(score == best)
    return take_best(r, f, request, best, num_ties)


@part
def add_up_scores(r: Router, f: Fleet, q: RequestTable, request: int) -> None:
    """Set every candidate's score; scorers are added in one fixed order, so that equal sums are equal."""
    r.scores[:] = 0.0
    sc.find_matches(r, f, q, request)
    for scorer in range(len(r.weights)):
        if r.weights[scorer] == 0.0:
            continue
        if scorer == sc.PREFIX_AFFINITY:
            sc.score_prefixes(r, f, q, request)
        elif scorer == sc.NO_HIT_LRU:
            sc.score_cold_turns(r, f)
        elif scorer == sc.ACTIVE_REQUESTS:
            sc.score_active_requests(r, f)
        elif scorer == sc.LORA_AFFINITY:
            sc.score_adapters(r, f, q, request)
        elif scorer == sc.KV_UTILIZATION or scorer == sc.LOAD_BALANCE or scorer == sc.LOAD_AWARE:  # noqa: PLR1714 - numba compares scalars
            sc.score_each(r, f, scorer)
        else:
            sc.score_min_max(r, f, scorer)


@phase
def remember_prefix(r: Router, f: Fleet, q: RequestTable, request: int, instance: int) -> None:
    """Note that the prompt's blocks are now on an instance; the least recently sent beyond its capacity go.

    From the last block to the first, as vLLM frees them: of a prefix, what comes last is forgotten first.
    """
    first = q.hash_starts[request]
    for back in range(num_prompt_ids(f, q, request), 0, -1):
        touch(r.prefixes, instance, q.hash_ids[first + back - 1])
    while r.prefixes.lists[instance].num_keys > r.settings[0].prefix_capacity_blocks:
        forget(r.prefixes, instance, oldest_key(r.prefixes, instance))


@phase
def take_cold_turn(r: Router, instance: int) -> None:
    """Note that an instance has got a request that hits nowhere."""
    place = 0
    while r.cold_order[place] != instance:
        place += 1
    for i in range(place, len(r.cold_order) - 1):
        r.cold_order[i] = r.cold_order[i + 1]
    r.cold_order[len(r.cold_order) - 1] = instance
