"""A closed loop: so many users, each sends its next request a think time after it has seen an answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Status, simulate
from tests.examples import examples
from tests.sim.strategies import Case, any_model, cases, requests_of


def closed(case: Case, users: int, think_us: int) -> Case:
    return replace(case, closed_loop=(users, think_us))


@examples(100)
@given(cases(model=any_model), st.integers(1, 4), st.sampled_from((0, 1, 777)))
def test_no_more_than_the_users_are_in_flight(case: Case, users: int, think_us: int) -> None:
    outcomes = closed(case, users, think_us).run().outcomes
    arrived = (outcomes.arrival_us >= 0) & (outcomes.status != Status.REJECTED)
    ends_us = np.where(outcomes.status == Status.OK, outcomes.last_token_us, np.iinfo(np.int64).max)
    for now_us in outcomes.arrival_us[arrived]:
        in_flight = arrived & (outcomes.arrival_us <= now_us) & (now_us < ends_us)
        assert in_flight.sum() <= users + (arrived & (ends_us == outcomes.arrival_us)).sum()


@examples(100)
@given(cases(model=any_model), st.integers(1, 4), st.sampled_from((0, 1, 777)))
def test_each_later_request_arrives_a_think_time_after_an_answer(
    case: Case, users: int, think_us: int
) -> None:
    """One later request for each answer, a refusal included, in the order in which the engine gave them."""
    outcomes = closed(case, users, think_us).run().outcomes
    arrived, refused = outcomes.arrival_us >= 0, outcomes.status == Status.REJECTED
    answered_us = np.where(refused, outcomes.queued_us, outcomes.last_token_us)
    answers = Counter((answered_us + think_us)[arrived & (refused | (outcomes.status == Status.OK))].tolist())
    later, num_later = outcomes.arrival_us[users:], int(arrived[users:].sum())
    assert Counter(later[:num_later].tolist()) <= answers
    assert num_later == min(len(later), answers.total())
    np.testing.assert_array_equal(outcomes.arrival_us[:users], case.requests.arrival_us[:users])


@examples(50)
@given(cases(model=any_model))
def test_with_as_many_users_as_requests_the_loop_is_open(case: Case) -> None:
    looped = closed(case, len(case.requests), 5).run().outcomes
    np.testing.assert_array_equal(looped.last_token_us, case.run().outcomes.last_token_us)


def test_a_lone_user_is_served_back_to_back() -> None:
    rows = [{"arrival_us": 40, "prompt": 10, "output": 3} for _ in range(4)]
    outcomes = simulate(
        requests_of(rows),
        EngineConfig(async_scheduling=False),
        Blackbox(alpha0=5, alpha2=1, beta0=100),
        closed_loop=(1, 1000),
    ).outcomes
    assert outcomes.arrival_us.tolist() == [40, 40 + 308 + 1000, 40 + 2 * 1308, 40 + 3 * 1308]
    assert (outcomes.last_token_us - outcomes.arrival_us).tolist() == [5 + 300 + 3] * 4


def test_a_refusal_is_an_answer() -> None:
    rows = [{"arrival_us": 0, "prompt": prompt, "output": 1} for prompt in (99, 99, 5, 99, 5)]
    outcomes = simulate(
        requests_of(rows),
        EngineConfig(max_model_len=20, async_scheduling=False),
        Blackbox(alpha0=3, beta0=100),
        closed_loop=(1, 10),
    ).outcomes
    assert outcomes.arrival_us.tolist() == [0, 13, 26, 139, 152]
    assert outcomes.status.tolist() == [Status.REJECTED] * 2 + [Status.OK, Status.REJECTED, Status.OK]


def test_what_never_arrives_has_no_time() -> None:
    rows = [{"arrival_us": 0, "prompt": 50, "output": 1}, {"arrival_us": 0, "prompt": 5, "output": 1}]
    config = EngineConfig(num_gpu_blocks=3, block_size=16)
    outcomes = simulate(requests_of(rows), config, Blackbox(beta0=1), closed_loop=(1, 0)).outcomes
    assert outcomes.status.tolist() == [Status.STUCK, Status.STUCK]
    assert outcomes.arrival_us.tolist() == [0, -1]
    assert outcomes.queued_us.tolist() == [0, -1]


@pytest.mark.parametrize("loop", [(0, 0), (-1, 5), (3, -1)])
def test_a_loop_without_users_or_with_negative_thought_is_refused(loop: tuple[int, int]) -> None:
    with pytest.raises(InvalidConfig, match=r"^closed_loop: got .*, expected \(concurrency >= 1"):
        simulate(requests_of([]), EngineConfig(), Blackbox(), closed_loop=loop)
