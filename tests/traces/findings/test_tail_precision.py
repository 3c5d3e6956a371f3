"""How well a 99th percentile is known: its interval holds the truth as often as it says, on queues of known truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from traces import fewest_beyond, precision_rows
from traces.findings.tail_precision import TailPrecision, tail_precision

Floats = NDArray[np.float64]


def sojourns(n: int, load: float, rng: np.random.Generator) -> Floats:
    """Return the times in an M/M/1 queue with arrivals of rate 1, by Lindley's recursion, the first 2,000 left out."""
    gaps, services = rng.exponential(1, n + 2000), rng.exponential(load, n + 2000)
    steps = np.cumsum(np.concatenate([[0.0], services[:-1] - gaps[1:]]))
    waits = steps - np.minimum.accumulate(np.minimum(steps, 0.0))
    return np.asarray((waits + services)[2000:])


def known(values: Floats) -> TailPrecision:
    found = tail_precision(values)
    assert found is not None
    return found


@pytest.mark.parametrize(("load", "n"), [(0.3, 2000), (0.5, 5000), (0.8, 20_000), (0.9, 100_000)])
def test_the_interval_holds_the_truth_in_85_to_100_of_a_hundred_runs(load: float, n: int) -> None:
    """The time in an M/M/1 queue is exponential with the mean load / (1 - load)."""
    true = -np.log(0.01) * load / (1 - load)
    rng = np.random.default_rng(7)
    found = [known(sojourns(n, load, rng)) for _ in range(100)]
    held = sum(each["low"] <= true and (each["high"] is None or true <= each["high"]) for each in found)
    assert 85 <= held <= 100


@pytest.mark.parametrize(("load", "n"), [(0.5, 1000), (0.8, 5000)])
def test_the_interval_is_no_wider_than_it_says(load: float, n: int) -> None:
    true = -np.log(0.01) * load / (1 - load)
    rng = np.random.default_rng(1)
    found = [known(sojourns(n, load, rng)) for _ in range(200)]
    held = sum(each["low"] <= true and (each["high"] is None or true <= each["high"]) for each in found)
    assert 170 <= held <= 194


def test_a_run_of_two_hundred_says_that_it_shows_no_upper_end() -> None:
    found = known(sojourns(200, 0.8, np.random.default_rng(1)))
    assert found["high"] is None
    assert found["num_for_5_percent"] is not None
    assert 3000 < found["num_for_5_percent"] < 400_000  # at least, and no more than it takes
    (first, second) = precision_rows({"ttft_us": found, "itl_us": None, "e2e_us": None})
    assert first[1].endswith("ms or more")
    assert "at least" in second[1]


def test_as_many_requests_as_are_asked_for_know_it_within_five_percent() -> None:
    rng = np.random.default_rng(3)
    asked = np.median([known(sojourns(20_000, 0.5, rng))["num_for_5_percent"] for _ in range(20)])  # type: ignore[arg-type]
    true = -np.log(0.01)
    off = [abs(known(sojourns(int(asked), 0.5, rng))["p99"] / true - 1) for _ in range(40)]
    assert np.mean(np.array(off) < 0.05) >= 0.85


def test_independent_values_are_worth_as_many_as_there_are() -> None:
    found = known(np.random.default_rng(5).exponential(1, 50_000))
    assert found["num_effective"] == pytest.approx(50_000, rel=0.5)
    assert found["low"] < -np.log(0.01) < (found["high"] or 0.0)


def test_of_few_values_nothing_is_said() -> None:
    assert tail_precision(np.ones(39)) is None
    assert tail_precision(np.full(100, np.nan)) is None
    assert precision_rows({"ttft_us": None, "itl_us": None, "e2e_us": None}) == []


def test_the_fewest_beyond_a_percentile_are_those_of_the_binomial_distribution() -> None:
    """0.99^367 is 2.5 %: of so many the largest is above the percentile."""
    assert [fewest_beyond(n) for n in (100, 366, 368)] == [0, 0, 1]
