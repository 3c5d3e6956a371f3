"""The candidate with the highest score, found without a look at each: 64 instances in a row are a shelf.

A shelf is scored as if one instance had the best of each number that is on it. No score on it is higher: each scorer's
goes one way with each number, and so do the sums, rounding included. Only shelves that might have the best are opened.

An instance's KV usage may be of an earlier time: then it is at least that, and its score at most what it says. It is
asked for, by ``must_see``, only where that would be the best.
"""

from __future__ import annotations

from sim.cluster.arrays import BITS, FAR, NOWHERE, set_number
from sim.cluster.fleet import Fleet, RequestTable, num_prompt_ids
from sim.cluster.routing.recent import longest_match, match_word
from sim.cluster.routing.router_state import Router, Scored
from sim.cluster.routing.scorers import column, is_compared, score_rows
from sim.cluster.routing.simple import pick_for
from sim.jit.compile import part, phase


@part
def add_in_flight(fleet: Fleet, instance: int, change: int) -> None:
    """Count a request in on an instance, or with -1 out."""
    fleet.instances[instance].num_in_flight += change
    if len(fleet.loads) > 0 and fleet.place_of[instance] != NOWHERE:
        set_number(fleet.loads, fleet.place_of[instance], fleet.instances[instance].num_in_flight)
    note_changed(fleet, instance)


