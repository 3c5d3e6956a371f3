"""The policies that use one thing: a counter, a draw, the session, or how many requests are in flight."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.draws import pick
from sim.cluster.fleet import Fleet, RequestTable, load_of
from sim.cluster.routing.router_state import Router
from sim.jit.compile import part, phase


@part
def load_seen(r: Router, f: Fleet, instance: int) -> int:
    """Return an instance's load as the router's settings count it."""
    return load_of(f, instance, r.settings[0].counts_twice)


@part
def pick_for(r: Router, request: int, num_choices: int) -> int:
    """Return one of 0 to ``num_choices`` - 1 for a request, in the router's own stream."""
    return pick(r.settings[0].seed, r.settings[0].stream, request, num_choices)


@phase
def choose_in_turn(r: Router, f: Fleet) -> int:
    """Return the next candidate."""
    return f.candidates[r.settings[0].next_place % f.counts[0].num_candidates]


@phase
def choose_at_random(r: Router, f: Fleet, request: int) -> int:
    """Return any candidate."""
    return f.candidates[pick_for(r, request, f.counts[0].num_candidates)]


@part
def draw_two(r: Router, f: Fleet, request: int) -> tuple[int, int]:
    """Return two different candidates at random, in the order drawn; the same twice where there is but one."""
    num = f.counts[0].num_candidates
    if num == 1:
        return f.candidates[0], f.candidates[0]
    place = pick_for(r, request, num)
    other = pick(r.settings[0].seed, r.settings[0].stream + 1, request, num - 1)
    other += int(other >= place)
    return f.candidates[place], f.candidates[other]


@phase
def choose_of_two(r: Router, f: Fleet, request: int) -> int:
    """Return the less loaded of two different candidates, the first drawn in a tie."""
    first, second = draw_two(r, f, request)
    return first if load_seen(r, f, first) <= load_seen(r, f, second) else second


@phase
def choose_by_session(r: Router, f: Fleet, q: RequestTable, request: int) -> int:
    """Return the instance of the request's session; any candidate for a new session, or if that instance is gone."""
    session = q.session[request]
    if session != NOWHERE:
        known = r.session_instance[session]
        if known != NOWHERE and f.instances[known].is_candidate:
            return known
    return choose_at_random(r, f, request)


@phase
def choose_least_loaded(r: Router, f: Fleet, request: int) -> int:
    """Return the candidate with the least load; ties as the settings say."""
    least, num_ties, first = 0, 0, NOWHERE
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        load = load_seen(r, f, instance)
        r.scores[instance] = -load
        if num_ties == 0 or load < least:
            least, num_ties, first = load, 0, instance
        num_ties += int(load == least)
    if num_ties > 1 and r.settings[0].has_random_ties:
        return take_best(r, f, request, -float(least), num_ties)
    return first


@phase
def take_best(r: Router, f: Fleet, request: int, best: float, num_ties: int) -> int:
    """Return one of the ``num_ties`` candidates whose score is ``best``, each equally likely."""
    left = pick_for(r, request, num_ties) if num_ties > 1 else 0
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        if r.scores[instance] == best:
            if left == 0:
                return instance
            left -= 1
    return NOWHERE


@phase
def choose_busiest(r: Router, f: Fleet) -> int:
    """Return the first of the candidates with the most load."""
    busiest, most = NOWHERE, -1
    for place in range(f.counts[0].num_candidates):
        instance = f.candidates[place]
        load = load_seen(r, f, instance)
        r.scores[instance] = load
        if load > most:
            busiest, most = instance, load
    return busiest
