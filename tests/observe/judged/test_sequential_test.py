"""A share beyond a limit is surely known as rarely wrong as it says, of requests that wait for one another."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import poisson

from observe.judged.sequential_test import FEWEST, chance_of_at_least, share_beyond

Floats = NDArray[np.float64]

LOAD = 0.9
ALLOWED = 0.05
RUNS = 200
NUM = 4000
MOST_WRONG = 0.08
"""On both sides together, at a server exactly at its limit."""


def waits(seed: int) -> Floats:
    """Return the waits of a queue with exponential gaps and services at a load of 0.9, in service times: Lindley's."""
    generator = np.random.default_rng(seed)
    steps = generator.exponential(LOAD, NUM + 500) - generator.exponential(1.0, NUM + 500)
    walk = np.cumsum(steps)
    return np.asarray((walk - np.minimum.accumulate(np.minimum(walk, 0.0)))[500:], np.float64)


def limit_of(beyond_frac: float) -> float:
    """Return the wait, in mean services, that so many exceed in the long run: LOAD * exp(-(1 / LOAD - 1) * wait)."""
    return float(np.log(LOAD / beyond_frac) / (1 / LOAD - 1))


@pytest.mark.parametrize("number", [1, 2, 7, 40])
@pytest.mark.parametrize("expected", [0.3, 2.0, 25.0])
def test_the_chance_is_poisson_s(number: int, expected: float) -> None:
    assert chance_of_at_least(number, expected) == pytest.approx(poisson.sf(number - 1, expected), rel=1e-9)


def test_few_requests_show_nothing() -> None:
    assert share_beyond(np.full(FEWEST - 1, 9.0), 0.01).is_met is None


def test_all_beyond_is_surely_broken_and_none_beyond_surely_kept() -> None:
    assert share_beyond(np.full(100, 9.0), 0.01).is_met is False
    assert share_beyond(np.full(1000, 0.5), 0.01).is_met is True
    assert share_beyond(np.full(300, 0.5), 0.01).is_met is None


def test_a_failed_request_is_beyond() -> None:
    assert share_beyond(np.full(100, np.inf), 0.01).is_met is False


def wrong_at_the_limit() -> int:
    found = [share_beyond(waits(seed) / limit_of(ALLOWED), ALLOWED).is_met for seed in range(RUNS)]
    return sum(each is not None for each in found)


def test_a_queue_exactly_at_its_limit_is_called_neither_more_often_than_is_said() -> None:
    assert wrong_at_the_limit() <= MOST_WRONG * RUNS


def test_taken_for_independent_the_same_requests_would_mislead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "observe.judged.sequential_test.num_effective", lambda known, *_, **__: float(len(known))
    )
    assert wrong_at_the_limit() > 0.5 * RUNS
