"""The weighted policy: the candidate with the highest sum of weighted scores, ties at random."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet, RequestTable, num_full_blocks, num_prompt_ids
from sim.cluster.routing import scorers as sc
from sim.cluster.routing.recent import add_own, keep_at_most, match_prefix, num_free_slots, touch
from sim.cluster.routing.router_state import PolicyFunctions, Router, Scored
from sim.cluster.routing.routing_policies import Weighted
from sim.cluster.routing.shelves import search
from sim.cluster.routing.simple import take_best
from sim.jit.compile import part, phase


def compares_alone(policy: Weighted) -> bool:
    """Return whether no scorer ranks all, or reads what each instance has: they are found by what shelves say."""
    return not policy.has("precise-prefix-cache", "no-hit-lru", "lora-affinity")


@phase
def choose_by_scores(router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int) -> int:
    """Return a candidate with the highest score, or where some must be looked at first, as ``search``."""
    if len(fleet.shelves) > 0 and fleet.counts[0].is_by_number and not router.settings[0].counts_twice:
        return search(router, fleet, requests, request, time_us)
    add_up_scores(router, fleet, requests, request)
    best, num_ties = -1.0, 0
    for place in range(fleet.counts[0].num_candidates):
        score = router.scores[fleet.candidates[place]]
        if score > best:
            best, num_ties = score, 0
        num_ties += int(score == best)
    return take_best(router, fleet, request, best, num_ties)


@part
def add_up_scores(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> None:
    """Set every candidate's score, 0 of other instances."""
    if router.settings[0].keeps_prefixes:
        num = num_prompt_ids(fleet, requests, request)
        match_prefix(
            router.prefixes.holders, requests.hash_ids, requests.hash_starts[request], num, router.matched
        )
    sc.note_cold(router, fleet)
    sc.compare_candidates(router, fleet)
    rows = Scored(fleet.instances, router.matched, router.scores)
    sc.score_rows(router, fleet, requests, request, rows, 0, len(router.scores))
    for instance in range(len(router.scores)):
        if fleet.place_of[instance] == NOWHERE:
            router.scores[instance] = 0.0


@phase
def remember_prefix(
    router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int
) -> None:
    """Note that the prompt's blocks are now on an instance; the least recently sent beyond its capacity go.

    All of its full blocks, from the first to the last, as inference-sim (sim/prefix_cache_index.go:RecordBlocks) and
    the Gateway API's inference extension (pkg/epp/.../multi/prefix/indexer.go:Add) do: a router cannot know which of
    them another request will have.
    """
    first, num = requests.hash_starts[request], num_prompt_ids(fleet, requests, request)
    for place in range(num):
        touch(router.prefixes, instance, requests.hash_ids[first + place])
    add_own(router.prefixes, instance, num_full_blocks(fleet, requests, request) - num)
    keep_at_most(router.prefixes, instance, router.settings[0].prefix_capacity_blocks)


@phase
def take_cold_turn(router: Router, instance: int) -> None:
    """Note that an instance has got a request that hits nowhere."""
    place = 0
    while router.cold_order[place] != instance:
        place += 1
    for i in range(place, len(router.cold_order) - 1):
        router.cold_order[i] = router.cold_order[i + 1]
    router.cold_order[len(router.cold_order) - 1] = instance


@phase
def note_scored(router: Router, fleet: Fleet, requests: RequestTable, request: int, instance: int) -> None:
    """Note what the scorers that remember will ask."""
    settings = router.settings[0]
    if settings.keeps_prefixes:
        remember_prefix(router, fleet, requests, request, instance)
    if settings.is_cold and router.weights[sc.NO_HIT_LRU] > 0.0:
        take_cold_turn(router, instance)


@phase
def has_room_for_prefix(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> bool:
    """Return whether a prompt's blocks can be remembered, and one more for blocks of its own."""
    if not router.settings[0].keeps_prefixes:
        return True
    return num_free_slots(router.prefixes) > num_prompt_ids(fleet, requests, request)


@phase
def forget_prefixes(router: Router, instance: int) -> None:
    """Forget what was sent to an instance."""
    if router.settings[0].keeps_prefixes:
        keep_at_most(router.prefixes, instance, 0)


FUNCTIONS = {
    Weighted: PolicyFunctions(
        choose=choose_by_scores,
        has_room=has_room_for_prefix,
        note_choice=note_scored,
        forget_instance=forget_prefixes,
    )
}
