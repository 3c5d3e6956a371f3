"""Who is evicted: nobody without need, else the lowest priority in flight, among those the last handed over."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.fleet import request_table
from sim.cluster.gateway.eviction import new_sheddable_in_flight
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.gateway.queue import new_queue, withdraw_request
from tests.examples import examples
from tests.sim.cluster.compiled_calls import depart, dispatch, evict_for, offer_request
from tests.sim.cluster.worlds import requests_with


@given(seed=st.integers(0, 100_000))
@examples(150)
def test_the_victim_is_the_newest_of_the_lowest_sheddable_tier_and_only_for_a_protected_one(
    seed: int,
) -> None:
    rng, number = random.Random(seed), 60
    priorities = [rng.choice((4, 3, -1, -2, -3)) for _ in range(number)]
    requests = request_table(
        requests_with([[]] * number, [1] * number), slo_priority=np.array(priorities, np.int64)
    )
    queue, in_flight = new_queue(FlowControl(), requests), new_sheddable_in_flight(number)
    running: list[int] = []
    waiting: list[int] = []
    for request in range(number):
        if rng.random() < 0.7:
            dispatch(in_flight, requests, request)
            running.append(request)
        else:
            offer_request(queue, requests, request, request)
            waiting.append(request)
        if running and rng.random() < 0.3:
            depart(in_flight, running.pop(rng.randrange(len(running))))
        if waiting and rng.random() < 0.5:
            withdraw_request(queue, waiting.pop(rng.randrange(len(waiting))))
        saturation = rng.choice([0.5, 1.0, 1.5])
        sheddable = [r for r in running if priorities[r] < 0]
        expected = -1
        if saturation >= 1 and sheddable and any(priorities[w] >= 0 for w in waiting):
            lowest = min(priorities[r] for r in sheddable)
            expected = [r for r in sheddable if priorities[r] == lowest][-1]
            running.remove(expected)
        assert evict_for(in_flight, queue, saturation) == expected
