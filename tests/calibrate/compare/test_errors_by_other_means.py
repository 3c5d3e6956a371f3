"""Errors against scipy, numpy and a pencil, where ITL is not TPOT, neighbours are alike, and samples differ in size."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr, wasserstein_distance

from calibrate.compare.metric_errors import Bootstrap, compare, correlation
from calibrate.compare.pair import Pairs, pair_sides
from calibrate.compare.samples import WeightedSample
from calibrate.gate.checks import ErrorLimit, check
from calibrate.gate.drift import relative_drift
from tests.calibrate.sides import regular_gaps, side
from traces.statistics.bootstrap import Estimate, block_length, interval

N = 60
IDS = [str(row) for row in range(N)]


def values(seed: int, n: int = N) -> np.ndarray:
    return np.round(np.random.default_rng(seed).lognormal(8, 0.7, n), 1)


def test_the_mape_of_itl_is_of_mean_gaps_and_not_of_tpot() -> None:
    """Mean gaps are 20 % too long, TPOT is exact: drafts that are taken together make the two differ."""
    one = side(IDS, gaps=regular_gaps(N, [10.0]), itl_mean_us=np.full(N, 10.0), tpot_us=np.full(N, 4.0))
    two = side(IDS, gaps=regular_gaps(N, [12.0]), itl_mean_us=np.full(N, 12.0), tpot_us=np.full(N, 4.0))
    found = compare(pair_sides(one, two))
    assert found["itl_us"].mape.value == found["itl_us"].bias.value == pytest.approx(0.2)
    assert found["tpot_us"].mape.value == 0


@pytest.mark.parametrize("sizes", [(N, N), (N, 7), (5, 90)])
def test_the_area_between_distributions_is_scipy_s(sizes: tuple[int, int]) -> None:
    one, two = values(1, sizes[0]), values(2, sizes[1])
    found = WeightedSample.of_requests(one).wasserstein(WeightedSample.of_requests(two))
    assert found == pytest.approx(wasserstein_distance(one, two), rel=1e-12)
    assert WeightedSample.of_requests(one).wasserstein(WeightedSample.of_requests(one + 5)) == pytest.approx(
        5
    )


def pairs_of(observed: np.ndarray, simulated: np.ndarray) -> Pairs:
    ids = [str(row) for row in range(len(observed))]
    return pair_sides(side(ids, ttft=observed), side(ids, ttft=simulated))


def test_the_report_s_distances_and_ranks_are_scipy_s() -> None:
    observed, simulated = values(3), values(4)
    simulated[:10] = simulated[0]  # ties
    found = compare(pairs_of(observed, simulated))["ttft_us"]
    assert found.wasserstein_us.value == pytest.approx(wasserstein_distance(observed, simulated), rel=1e-9)
    assert found.spearman_r.value == pytest.approx(spearmanr(observed, simulated).statistic, rel=1e-9)
    assert found.spearman_r.value != pytest.approx(found.pearson_r.value, abs=1e-3)


def test_correlation_of_a_resample_is_that_of_the_rows_as_often_as_drawn() -> None:
    x, y = values(5), values(6) + values(5)
    counts = np.random.default_rng(7).multinomial(N, np.full(N, 1 / N), size=3).astype(np.float32)
    for drawn, found in zip(counts, correlation((x, y), counts), strict=True):
        rows = np.repeat(np.arange(N), drawn.astype(int))
        assert found == pytest.approx(np.corrcoef(x[rows], y[rows])[0, 1], rel=1e-6)


def autoregressive(n: int, rho: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=n)
    series = np.zeros(n)
    for i in range(1, n):
        series[i] = rho * series[i - 1] + noise[i] * np.sqrt(1 - rho * rho)
    return series


def test_neighbours_that_err_alike_are_drawn_together_and_the_interval_is_as_wide_as_their_mean_is_unsure() -> (
    None
):
    """Errors with rho 0.9: the mean of n of them strays sqrt(19) times as far as that of independent ones."""
    n, rho = 1500, 0.9
    errors = 0.05 * autoregressive(n, rho, 8)
    observed = np.full(n, 1000.0)
    alike = compare(pairs_of(observed, 1000 * (1 + errors)))["ttft_us"]
    mixed = compare(pairs_of(observed, 1000 * (1 + np.random.default_rng(9).permutation(errors))))["ttft_us"]
    assert mixed.block < 5 < alike.block
    width, alone = (each.bias.high - each.bias.low for each in (alike, mixed))  # type: ignore[operator] # they have one
    assert width / alone == pytest.approx(np.sqrt((1 + rho) / (1 - rho)), rel=0.35)
    due = 2 * 1.645 * 0.05 / np.sqrt(n)
    assert alone == pytest.approx(due, rel=0.15)


def test_blocks_are_one_where_neighbours_say_nothing_of_each_other() -> None:
    assert block_length(np.random.default_rng(10).normal(size=2000)) <= 3
    assert block_length(autoregressive(2000, 0.95, 11)) > 15
    assert block_length(np.ones(50)) == 1
    assert block_length(np.array([1.0, 2.0, 3.0])) == 1


def test_an_interval_ends_at_the_replicates_outer_twentieths_and_needs_half_of_them() -> None:
    replicates = np.arange(101.0)
    for level, low, high in ((0.9, 5, 95), (0.5, 25, 75)):
        found = interval(50, replicates, level=level)
        assert (found.value, found.low, found.high) == (50, pytest.approx(low), pytest.approx(high))
    half = np.where(replicates < 50, np.nan, replicates)
    assert interval(50, half, level=0.9).low == pytest.approx(52.5)
    less = np.where(replicates < 51, np.nan, replicates)
    assert interval(50, less) == Estimate(value=50)
    assert interval(np.nan, replicates) == Estimate(value=None)


def test_the_spread_of_the_log_ratio_is_that_of_the_means() -> None:
    """Independent errors of 10 %: the ratio of the means of n strays by 0.1/sqrt(n) of their mean square."""
    observed = np.full(400, 1000.0)
    simulated = 1000 * np.exp(0.1 * np.random.default_rng(12).normal(size=400))
    found = compare(pairs_of(observed, simulated), bootstrap=Bootstrap(replicates=2000))["ttft_us"]
    due = np.std(simulated) / np.mean(simulated) / np.sqrt(400)
    assert found.log_ratio_sd == pytest.approx(due, rel=0.1)


# -- the gate ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "warned"), [(0.06, True), (-0.06, True), (-0.5, True), (0.04, False), (-0.04, False)]
)
def test_a_twin_that_is_too_fast_is_warned_of_as_one_that_is_too_slow(value: float, warned: bool) -> None:
    limit = ErrorLimit(metric="e2e_us", statistic="bias", warn=0.05, fail=0.9)
    assert check(limit, Estimate(value=value, low=value, high=value), n=100, least=30).warned == warned


def test_the_drift_of_a_coefficient_has_an_interval_only_where_both_are_above_zero() -> None:
    now, then = Estimate(value=2.0, low=1.0, high=4.0), Estimate(value=1.0, low=0.5, high=2.0)
    found = relative_drift(now, then)
    assert found is not None
    reach = np.hypot(np.log(2), np.log(2))
    assert found.value == 1
    assert (found.low, found.high) == (
        pytest.approx(2 * np.exp(-reach) - 1),
        pytest.approx(2 * np.exp(reach) - 1),
    )
    at_zero = relative_drift(Estimate(value=2.0, low=0.0, high=4.0), then)
    assert at_zero == Estimate(value=1.0)
    assert relative_drift(Estimate(value=0.0, low=0.0, high=0.0), then) is None
    assert relative_drift(now, Estimate(value=None)) is None
