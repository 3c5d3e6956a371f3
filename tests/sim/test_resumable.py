"""An engine paused at will gives the bits of one call to the end."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, Status
from sim.resumable import FOREVER
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, requests_of


def assert_ends_as(engine: Engine, case: Case) -> None:
    """Compare an engine that has been run to the end with ``simulate``."""
    simulation, outcomes = case.run(), engine.outcomes()
    outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    assert_same_outcomes(outcomes, simulation.outcomes)
    assert engine.view().num_steps == simulation.num_steps
    assert engine.view().num_preemptions == simulation.num_preemptions


@examples(100)
@given(cases(model=any_model), st.lists(st.integers(0, 3000), max_size=20))
def test_any_slices_of_time_end_as_one_call_does(case: Case, slices: list[int]) -> None:
    engine, now_us = Engine(case.requests, case.config, case.latency, record="tokens"), 0
    for length_us in slices:
        now_us += length_us
        engine.advance(now_us)
    engine.advance()
    assert_ends_as(engine, case)
    for ours, expected in zip(engine.written().tokens(), case.run(record="tokens").tokens(), strict=True):
        np.testing.assert_array_equal(ours, expected)


@examples(50)
@given(cases(model=any_model))
def test_waking_at_the_times_it_names_misses_nothing(case: Case) -> None:
    engine = Engine(case.requests, case.config, case.latency)
    previous_us = -1
    while (next_us := engine.next_time_us()) is not None:
        assert next_us >= previous_us
        engine.advance(next_us + 1)
        previous_us = next_us
    assert_ends_as(engine, case)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda engine: pickle.loads(pickle.dumps(engine))])  # noqa: S301
def test_a_copy_goes_on_by_itself(copied: Callable[[Engine], Engine]) -> None:
    engine = Engine(requests_of([{"prompt": 30, "output": 50}]), EngineConfig(), Blackbox(beta0=1000))
    engine.advance(20_000)
    other = copied(engine)
    other.advance()
    assert engine.outcomes().status.tolist() == [Status.UNFINISHED]
    assert engine.view().clock_us == 20_000
    assert other.outcomes().status.tolist() == [Status.OK]
    engine.advance()
    assert_same_outcomes(engine.outcomes(), other.outcomes())


def test_an_idle_engine_has_nothing_coming() -> None:
    latency = Blackbox(alpha0=5, beta0=10)
    assert Engine(requests_of([]), EngineConfig(), latency).next_time_us() is None
    engine = Engine(requests_of([{"arrival_us": 100, "prompt": 3, "output": 1}]), EngineConfig(), latency)
    assert engine.next_time_us() == 105
    engine.advance(105)
    assert engine.view().num_steps == 0
    engine.advance(106)
    assert engine.view().num_steps > 0
    engine.advance(FOREVER)
    assert engine.next_time_us() is None
    assert engine.outcomes().last_token_us.tolist() == [115]
