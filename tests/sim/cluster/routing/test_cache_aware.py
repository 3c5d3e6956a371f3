"""cache-aware at its edges: exactly at a threshold, an owner who was evicted, an owner who is gone, no prompt."""

from __future__ import annotations

import numpy as np

from sim.cluster.fleet import new_fleet, request_table, set_candidates
from sim.cluster.routing.router_state import new_router, with_room_for
from sim.cluster.routing.routing_policies import CacheAware
from tests.sim.cluster.compiled_calls import NEEDS_ROOM, decide, settle
from tests.sim.cluster.worlds import requests_with


class Router:
    """A cache-aware router over texts, one letter a token, with loads that the test sets."""

    def __init__(self, policy: CacheAware, texts: list[str], *, num_instances: int) -> None:
        ids = [[ord(letter) for letter in text] for text in texts]
        self.table = request_table(requests_with(ids, [len(text) for text in texts]))
        self.fleet = new_fleet(num_instances, block_size=1)
        self.router = new_router(policy, self.fleet, self.table)

    def choose(self, request: int, *, time_us: int = 0) -> int:
        while (chosen := decide(self.router, self.fleet, self.table, request, time_us)) == NEEDS_ROOM:
            self.router = with_room_for(self.router, int(self.table.prompt_tokens[request]))
        return chosen

    def send(self, request: int, to: int) -> None:
        self.choose(request)
        settle(self.router, self.fleet, self.table, request, to)

    def set_loads(self, *loads: int) -> None:
        self.fleet.instances["num_in_flight"] = np.array(loads)


def test_a_match_of_exactly_the_threshold_is_too_little() -> None:
    router = Router(CacheAware(cache_threshold=0.5), ["aaaa", "aabb", "aaab"], num_instances=2)
    router.send(0, to=1)
    router.set_loads(0, 3)
    assert [router.choose(1), router.choose(2)] == [0, 1]


def test_loads_that_differ_by_exactly_a_threshold_are_balanced() -> None:
    policy = CacheAware(cache_threshold=0.1, balance_abs_threshold=2, balance_rel_threshold=1.5)
    router = Router(policy, ["aaaa", "aaaa"], num_instances=2)
    router.send(0, to=1)
    chosen = {}
    for loads in [(4, 6), (4, 7), (5, 7), (6, 9), (6, 10)]:
        router.set_loads(*loads)
        chosen[loads] = router.choose(1)
    assert chosen == {(4, 6): 1, (4, 7): 0, (5, 7): 1, (6, 9): 1, (6, 10): 0}


def test_an_evicted_creator_gives_way_to_who_else_was_sent_the_prefix() -> None:
    policy = CacheAware(max_tree_size=4, eviction_interval_us=1000)
    router = Router(policy, ["aaaa", "aaaa", "bbbb", "aaaa"], num_instances=3)
    router.send(0, to=1)
    router.send(1, to=2)
    assert router.choose(3) == 1
    router.send(2, to=1)
    router.set_loads(0, 3, 3)
    assert router.choose(3, time_us=999) == 1
    assert router.choose(3, time_us=1000) == 2
    assert list(router.router.tree.num_ids) == [0, 4, 4]


def test_a_prefix_whose_senders_are_all_evicted_leaves_the_tree_and_its_place() -> None:
    router = Router(
        CacheAware(max_tree_size=0, eviction_interval_us=1), ["abc", "abd", "ab"], num_instances=2
    )
    for request in range(3):
        settle(router.router, router.fleet, router.table, request, 1)
    router.set_loads(0, 3)
    assert router.choose(2, time_us=5) == 0
    counts = router.router.tree.counts[0]
    assert counts.num_used - counts.num_free == 1  # the root


def test_an_owner_that_is_no_candidate_gets_nothing() -> None:
    router = Router(CacheAware(), ["aaaa", "aaaa"], num_instances=3)
    router.send(0, to=1)
    router.set_loads(2, 0, 1)
    set_candidates(router.fleet, [0, 2])
    assert router.choose(1) == 2


def test_an_empty_prompt_goes_to_the_least_loaded() -> None:
    router = Router(CacheAware(cache_threshold=0.0), ["", ""], num_instances=2)
    router.send(0, to=1)
    router.set_loads(3, 2)
    assert router.choose(1) == 1
