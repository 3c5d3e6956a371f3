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
from sim.cluster.routing.router_state import Router
from sim.cluster.routing.simple import take_best
from sim.jit.compile import part, phase


@phase
def choose_by_cost(r: Router, f: Fleet, q: RequestTable, request: int) -> int:
    """Return a candidate of least cost, ties at random, or with a temperature a drawn one."""
    num_ids = num_prompt_ids(f, q, request)
    match_prefix(r.active, q.hash_ids, q.hash_starts[request], num_ids, r.matched)
    first = f.candidates[0]
    fewest = r.work[first].num_prefill_tokens
    for place in range(f.counts[0].num_candidates):
        fewest = min(fewest, r.work[f.candidates[place]].num_prefill_tokens)
    best, num_ties = -cost_of(r, f, q, request, first, fewest), 0
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        score = -cost_of(r, f, q, request, instance, fewest)
        r.scores[instance] = score
        if score > best:
            best, num_ties = score, 0
        num_ties += int(score == best)
    if r.settings[0].temperature > 0.0:
        return draw_by_cost(r, f, request, best)
    return take_best(r, f, request, best, num_ties)


@part
def cost_of(r: Router, f: Fleet, q: RequestTable, request: int, instance: int, fewest: int) -> float:
    """Return what the request would cost on an instance; ``fewest``: the least prefill tokens of any."""
    s, i, w = r.settings[0], f.instances[instance], r.work[instance]
    block_size, prompt_tokens = f.counts[0].block_size, q.prompt_tokens[request]
    prefill = (w.num_prefill_tokens + prompt_tokens) / block_size
    credit = s.overlap_score_credit * i.num_cached_blocks
    if s.overlap_score_credit_decay > 0.0 and prompt_tokens > 0:
        excess = (w.num_prefill_tokens - fewest) / prompt_tokens
        credit /= 1.0 + s.overlap_score_credit_decay * excess
    credit += s.host_cache_hit_weight * i.num_host_blocks
    decode = w.num_active_blocks + num_full_blocks(f, q, request) - r.matched[instance]
    return (
        s.prefill_load_scale * max(0.0, prefill - credit)
        + decode
        + s.decode_active_request_weight * i.num_in_flight
    )


@phase
def draw_by_cost(r: Router, f: Fleet, request: int, best: float) -> int:
    """Return a candidate drawn by softmax over the costs, normalised by their range."""
    s, num = r.settings[0], f.counts[0].num_candidates
    worst = best
    for place in range(num):
        worst = min(worst, r.scores[f.candidates[place]])
    spread = best - worst if best > worst else 1.0
    total = 0.0
    for place in range(num):
        total += math.exp((r.scores[f.candidates[place]] - best) / spread / s.temperature)
    left = draw(s.seed, s.stream, request) * total
    for place in range(num):
        left -= math.exp((r.scores[f.candidates[place]] - best) / spread / s.temperature)
        if left <= 0.0:
            return f.candidates[place]
    return f.candidates[num - 1]


@phase
def hold_blocks(r: Router, f: Fleet, q: RequestTable, request: int, instance: int) -> None:
    """Count a request's prompt blocks in on an instance; a block that another request has there is not new."""
    first, num_ids, w = q.hash_starts[request], num_prompt_ids(f, q, request), r.work[instance]
    for i in range(num_ids):
        block = q.hash_ids[first + i]
        place = find_pair(r.num_active, instance, block)
        if place >= 0:
            r.num_active[place].value += 1
        else:
            put_pair(r.num_active, instance, block, 1)
            set_bit(r.active, block, instance)
            w.num_active_blocks += 1
            r.settings[0].num_active_pairs += 1
    w.num_active_blocks += num_full_blocks(f, q, request) - num_ids
    w.num_prefill_tokens += q.prompt_tokens[request]


@phase
def release_blocks(r: Router, f: Fleet, q: RequestTable, request: int, instance: int) -> None:
    """Count a finished request's prompt blocks out; a block that no other request has there is removed."""
    first, num_ids, w = q.hash_starts[request], num_prompt_ids(f, q, request), r.work[instance]
    for i in range(num_ids):
        block = q.hash_ids[first + i]
        place = find_pair(r.num_active, instance, block)
        r.num_active[place].value -= 1
        if r.num_active[place].value == 0:
            remove_pair(r.num_active, instance, block)
            clear_bit(r.active, block, instance)
            w.num_active_blocks -= 1
            r.settings[0].num_active_pairs -= 1
    w.num_active_blocks -= num_full_blocks(f, q, request) - num_ids
