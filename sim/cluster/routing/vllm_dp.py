"""vLLM's own data-parallel balancer (v1/engine/core_client.py:DPLBAsyncMPClient), each of its three rules.

Its counts are the last that were published, plus what this front end has sent since, counted once per front end as
if all sent alike. A new snapshot replaces both: only the front end's own requests in flight are never lost.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet
from sim.cluster.routing.router_state import DP_FIXED_START, DP_IN_FLIGHT_FLOOR, Router
from sim.jit.compile import part, phase

KV_PENALTY = 6.0
FREE_KV_USAGE = 0.5
"""Below this share of KV blocks in use, waiting requests are assumed to wait for their turn only."""

WAITING_WEIGHT = 4
"""How many running requests weigh as much as one that waits, before 0.27."""


@part
def dp_score(r: Router, f: Fleet, instance: int) -> float:
    """Return a rank's score; the least wins."""
    s, i = r.settings[0], f.instances[instance]
    waiting = i.num_waiting + r.work[instance].num_dispatched * s.num_clients
    if s.dp_rule != DP_IN_FLIGHT_FLOOR:
        return float(waiting * WAITING_WEIGHT + i.num_running)
    score = float(max(s.num_clients * i.num_in_flight, waiting + i.num_running))
    if waiting > 0:
        score += waiting * KV_PENALTY * max(0.0, i.kv_usage - FREE_KV_USAGE)
    return score


@phase
def choose_as_vllm(r: Router, f: Fleet) -> int:
    """Return the first rank with the least score, scanned from where this decision starts."""
    num, start = f.counts[0].num_candidates, r.settings[0].next_place
    chosen, least = NOWHERE, 0.0
    for place in range(num):
        instance = f.candidates[(start + place) % num]
        score = dp_score(r, f, instance)
        r.scores[instance] = -score
        if chosen == NOWHERE or score < least:
            chosen, least = instance, score
    return chosen


@part
def move_start(r: Router, f: Fleet) -> None:
    """Begin the next scan one rank further on, in the versions that do."""
    s = r.settings[0]
    if s.dp_rule != DP_FIXED_START:
        s.next_place = (s.next_place + 1) % f.counts[0].num_candidates
