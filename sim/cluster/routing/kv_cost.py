"""kv-cost: Dynamo's KV router (1.4.2; 1.6.1 has the same terms), in blocks of work.

- prefill: prompt tokens on the instance without a first token yet, and this prompt's, in blocks, not rounded;
- credit: this prompt's blocks that the instance has on the device, and with less weight those in host memory (no engine
  here has a disk);
- decode: different full blocks of all its active requests, united with this prompt's.
"""

from __future__ import annotations

import math

from sim.cluster.arrays import clear_bit, find_pair, put_pair, remove_pair, set_bit
from sim.cluster.draws import draw
from sim.cluster.fleet import Fleet, RequestTable, num_full_blocks, num_prompt_ids
from sim.cluster.routing.recent import match_prefix
from sim.cluster.routing.router_state import PolicyFunctions, Router
from sim.cluster.routing.routing_policies import KvCost
from sim.cluster.routing.simple import take_best
from sim.jit.compile import part, phase


@phase
def choose_by_cost(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> int:
    """Return a candidate of least cost, ties at random, or with a temperature a drawn one."""
    num_ids = num_prompt_ids(fleet, requests, request)
    match_prefix(router.active, requests.hash_ids, requests.hash_starts[request], num_ids, router.matched)
    first = fleet.candidates[0]
    fewest = router.work[first].num_prefill_tokens
    for place in range(fleet.counts[0].num_candidates):
        fewest = min(fewest, router.work[fleet.candidates[place]].num_prefill_tokens)
    best, num_ties = -cost_of(router, fleet, requests, request, first, fewest), 0
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        score = -cost_of(router, fleet, requests, request, instance, fewest)
        router.scores[instance] = score
        if score > best:
            best, num_ties = score, 0
        num_ties += int(score == best)
    if router.settings[0].temperature > 0.0:
        return draw_by_cost(router, fleet, request, best)
    return take_best(router, fleet, request, best, num_ties)


@part
def cost_of(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int, fewest: int
) -> float:
    """Return what the request would cost on an instance; ``fewest``: the least prefill tokens of any."""
    settings, state, work = router.settings[0], fleet.instances[instance], router.work[instance]
    block_size, prompt_tokens = fleet.counts[0].block_size, requests.prompt_tokens[request]
    prefill = (work.num_prefill_tokens + prompt_tokens) / block_size
    credit = settings.overlap_score_credit * state.num_cached_blocks
    if settings.overlap_score_credit_decay > 0.0 and prompt_tokens > 0:
        excess = (work.num_prefill_tokens - fewest) / prompt_tokens
        credit /= 1.0 + settings.overlap_score_credit_decay * excess
    credit += settings.host_cache_hit_weight * state.num_host_blocks
    decode = work.num_active_blocks + num_full_blocks(fleet, requests, request) - router.matched[instance]
    return (
        settings.prefill_load_scale * max(0.0, prefill - credit)
        + decode
        + settings.decode_active_request_weight * state.num_in_flight
    )


@phase
def draw_by_cost(router: Router, fleet: Fleet, request: int, best: float) -> int:
    """Return a candidate drawn by softmax over the costs, normalised by their range."""
    settings, num = router.settings[0], fleet.counts[0].num_candidates
    worst = best
    for place in range(num):
        worst = min(worst, router.scores[fleet.candidates[place]])
    spread = best - worst if best > worst else 1.0
    total = 0.0
    for place in range(num):
        total += math.exp((router.scores[fleet.candidates[place]] - best) / spread / settings.temperature)
    left = draw(settings.seed, settings.stream, request) * total
    for place in range(num):
        left -= math.exp((router.scores[fleet.candidates[place]] - best) / spread / settings.temperature)
        if left <= 0.0:
            return fleet.candidates[place]
    return fleet.candidates[num - 1]


@phase
def hold_blocks(router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int) -> None:
    """Count a request's prompt blocks in on an instance; a block that another request has there is not new."""
    first, num_ids, work = (
        requests.hash_starts[request],
        num_prompt_ids(fleet, requests, request),
        router.work[instance],
    )
    for i in range(num_ids):
        block = requests.hash_ids[first + i]
        place = find_pair(router.num_active, instance, block)
        if place >= 0:
            router.num_active[place].value += 1
        else:
            put_pair(router.num_active, instance, block, 1)
            set_bit(router.active, block, instance)
            work.num_active_blocks += 1
            router.settings[0].num_active_pairs += 1
    work.num_active_blocks += num_full_blocks(fleet, requests, request) - num_ids
    work.num_prefill_tokens += requests.prompt_tokens[request]


@phase
def release_blocks(router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int) -> None:
    """Count a finished request's prompt blocks out; a block that no other request has there is removed."""
    first, num_ids, work = (
        requests.hash_starts[request],
        num_prompt_ids(fleet, requests, request),
        router.work[instance],
    )
    for i in range(num_ids):
        block = requests.hash_ids[first + i]
        place = find_pair(router.num_active, instance, block)
        router.num_active[place].value -= 1
        if router.num_active[place].value == 0:
            remove_pair(router.num_active, instance, block)
            clear_bit(router.active, block, instance)
            work.num_active_blocks -= 1
            router.settings[0].num_active_pairs -= 1
    work.num_active_blocks -= num_full_blocks(fleet, requests, request) - num_ids


@part
def has_room_for_blocks(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> bool:
    """Return whether a prompt's blocks can be counted in, the map at most half full."""
    num_ids = num_prompt_ids(fleet, requests, request)
    return len(router.num_active) >= 2 * (router.settings[0].num_active_pairs + num_ids)


@part
def end_prefill(router: Router, requests: RequestTable, request: int, instance: int) -> None:
    """Count a prompt out of what an instance has to compute."""
    router.work[instance].num_prefill_tokens -= requests.prompt_tokens[request]


FUNCTIONS = {
    KvCost: PolicyFunctions(
        choose=choose_by_cost,
        has_room=has_room_for_blocks,
        note_choice=hold_blocks,
        note_first_token=end_prefill,
        note_departure=release_blocks,
    )
}
