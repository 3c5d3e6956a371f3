"""The gateway's queue against a list that is searched: order, fairness, ceilings, capacity, shedding, expiry."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import InvalidConfig
from sim.cluster.fleet import new_fleet, request_table
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.gateway.queue import (
    BAND_IS_FULL,
    FAR_FUTURE,
    QUEUE_IS_FULL,
    QUEUED,
    new_queue,
    withdraw_request,
)
from tests.examples import examples
from tests.sim.cluster.compiled_calls import (
    offer_request,
    saturation_seen,
    take_request,
)
from tests.sim.cluster.worlds import requests_with

PRIORITIES = (4, 3, -1, -2, -3)
NUM_TENANTS = 3


@dataclass(eq=False, kw_only=True)
class Waiting:
    request: int
    priority: int
    tenant: int
    deadline_us: int
    queued_us: int


class ListedQueue:
    """The queue as a list in order of coming."""

    def __init__(self, config: FlowControl, priorities: list[int]) -> None:
        self.config, self.waiting = config, list[Waiting]()
        self.bands = sorted(set(priorities), reverse=True)
        self.turns: dict[int, list[int]] = {band: [] for band in self.bands}  # tenants, next first

    def offer(self, new: Waiting) -> tuple[int, int]:
        config, same = self.config, [w for w in self.waiting if w.priority == new.priority]
        victim = -1
        if config.band_capacity and len(same) >= config.band_capacity:
            return BAND_IS_FULL, -1
        if config.capacity and len(self.waiting) >= config.capacity:
            lower = [w for w in self.waiting if w.priority < min(0, new.priority)]
            if not config.sheds or not lower:
                return QUEUE_IS_FULL, -1
            lowest = min(w.priority for w in lower)
            victim = [w for w in lower if w.priority == lowest][-1].request
            self.remove(victim)
        self.waiting.append(new)
        if self.flow(new) not in self.turns[new.priority]:
            self.turns[new.priority].append(self.flow(new))
        return QUEUED, victim

    def flow(self, waiting: Waiting) -> int:
        return waiting.tenant if self.config.fairness == "round-robin" else -1

    def remove(self, request: int) -> bool:
        found = [w for w in self.waiting if w.request == request]
        self.waiting = [w for w in self.waiting if w.request != request]
        for gone in found:
            left = [self.flow(w) for w in self.waiting if w.priority == gone.priority]
            if self.flow(gone) not in left:
                self.turns[gone.priority].remove(self.flow(gone))
        return bool(found)

    def is_open(self, band: int, saturation: float) -> bool:
        steps = max(1, len(self.bands) - 1)
        return saturation < 1.0 - self.bands.index(band) * (1.0 - self.config.lowest_ceiling) / steps

    def take(self, saturation: float) -> int:
        candidates = [w for w in self.waiting if self.is_open(w.priority, saturation)]
        if not candidates:
            return -1
        highest = max(w.priority for w in candidates)
        band = candidates[0].priority if self.config.order == "fifo" else highest
        turns = self.turns[band]
        tenant = turns.pop(0)
        turns.append(tenant)
        flow = [w for w in candidates if w.priority == band and self.flow(w) == tenant]
        best = min(flow, key=lambda w: w.deadline_us) if self.config.order == "slo-deadline" else flow[0]
        self.remove(best.request)
        return best.request

    def expire(self, now_us: int) -> int:
        late = [w for w in self.waiting if self.config.ttl_us and w.queued_us + self.config.ttl_us <= now_us]
        if not late:
            return -1
        gone = max(late, key=lambda w: w.priority).request
        self.remove(gone)
        return gone


configs = st.builds(
    FlowControl,
    order=st.sampled_from(["fifo", "priority", "slo-deadline"]),
    fairness=st.sampled_from(["global-strict", "round-robin"]),
    lowest_ceiling=st.sampled_from([0.0, 0.5, 1.0]),
    capacity=st.sampled_from([0, 1, 5]),
    band_capacity=st.sampled_from([0, 2]),
    sheds=st.booleans(),
    ttl_us=st.sampled_from([0, 5, 50]),
)


@given(config=configs, seed=st.integers(0, 100_000), num_bands=st.integers(1, 5))
@examples(300)
def test_the_queue_is_the_list_that_is_searched(config: FlowControl, seed: int, num_bands: int) -> None:
    rng, number = random.Random(seed), 80
    priorities = [rng.choice(PRIORITIES[:num_bands]) for _ in range(number)]
    tenants = [rng.randrange(-1, NUM_TENANTS) for _ in range(number)]
    targets = [rng.choice([-1, 0, 10, 40]) for _ in range(number)]
    class_targets = [rng.choice([-1, 20]) for _ in range(number)]
    requests = request_table(
        requests_with([[]] * number, [1] * number),
        tenant=np.array(tenants, np.int64),
        slo_priority=np.array(priorities, np.int64),
        slo_target_us=np.array(targets, np.int64),
    )
    queue = new_queue(config, requests, num_tenants=NUM_TENANTS, class_targets_us=class_targets)
    listed, now_us = ListedQueue(config, priorities), 0
    for request in range(number):
        now_us += rng.randrange(4)
        target = targets[request] if targets[request] >= 0 else class_targets[request]
        new = Waiting(
            request=request,
            priority=priorities[request],
            tenant=tenants[request],
            deadline_us=now_us + target if target >= 0 else FAR_FUTURE,
            queued_us=now_us,
        )
        answer = offer_request(queue, requests, request, now_us)
        assert (answer, int(queue.counts.last_shed[0])) == listed.offer(new)
        while rng.random() < 0.4:
            saturation = rng.choice([0.0, 0.3, 0.6, 0.99, 1.0])
            assert take_request(queue, saturation) == listed.take(saturation)
        if rng.random() < 0.2:
            gone = rng.randrange(request + 1)
            assert withdraw_request(queue, gone) == listed.remove(gone)
        while (expired := listed.expire(now_us)) >= 0:
            assert withdraw_request(queue, expired)
        assert queue.counts.num_queued[0] == len(listed.waiting)
    while (taken := listed.take(0.0)) >= 0:
        assert take_request(queue, 0.0) == taken
    # with a lowest ceiling of 0 the lowest band is never served: even an empty fleet is at 0
    assert take_request(queue, 0.0) == -1


def test_tenants_take_turns_however_many_requests_each_has() -> None:
    tenants = [0] * 6 + [1] * 2 + [2]
    requests = request_table(requests_with([[]] * 9, [1] * 9), tenant=np.array(tenants, np.int64))
    queue = new_queue(FlowControl(fairness="round-robin"), requests, num_tenants=3)
    for request in range(9):
        offer_request(queue, requests, request, 0)
    taken = [take_request(queue, 0.0) for _ in range(9)]
    assert [tenants[request] for request in taken] == [0, 1, 2, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("detector", "expected"), [("utilization", (1 + 2) / 2), ("concurrency", 15 / 20), ("never", 0.0)]
)
def test_saturation_is_as_its_detector_says(detector: str, expected: float) -> None:
    fleet = new_fleet(2)
    fleet.instances["num_waiting"], fleet.instances["kv_usage"] = [5, 10], [0.4, 0.4]
    fleet.instances["num_in_flight"] = [5, 10]
    requests = request_table(requests_with([[]], [1]))
    config = FlowControl(detector=detector, max_concurrency=10)  # type: ignore[arg-type] # one of its values
    assert saturation_seen(new_queue(config, requests), fleet) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": "lifo"}, "order: got 'lifo', expected one of fifo, priority, slo-deadline"),
        ({"lowest_ceiling": 2}, "lowest_ceiling: got 2, expected a number in [0, 1]"),
        ({"ttl_us": -1}, "ttl_us: got -1, expected an integer >= 0"),
        ({"sheds": 1}, "sheds: got 1, expected true or false"),
        ({"slo_targets_us": {"critical": 0.5}}, "slo_targets_us.critical: got 0.5, expected an integer >= 0"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        FlowControl(**settings)  # type: ignore[arg-type] # that is the point
    assert str(error.value) == message
