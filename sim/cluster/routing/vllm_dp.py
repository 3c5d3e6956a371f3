"""vLLM's own data-parallel balancer (v1/engine/core_client.py:DPLBAsyncMPClient), each of its three rules.

Its counts are the last that were published, plus what this front end has sent since, counted once per front end as
if all sent alike. A new snapshot replaces both: only the front end's own requests in flight are never lost.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet
from sim.cluster.routing.router_state import PolicyFunctions, Router
from sim.cluster.routing.routing_policies import VllmDp
from sim.jit.compile import part, phase

FIXED_START, IN_FLIGHT_FLOOR = 0, 2
"""The first and the last of the three rules (``VllmDp``)."""

KV_PENALTY = 6.0
FREE_KV_USAGE = 0.5
"""Below this share of KV blocks in use, waiting requests are assumed to wait for their turn only."""

WAITING_WEIGHT = 4
"""How many running requests weigh as much as one that waits, before 0.27."""


@part
def dp_score(router: Router, fleet: Fleet, instance: int) -> float:
    """Return a rank's score; the least wins."""
    settings, state = router.settings[0], fleet.instances[instance]
    waiting = state.num_waiting + router.work[instance].num_dispatched * settings.num_clients
    if settings.dp_rule != IN_FLIGHT_FLOOR:
        return float(waiting * WAITING_WEIGHT + state.num_running)
    score = float(max(settings.num_clients * state.num_in_flight, waiting + state.num_running))
    if waiting > 0:
        score += waiting * KV_PENALTY * max(0.0, state.kv_usage - FREE_KV_USAGE)
    return score


@phase
def choose_as_vllm(router: Router, fleet: Fleet) -> int:
    """Return the first rank with the least score, scanned from where this decision starts."""
    num, start = fleet.counts[0].num_candidates, router.settings[0].next_place
    chosen, least = NOWHERE, 0.0
    for place in range(num):
        instance = fleet.candidates[(start + place) % num]
        score = dp_score(router, fleet, instance)
        router.scores[instance] = -score
        if chosen == NOWHERE or score < least:
            chosen, least = instance, score
    return chosen


@part
def move_start(router: Router, fleet: Fleet) -> None:
    """Begin the next scan one rank further on, in the versions that do."""
    settings = router.settings[0]
    if settings.dp_rule != FIXED_START:
        settings.next_place = (settings.next_place + 1) % fleet.counts[0].num_candidates


@phase
def take_published(router: Router, fleet: Fleet) -> None:
    """Take the counts that were just published for all that was sent before."""
    for instance in range(len(fleet.instances)):
        router.work[instance].num_dispatched = 0


FUNCTIONS = {
    VllmDp: PolicyFunctions(choose=choose_as_vllm, note_choice=move_start, note_snapshot=take_published)
}
