"""A user's own routing function sees the fleet as it is, changes nothing, and must name a candidate."""

from __future__ import annotations

import numpy as np
import pytest

from sim import InvalidConfig
from sim.cluster.fleet import new_fleet, request_table, set_candidates
from sim.cluster.routing.own import FleetView, RequestView, choose_by_own
from sim.cluster.routing.routing_policies import OwnPolicy
from tests.sim.cluster.worlds import requests_with

REQUESTS = request_table(requests_with([[0, 1, 2], []], [9, 3]), session=np.array([5, -1]))


def fewest_waiting(fleet: FleetView, request: RequestView, time_us: int) -> int:
    assert (request.number, list(request.hash_ids), request.session, time_us) == (0, [0, 1], 5, 77)
    return min(fleet.candidates, key=lambda instance: int(fleet.num_waiting[instance]))


def test_it_sees_the_fleet_as_it_is_and_its_answer_counts() -> None:
    fleet = new_fleet(3, block_size=4)
    view, policy = FleetView(fleet), OwnPolicy(choose=fewest_waiting)
    chosen = []
    for waiting in ([2, 1, 0], [0, 1, 2]):
        fleet.instances["num_waiting"] = waiting
        chosen.append(choose_by_own(policy, view, REQUESTS, fleet=fleet, request=0, time_us=77))
    set_candidates(fleet, [2, 1])
    chosen.append(choose_by_own(policy, view, REQUESTS, fleet=fleet, request=0, time_us=77))
    assert chosen == [2, 0, 1]


@pytest.mark.parametrize("name", ["num_in_flight", "num_waiting", "kv_usage", "candidates"])
def test_it_cannot_change_what_it_sees(name: str) -> None:
    with pytest.raises(ValueError, match="read-only"):
        getattr(FleetView(new_fleet(2)), name)[0] = 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (2, "routing.policy: got instance 2 for request 1 at test_own_policy.py:LINE, expected one of 0, 1"),
        (3, "routing.policy: got instance 3 for request 1 at test_own_policy.py:LINE, expected one of 0, 1"),
        (
            -1,
            "routing.policy: got instance -1 for request 1 at test_own_policy.py:LINE, expected one of 0, 1",
        ),
        (
            None,
            "routing.policy: got None for request 1 at test_own_policy.py:LINE, expected an instance number",
        ),
        (
            True,
            "routing.policy: got True for request 1 at test_own_policy.py:LINE, expected an instance number",
        ),
    ],
)
def test_an_answer_that_is_no_candidate_is_named(answer: int, message: str) -> None:
    fleet = new_fleet(3)
    set_candidates(fleet, [0, 1])
    policy = OwnPolicy(choose=lambda *_: answer)
    with pytest.raises(InvalidConfig) as error:
        choose_by_own(policy, FleetView(fleet), REQUESTS, fleet=fleet, request=1, time_us=0)
    line = policy.choose.__code__.co_firstlineno
    assert str(error.value) == message.replace("LINE", str(line))
