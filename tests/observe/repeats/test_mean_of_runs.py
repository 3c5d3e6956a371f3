"""The interval of a mean over repeated runs holds the server's mean as often as it says."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from observe.repeats.mean_of_runs import mean_of_runs, noise_floor, students_t
from tests.observe.repeats.known_servers import NAMES, figures_of_runs, sets_of


def test_the_interval_is_that_of_the_printed_t() -> None:
    values = [9.0, 10.0, 10.5, 11.0]
    found = mean_of_runs(values)
    low, high = t.interval(0.95, df=3, loc=np.mean(values), scale=np.std(values, ddof=1) / 2)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.spread_frac == pytest.approx(np.std(values, ddof=1) / np.mean(values))
    assert students_t(4) == pytest.approx(2.776, abs=0.001)  # of the printed tables


def test_one_run_has_no_interval() -> None:
    found = mean_of_runs([3.0])
    assert (found.mean, found.low, found.high, found.spread, found.half_width) == (
        3.0,
        None,
        None,
        None,
        None,
    )
    assert noise_floor({"ttft_us.mean": found}) is None


@pytest.mark.parametrize("load", [0.5, 0.95])
@pytest.mark.parametrize("num", [3, 5])
def test_of_600_sets_of_runs_about_95_percent_hold_the_mean(load: float, num: int) -> None:
    truth = {name: values.mean() for name, values in figures_of_runs(10_000, load=load, seed=1).items()}
    sets = sets_of(figures_of_runs(600 * num, load=load, seed=2), num)
    for name in NAMES:
        found = [mean_of_runs(each[name]) for each in sets]
        holds = [(each.low or 0) <= truth[name] <= (each.high or 0) for each in found]
        assert 0.915 < np.mean(holds) < 0.98, name  # 4 standard errors of 600 around 95 %


def test_the_floor_is_of_the_figures_that_all_runs_have() -> None:
    floor = noise_floor(
        {"ttft_us.mean": mean_of_runs([1.0, 1.1, 1.2]), "queue_us.mean": mean_of_runs([1.0, 2.0])}
    )
    assert floor is not None
    assert floor.num_runs == 3
    assert dict(floor.spread) == {"ttft_us.mean": pytest.approx(0.1 / 1.1, rel=1e-5)}
