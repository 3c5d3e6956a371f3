"""A step's verdict: an overload is told from a slow start, and from a server that fills for the first time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from observe.judged.criteria import criteria_of
from observe.judged.judged_step import SETTLING, THROUGHPUT, TOO_SHORT, StepAnswers, judge

Floats = NDArray[np.float64]

CRITERIA = criteria_of("ttft_p90=100ms")
RATE = 100.0


def answers(ttft_ms: Floats, stay_ms: Floats, *, rate: float = RATE) -> StepAnswers:
    """Return the answers of requests that are sent evenly."""
    send = np.arange(len(ttft_ms)) * 1e6 / rate
    ok = np.zeros(len(ttft_ms), np.bool_)
    latencies = {"ttft_us": ttft_ms * 1e3}
    ratios = {each.name: each.ratios(latencies, ok) for each in CRITERIA}
    return StepAnswers(send_us=send, end_us=send + stay_ms * 1e3, ratios=ratios)


def noise(n: int, *, about: float) -> Floats:
    return np.asarray(np.random.default_rng(1).uniform(0.8, 1.2, n) * about, np.float64)


def test_a_server_that_is_fast_enough_is_within() -> None:
    found = judge(answers(noise(2000, about=20), noise(2000, about=100)), CRITERIA)
    assert found.is_met is True
    assert not found.is_behind
    assert found.slow_start_us is None
    assert found.answered_per_s is None


def test_one_that_is_too_slow_is_not() -> None:
    found = judge(answers(noise(400, about=200), noise(400, about=300)), CRITERIA)
    assert found.is_met is False
    assert found.broken(CRITERIA) == "ttft_p90"


def test_a_queue_that_grows_is_an_overload_before_any_latency_breaks() -> None:
    waits = np.arange(1500) * 0.5  # ms: 5 % more come than are answered
    found = judge(answers(noise(1500, about=10), 50 + waits), CRITERIA)
    assert found.is_behind
    assert found.is_met is False
    assert found.broken(CRITERIA) == THROUGHPUT
    assert found.answered_per_s is not None
    assert 94 < found.answered_per_s < 97


def test_a_slow_start_is_left_out_and_told() -> None:
    ttft, stay = noise(3000, about=20), noise(3000, about=100)
    ttft[:1200] *= 40  # a cold server
    stay[:1200] += 800
    found = judge(answers(ttft, stay), CRITERIA)
    assert found.best_guess(CRITERIA)
    assert not found.is_behind
    assert found.slow_start_us is not None
    assert found.slow_start_us / 1e6 > SETTLING * 30


def test_what_is_slow_at_the_end_is_no_slow_start() -> None:
    ttft, stay = noise(3000, about=20), noise(3000, about=100)
    ttft[-1200:] *= 40
    found = judge(answers(ttft, stay), CRITERIA)
    assert found.is_met is False
    assert found.slow_start_us is None


def test_a_server_that_fills_is_not_behind() -> None:
    n = 300
    found = judge(
        answers(noise(n, about=20), noise(n, about=4000)), CRITERIA
    )  # 400 in flight in the long run
    assert not found.is_behind
    assert found.is_met is None


def test_nothing_is_surely_within_before_many_generations_have_passed() -> None:
    short = judge(answers(noise(2000, about=20), noise(2000, about=2000)), CRITERIA)
    assert short.is_met is None
    assert short.best_guess(CRITERIA)


def test_a_step_of_less_than_a_few_generations_is_within_nothing() -> None:
    found = judge(answers(noise(300, about=20), noise(300, about=2000)), CRITERIA)
    assert found.is_too_short
    assert not found.best_guess(CRITERIA)
    assert found.broken(CRITERIA) == TOO_SHORT
