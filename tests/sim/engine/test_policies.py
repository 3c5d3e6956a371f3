"""Every scheduling policy and every scoring orders as its words say: admissions and preemptions, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, Requests, Status, Step, simulate
from tests.examples import examples
from tests.sim.strategies import Case, assert_same_outcomes, cases, requests_of

Score = Callable[[int, int], Fraction]
"""(request, now_us) to how urgent it is then: lower goes first."""

POLICIES = ("priority", "sjf", "reverse-priority")
SCORINGS = ("constant", "slo-based", "inverted-slo")


def score_of(requests: Requests, config: EngineConfig) -> Score:
    """Return the policy's words as a function of the time: a base value, and what age adds to or takes from it."""
    base = {
        "priority": requests.priority,
        "sjf": requests.prompt_tokens,
        "reverse-priority": -requests.priority,
    }[config.scheduling_policy]
    sign = {"constant": 0, "slo-based": -1, "inverted-slo": 1}[config.priority_scoring]
    weight = Fraction(config.priority_age_weight) / 1_000_000

    def score(request: int, now_us: int) -> Fraction:
        return int(base[request]) + sign * weight * (now_us - int(requests.arrival_us[request]))

    return score


def assert_the_most_urgent_go_first(steps: list[Step], case: Case) -> None:
    """Follow the queue and the running requests through all steps and check who joins and who is thrown out."""
    requests, config = case.requests, case.config
    score = score_of(requests, config)
    outcomes = case.run().outcomes
    waiting = {i for i in range(len(requests)) if outcomes.status[i] != Status.REJECTED}
    running: list[int] = []
    for step in steps:
        for victim in step.preempted:
            least = max(running, key=lambda r: (score(r, step.t), requests.arrival_us[r]))
            assert victim == least
            running.remove(victim)
            waiting.add(victim)
        for admitted, _ in step.hits:
            present = [r for r in waiting if outcomes.queued_us[r] <= step.t]
            assert admitted == min(present, key=lambda r: (score(r, step.t), requests.arrival_us[r], r))
            waiting.remove(admitted)
            running.append(admitted)
        running = [r for r in running if r not in step.finished]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("scoring", SCORINGS)
@examples(40)
@given(case=cases(is_async=False))
def test_who_is_admitted_or_preempted_is_who_the_policy_names(policy: str, scoring: str, case: Case) -> None:
    case = case.under(scheduling_policy=policy, priority_scoring=scoring)
    assert_the_most_urgent_go_first(case.run(record="steps").steps(), case)


@pytest.mark.parametrize("policy", POLICIES)
@examples(40)
@given(case=cases(closed=None), scoring=st.sampled_from(SCORINGS))
def test_jumps_change_nothing_under_any_policy(policy: str, case: Case, scoring: str) -> None:
    case = case.under(scheduling_policy=policy, priority_scoring=scoring)
    assert_same_outcomes(case.run().outcomes, case.run(coalesce=False).outcomes)


ONE_AT_A_TIME = EngineConfig(max_num_seqs=1, async_scheduling=False)


def order_of(rows: list[dict[str, int]], **changes: object) -> list[int]:
    """Return the order in which one server takes requests up."""
    config = replace(ONE_AT_A_TIME, **changes)  # type: ignore[arg-type]
    outcomes = simulate(requests_of(rows), config, Blackbox(beta0=1000, beta1=10)).outcomes
    return np.argsort(outcomes.scheduled_us, kind="stable").tolist()


BUSY = {"arrival_us": 0, "prompt": 100, "output": 10, "priority": 0}
"""Runs while the others join."""


def test_sjf_takes_the_shortest_prompt_and_ties_go_by_arrival() -> None:
    rows = [BUSY, *({"arrival_us": 1 + i, "prompt": p, "output": 2} for i, p in enumerate((30, 20, 30, 10)))]
    assert order_of(rows, scheduling_policy="sjf") == [0, 4, 2, 1, 3]


def test_reverse_priority_takes_what_priority_takes_last() -> None:
    rows = [BUSY, *({"arrival_us": 1, "prompt": 9, "output": 2, "priority": p} for p in (2, 0, 1))]
    assert order_of(rows, scheduling_policy="priority") == [0, 2, 3, 1]
    assert order_of(rows, scheduling_policy="reverse-priority") == [0, 1, 3, 2]


def test_age_makes_up_for_priority_at_its_weight_s_rate() -> None:
    """Priority 1, 2 ms older: at 1000 per second age is worth 2 and wins, at 250 it is worth a half."""
    rows = [
        BUSY,
        {"arrival_us": 1000, "prompt": 9, "output": 2, "priority": 1},
        {"arrival_us": 3000, "prompt": 9, "output": 2, "priority": 0},
    ]
    aged = {"scheduling_policy": "priority", "priority_scoring": "slo-based"}
    assert order_of(rows, **aged, priority_age_weight=1000) == [0, 1, 2]
    assert order_of(rows, **aged, priority_age_weight=250) == [0, 2, 1]


def test_inverted_slo_starves_those_who_wait() -> None:
    rows = [BUSY, *({"arrival_us": 1000 * i, "prompt": 9, "output": 2, "priority": 0} for i in (1, 2, 3))]
    inverted = {"scheduling_policy": "priority", "priority_scoring": "inverted-slo"}
    assert order_of(rows, **inverted, priority_age_weight=1000) == [0, 3, 2, 1]


@examples(40)
@given(cases(closed=None))
def test_first_come_first_served_knows_no_scoring(case: Case) -> None:
    case = case.under(scheduling_policy="fcfs")
    plain = case.under(priority_scoring="constant", priority_age_weight=0.0)
    assert_same_outcomes(case.run().outcomes, plain.run().outcomes)
