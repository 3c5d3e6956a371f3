"""The policies that use one thing: a counter, a draw, the session, or how many requests are in flight."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE, first_at_most
from sim.cluster.draws import pick
from sim.cluster.fleet import Fleet, RequestTable, load_of
from sim.cluster.routing.router_state import PolicyFunctions, Router
from sim.cluster.routing.routing_policies import (
    AlwaysBusiest,
    LeastLoaded,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
    Session,
)
from sim.jit.compile import part, phase


@part
def load_seen(router: Router, fleet: Fleet, instance: int) -> int:
    """Return an instance's load as the router's settings count it."""
    return load_of(fleet.instances[instance], router.settings[0].counts_twice)


@part
def pick_for(router: Router, request: int, num_choices: int) -> int:
    """Return one of 0 to ``num_choices`` - 1 for a request, in the router's own stream."""
    return pick(router.settings[0].seed, router.settings[0].stream, request, num_choices)


@phase
def choose_in_turn(router: Router, fleet: Fleet) -> int:
    """Return the next candidate."""
    return fleet.candidates[router.settings[0].next_place % fleet.counts[0].num_candidates]


@phase
def choose_at_random(router: Router, fleet: Fleet, request: int) -> int:
    """Return any candidate."""
    return fleet.candidates[pick_for(router, request, fleet.counts[0].num_candidates)]


@part
def draw_two(router: Router, fleet: Fleet, request: int) -> tuple[int, int]:
    """Return two different candidates at random, in the order drawn; the same twice where there is but one."""
    num = fleet.counts[0].num_candidates
    if num == 1:
        return fleet.candidates[0], fleet.candidates[0]
    place = pick_for(router, request, num)
    other = pick(router.settings[0].seed, router.settings[0].stream + 1, request, num - 1)
    other += int(other >= place)
    return fleet.candidates[place], fleet.candidates[other]


@phase
def choose_of_two(router: Router, fleet: Fleet, request: int) -> int:
    """Return the less loaded of two different candidates, the first drawn in a tie."""
    first, second = draw_two(router, fleet, request)
    return first if load_seen(router, fleet, first) <= load_seen(router, fleet, second) else second


@phase
def choose_by_session(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> int:
    """Return the instance of the request's session; any candidate for a new session, or if that instance is gone."""
    session = requests.session[request]
    if session != NOWHERE:
        known = router.session_instance[session]
        if known != NOWHERE and fleet.instances[known].is_candidate:
            return known
    return choose_at_random(router, fleet, request)


@phase
def choose_least_loaded(router: Router, fleet: Fleet, request: int) -> int:
    """Return the candidate with the least load; ties as the settings say."""
    settings = router.settings[0]
    if len(fleet.loads) > 0 and not settings.counts_twice and not settings.has_random_ties:
        return fleet.candidates[first_at_most(fleet.loads, 0, fleet.loads[1])]
    least, num_ties, first = 0, 0, NOWHERE
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        load = load_seen(router, fleet, instance)
        router.scores[instance] = -load
        if num_ties == 0 or load < least:
            least, num_ties, first = load, 0, instance
        num_ties += int(load == least)
    if num_ties > 1 and settings.has_random_ties:
        return take_best(router, fleet, request, -float(least), num_ties)
    return first


@phase
def take_best(router: Router, fleet: Fleet, request: int, best: float, num_ties: int) -> int:
    """Return one of the ``num_ties`` candidates whose score is ``best``, each equally likely."""
    left = pick_for(router, request, num_ties) if num_ties > 1 else 0
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        if router.scores[instance] == best:
            if left == 0:
                return instance
            left -= 1
    return NOWHERE


@phase
def choose_busiest(router: Router, fleet: Fleet) -> int:
    """Return the first of the candidates with the most load."""
    busiest, most = NOWHERE, -1
    for place in range(fleet.counts[0].num_candidates):
        instance = fleet.candidates[place]
        load = load_seen(router, fleet, instance)
        router.scores[instance] = load
        if load > most:
            busiest, most = instance, load
    return busiest


@part
def take_turn(router: Router) -> None:
    """Go on to the next candidate."""
    router.settings[0].next_place += 1


@part
def note_session(router: Router, requests: RequestTable, request: int, instance: int) -> None:
    """Note where a request's session goes from now on."""
    if requests.session[request] != NOWHERE:
        router.session_instance[requests.session[request]] = instance


FUNCTIONS = {
    RoundRobin: PolicyFunctions(choose=choose_in_turn, note_choice=take_turn),
    RandomChoice: PolicyFunctions(choose=choose_at_random),
    PowerOfTwo: PolicyFunctions(choose=choose_of_two),
    Session: PolicyFunctions(choose=choose_by_session, note_choice=note_session),
    LeastLoaded: PolicyFunctions(choose=choose_least_loaded),
    AlwaysBusiest: PolicyFunctions(choose=choose_busiest),
}