@part
def note_changed(fleet: Fleet, instance: int) -> None:
    """Note that something that scores read of an instance has changed."""
    if len(fleet.shelves) > 0:
        fleet.shelves[instance // BITS].is_outdated = 1


@part
def is_on_shelf(fleet: Fleet, instance: int) -> bool:
    """Return whether an instance is a candidate."""
    return (fleet.shelves[instance // BITS].candidates >> (instance % BITS)) & 1 == 1


@part
def end_of(fleet: Fleet, shelf: int) -> int:
    """Return the number behind a shelf's last instance."""
    return min((shelf + 1) * BITS, len(fleet.instances))


@phase
def take_stock(router: Router, fleet: Fleet, shelf: int) -> None:
    """Note the best of each number on a shelf, and between what its compared columns lie."""
    best = router.shelves.seen[shelf]
    best.num_in_flight = best.num_waiting = best.num_running = FAR
    best.kv_usage = 1.0
    for instance in range(shelf * BITS, end_of(fleet, shelf)):
        if not is_on_shelf(fleet, instance):
            continue
        seen = fleet.instances[instance]
        best.num_in_flight = min(best.num_in_flight, seen.num_in_flight)
        best.num_waiting = min(best.num_waiting, seen.num_waiting)
        best.num_running = min(best.num_running, seen.num_running)
        best.kv_usage = min(best.kv_usage, seen.kv_usage)
    for scorer in range(len(router.weights)):
        if router.weights[scorer] == 0.0 or not is_compared(scorer):
            continue
        least, most = FAR, -FAR
        for instance in range(shelf * BITS, end_of(fleet, shelf)):
            if is_on_shelf(fleet, instance):
                value = column(router, fleet.instances[instance], scorer)
                least, most = min(least, value), max(most, value)
        router.shelf_least[shelf, scorer], router.shelf_most[shelf, scorer] = least, most
    fleet.shelves[shelf].is_outdated = 0


@phase
def compare_shelves(router: Router, fleet: Fleet) -> None:
    """Find the least and the most of each compared column, over all candidates."""
    for shelf in range(len(fleet.shelves)):
        if fleet.shelves[shelf].is_outdated and fleet.shelves[shelf].candidates != 0:
            take_stock(router, fleet, shelf)
    for scorer in range(len(router.weights)):
        if router.weights[scorer] == 0.0 or not is_compared(scorer):
            continue
        least, most = FAR, -FAR
        for shelf in range(len(fleet.shelves)):
            if fleet.shelves[shelf].candidates != 0:
                least = min(least, router.shelf_least[shelf, scorer])
                most = max(most, router.shelf_most[shelf, scorer])
        router.least[scorer], router.most[scorer] = least, most


@phase
def score_shelves(router: Router, fleet: Fleet, requests: RequestTable, request: int) -> None:
    """Set of each shelf the score that none on it exceeds, below all scores where there is none."""
    num, start = num_prompt_ids(fleet, requests, request), requests.hash_starts[request]
    shelves = router.shelves
    if router.settings[0].keeps_prefixes:
        for shelf in range(len(fleet.shelves)):
            shelves.matched[shelf] = longest_match(
                router.prefixes.holders, requests.hash_ids, start, num, shelf
            )
    score_rows(router, fleet, requests, request, shelves, 0, len(fleet.shelves))
    for shelf in range(len(fleet.shelves)):
        fleet.shelves[shelf].is_open = 0
        if fleet.shelves[shelf].candidates == 0:
            shelves.scores[shelf] = -1.0


@phase
def open_shelf(router: Router, fleet: Fleet, requests: RequestTable, request: int, shelf: int) -> None:
    """Score the instances of a shelf; the best candidate's score is the shelf's."""
    first, end, best = shelf * BITS, end_of(fleet, shelf), -1.0
    if router.settings[0].keeps_prefixes:
        num, start = num_prompt_ids(fleet, requests, request), requests.hash_starts[request]
        for instance in range(first, end):
            router.matched[instance] = 0
        match_word(router.prefixes.holders, requests.hash_ids, start, num, shelf, router.matched)
    rows = Scored(fleet.instances, router.matched, router.scores)
    score_rows(router, fleet, requests, request, rows, first, end)
    for instance in range(first, end):
        if is_on_shelf(fleet, instance):
            best = max(best, router.scores[instance])
    router.shelves.scores[shelf] = best
    fleet.shelves[shelf].is_open = 1


@phase
def search(router: Router, fleet: Fleet, requests: RequestTable, request: int, time_us: int) -> int:
    """Return a candidate with the highest score, each that has it equally likely.

    NOWHERE where ``must_see`` says of which one the KV usage must be known at ``time_us`` first. The next call then
    goes on: the score of that one, and so its shelf's, has become no higher.
    """
    if router.settings[0].must_see == NOWHERE:
        compare_shelves(router, fleet)
        score_shelves(router, fleet, requests, request)
    else:
        fleet.shelves[router.settings[0].must_see // BITS].is_open = 0
    scores = router.shelves.scores
    while True:
        top, is_open = 0, fleet.shelves[0].is_open
        for shelf in range(1, len(fleet.shelves)):
            if scores[shelf] > scores[top] or (scores[shelf] == scores[top] and is_open):
                top, is_open = shelf, fleet.shelves[shelf].is_open
        if is_open:
            return take_best_on_shelves(router, fleet, request, scores[top], time_us)
        open_shelf(router, fleet, requests, request, top)


@part
def count_best(router: Router, fleet: Fleet, best: float, time_us: int) -> int:
    """Return how many candidates have the score ``best``; set ``must_see`` where one has it by an earlier KV usage."""
    num_ties, router.settings[0].must_see = 0, NOWHERE
    for shelf in range(len(fleet.shelves)):
        if router.shelves.scores[shelf] != best:
            continue
        for instance in range(shelf * BITS, end_of(fleet, shelf)):
            if router.scores[instance] == best and is_on_shelf(fleet, instance):
                num_ties += 1
                if fleet.instances[instance].exact_until_us <= time_us:
                    router.settings[0].must_see = instance
    return num_ties


@phase
def take_best_on_shelves(router: Router, fleet: Fleet, request: int, best: float, time_us: int) -> int:
    """Return one of the candidates whose score is ``best``, by their numbers, or NOWHERE as ``search``."""
    num_ties = count_best(router, fleet, best, time_us)
    if router.settings[0].must_see != NOWHERE:
        return NOWHERE
    left = pick_for(router, request, num_ties) if num_ties > 1 else 0
    for shelf in range(len(fleet.shelves)):
        if router.shelves.scores[shelf] != best:
            continue
        for instance in range(shelf * BITS, end_of(fleet, shelf)):
            if router.scores[instance] == best and is_on_shelf(fleet, instance):
                if left == 0:
                    return instance
                left -= 1
    return NOWHERE
