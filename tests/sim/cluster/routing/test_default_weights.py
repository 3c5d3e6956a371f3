"""The default weights send a known prefix where it is known, and yet leave no instance idle while another is full."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.fleet import new_fleet, request_table
from sim.cluster.routing.router_state import new_router, with_room_for
from sim.cluster.routing.routing_policies import LeastLoaded, RoutingPolicy, Weighted
from tests.examples import examples
from tests.sim.cluster.compiled_calls import NEEDS_ROOM, decide, finish, settle
from tests.sim.cluster.worlds import requests_with

NUM_INSTANCES, NUM_BLOCKS, SEATS = 4, 10, 64
LLM_D = {"prefix-affinity": 3.0, "queue-depth": 2.0, "kv-utilization": 2.0}


def shares_and_hits(
    policy: RoutingPolicy, *, num_groups: int, num_in_flight: int
) -> tuple[list[float], float]:
    """Return each instance's share of 1,000 requests, and the share of prompt blocks already sent where they went.

    All of a group's prompts begin with the same nine of ten blocks. So many are in flight at any time, none of them
    waiting, and KV usage follows them; which ends next is random.
    """
    rng, number = random.Random(1), 1000
    group_of = [rng.randrange(num_groups) for _ in range(number)]
    ids = [[group * NUM_BLOCKS + k for k in range(NUM_BLOCKS - 1)] for group in group_of]
    ids = [[*some, num_groups * NUM_BLOCKS + request] for request, some in enumerate(ids)]
    table = request_table(requests_with(ids, [16 * NUM_BLOCKS] * number))
    fleet = new_fleet(NUM_INSTANCES)
    router = new_router(policy, fleet, table)
    running: list[tuple[int, int]] = []
    went: list[int] = []
    seen: set[tuple[int, int]] = set()
    hits = 0
    for request, group in enumerate(group_of):
        while len(running) >= num_in_flight:
            finish(router, fleet, table, *running.pop(rng.randrange(len(running))), 0)
        fleet.instances["num_running"] = fleet.instances["num_in_flight"]
        fleet.instances["kv_usage"] = fleet.instances["num_in_flight"] / SEATS
        while (chosen := decide(router, fleet, table, request, request)) == NEEDS_ROOM:
            router = with_room_for(router, NUM_BLOCKS)
        settle(router, fleet, table, request, chosen)
        hits += NUM_BLOCKS - 1 if (group, chosen) in seen else 0
        seen.add((group, chosen))
        running.append((request, chosen))
        went.append(chosen)
    counts = np.bincount(went, minlength=NUM_INSTANCES)
    return [float(share) for share in counts / number], hits / (number * NUM_BLOCKS)


def test_llm_d_s_weights_pin_two_groups_to_two_instances_and_the_defaults_use_all_four() -> None:
    pinned, _ = shares_and_hits(Weighted(scorers=LLM_D), num_groups=2, num_in_flight=20)
    assert sum(share > 0 for share in pinned) <= 2
    shares, hit_frac = shares_and_hits(Weighted(), num_groups=2, num_in_flight=20)
    assert min(shares) > 0.2
    assert max(shares) < 0.3
    assert hit_frac > 0.88  # of 0.9 that could be known


def test_with_many_groups_the_defaults_find_more_prefixes_than_load_alone_and_stay_balanced() -> None:
    shares, hit_frac = shares_and_hits(Weighted(), num_groups=150, num_in_flight=20)
    _, hits_by_load_alone = shares_and_hits(LeastLoaded(), num_groups=150, num_in_flight=20)
    assert max(shares) < 0.35
    assert hit_frac > hits_by_load_alone + 0.1


@given(
    loads=st.lists(st.tuples(st.integers(0, 50), st.sampled_from([0.0, 0.3, 1.0])), min_size=2, max_size=6),
    idle=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
@examples(100)
def test_a_request_whose_whole_prompt_is_known_on_the_busiest_goes_elsewhere_while_one_idles(
    loads: list[tuple[int, float]], idle: int, seed: int
) -> None:
    loads[idle % len(loads)] = (0, 0.0)
    busiest = max(range(len(loads)), key=lambda i: loads[i][0])
    table = request_table(requests_with([[0, 1]] * 2, [32] * 2))
    fleet = new_fleet(len(loads))
    router = new_router(Weighted(), fleet, table, seed=seed)
    settle(router, fleet, table, 0, busiest)
    for row, (in_flight, kv_usage) in zip(fleet.instances, loads, strict=True):
        row.num_in_flight, row.kv_usage = in_flight, kv_usage
    fleet.instances[busiest].num_in_flight += 1
    assert decide(router, fleet, table, 1, 0) != busiest
