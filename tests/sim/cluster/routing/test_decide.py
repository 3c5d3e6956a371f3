"""How a question to a router reaches the policy of the run: by the classes of policies and their modules."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sim.cluster.routing import simple
from sim.cluster.routing.decide import asked, functions_of
from sim.cluster.routing.router_state import NUMBERS, SETTINGS, PolicyFunctions
from sim.cluster.routing.routing_policies import (
    POLICIES,
    KvCost,
    LeastLoaded,
    Policy,
    RandomChoice,
    RoundRobin,
    VllmDp,
    Weighted,
)


def router_of(policy: type[Policy]) -> SimpleNamespace:
    return SimpleNamespace(settings=[SimpleNamespace(policy=NUMBERS[policy])])


def has_room(router: object, fleet: object, requests: object, request: int) -> bool:  # noqa: ARG001 - a question
    """Say yes where a policy is silent."""
    return True


def test_a_question_goes_to_the_policy_of_the_run_with_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_even(request: int) -> bool:
        return request % 2 == 0

    monkeypatch.setitem(
        simple.FUNCTIONS, LeastLoaded, PolicyFunctions(choose=simple.choose_least_loaded, has_room=is_even)
    )
    ask = asked(has_room)
    ask = getattr(ask, "py_func", ask)  # what is to be compiled, as Python calls it
    assert [ask(router_of(LeastLoaded), None, None, request) for request in (3, 4)] == [False, True]
    assert ask(router_of(RandomChoice), None, None, 3) is True


def test_a_function_that_names_what_its_question_has_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_weather(weather: str) -> bool:
        return weather == "fair"

    monkeypatch.setitem(
        simple.FUNCTIONS, RoundRobin, PolicyFunctions(choose=simple.choose_in_turn, has_room=by_weather)
    )
    with pytest.raises(TypeError, match=r"has_room: got a function of .*weather.*, expected some of"):
        asked(has_room)


def test_every_policy_has_functions_and_the_numbers_that_they_read() -> None:
    assert sorted(functions_of()) == list(range(len(POLICIES)))
    names = [name for policy in POLICIES for name in policy.floats + policy.integers]
    assert len(set(names)) == len(names)
    assert set(names) < set(SETTINGS.names or ())


def test_a_policy_says_which_reports_it_reads() -> None:
    assert RoundRobin().reports == LeastLoaded().reports == frozenset()
    assert Weighted(scorers={"queue-depth": 1, "load-balance": 0}).reports == {"queues"}
    assert Weighted(scorers={"precise-prefix-cache": 1, "kv-utilization": 2}).reports == {"caches", "kv"}
    assert VllmDp().reports == {"queues", "kv"}
    assert KvCost().reports == {"caches"}
