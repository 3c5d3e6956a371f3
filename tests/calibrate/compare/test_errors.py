import numpy as np
import pytest
from scipy.stats import ks_2samp, pearsonr

from calibrate.compare.metric_errors import STATISTICS, Bootstrap, compare
from calibrate.compare.pair import Pairs, pair_sides
from calibrate.compare.rates import rates_of
from calibrate.compare.samples import WeightedSample
from tests.calibrate.sides import regular_gaps, side
from tests.coverage_bounds import assert_covers
from tests.examples import few_or_all


def two_sides(n: int = 200, *, scale: float = 1.0, noise: float = 0.0, seed: int = 1) -> Pairs:
    generator = np.random.default_rng(seed)
    ttft = generator.lognormal(10, 0.5, size=n)
    simulated = ttft * scale * np.exp(noise * generator.normal(size=n))
    ids = [str(i) for i in range(n)]
    return pair_sides(
        side(ids, ttft=ttft, gaps=regular_gaps(n, [10, 20, 30])),
        side(ids, ttft=simulated, tpot=10 * scale, gaps=regular_gaps(n, [10, 20, 60])),
    )


def test_a_trace_compared_with_itself_has_no_error_at_all() -> None:
    ids = [str(i) for i in range(40)]
    one = side(ids, ttft=list(range(100, 140)), gaps=regular_gaps(40, [3, 4]))
    for found in compare(pair_sides(one, one)).values():
        for name in STATISTICS:
            assert (found.rel_error[name].value, found.rel_error[name].low, found.rel_error[name].high) == (
                0,
                0,
                0,
            )
            assert found.observed[name] == found.simulated[name]
        assert (found.mape.value, found.bias.value, found.ks.value) == (0, 0, 0)
    assert compare(pair_sides(one, one))["ttft_us"].pearson_r.value == pytest.approx(1)


def test_a_twin_that_is_ten_per_cent_slow_is_told_so_by_every_statistic() -> None:
    found = compare(two_sides(scale=1.1))["ttft_us"]
    for estimate in (*found.rel_error.values(), found.mape, found.bias):
        assert estimate.value == pytest.approx(0.1)
        assert estimate.low == pytest.approx(0.1)
        assert estimate.high == pytest.approx(0.1)
    assert found.pearson_r.value == pytest.approx(1)
    assert found.error["p50"].value == pytest.approx(0.1 * found.observed["p50"])
    assert found.n == 200


def test_statistics_agree_with_numpy_and_scipy() -> None:
    pairs = two_sides(noise=0.3)
    found = compare(pairs)["ttft_us"]
    observed, simulated = pairs.observed["ttft_us"].to_numpy(), pairs.simulated["ttft_us"].to_numpy()
    assert found.observed["p95"] == pytest.approx(np.quantile(observed, 0.95))
    assert found.simulated["mean"] == pytest.approx(simulated.mean())
    assert found.pearson_r.value == pytest.approx(pearsonr(observed, simulated).statistic)
    assert found.ks.value == pytest.approx(ks_2samp(observed, simulated).statistic)
    assert found.mape.value == pytest.approx(np.mean(np.abs(simulated - observed) / observed))


def test_intervals_hold_their_value_and_narrow_with_more_requests() -> None:
    few, many = (compare(two_sides(n, noise=0.3))["ttft_us"] for n in (60, 1500))
    for found in (few, many):
        for estimate in (found.mape, found.bias, found.ks, found.pearson_r, *found.rel_error.values()):
            assert estimate.low <= estimate.value <= estimate.high
    assert many.mape.high - many.mape.low < 0.4 * (few.mape.high - few.mape.low)


def test_the_interval_of_the_bias_holds_the_truth_about_as_often_as_stated() -> None:
    truth = np.exp(0.3**2 / 2) - 1
    settings, number = Bootstrap(replicates=120), few_or_all(50, 120)
    covered = sum(
        found.low <= truth <= found.high
        for found in (
            compare(two_sides(80, noise=0.3, seed=s), bootstrap=settings, only=("ttft_us",))["ttft_us"].bias
            for s in range(number)
        )
    )
    assert_covers(covered, number)


def test_itl_statistics_are_of_single_gaps_and_mape_of_requests_means() -> None:
    found = compare(two_sides(n=50))["itl_us"]
    assert found.basis == "events"
    assert found.observed["p50"] == 20
    assert found.simulated["mean"] == pytest.approx(30)
    assert found.ks.value == pytest.approx(1 / 3)
    assert found.mape.value == 0


def test_a_metric_that_one_side_lacks_is_left_out() -> None:
    assert "queue_us" not in compare(two_sides(n=20))


def test_a_zero_observed_has_no_relative_error_but_an_absolute_one() -> None:
    ids = [str(i) for i in range(20)]
    pairs = pair_sides(side(ids, queue_us=np.zeros(20)), side(ids, queue_us=np.full(20, 5.0)))
    found = compare(pairs)["queue_us"]
    assert found.rel_error["p50"].value is None
    assert found.mape.value is None
    assert found.error["p50"].value == 5


def test_too_few_requests_have_values_and_no_interval() -> None:
    found = compare(two_sides(n=5, scale=2.0))["ttft_us"]
    assert found.mape.value == pytest.approx(1)
    assert found.mape.low is None


def test_binned_gaps_give_the_quantiles_of_all_gaps() -> None:
    generator = np.random.default_rng(0)
    gaps = regular_gaps(1, generator.lognormal(9, 1, size=50_000))
    sample = WeightedSample.of_gaps(gaps, num_requests=1)
    at = np.array([0.5, 0.9, 0.95, 0.99])
    once = sample.resampled(np.ones((1, 1), dtype=np.float32), at)[0]
    assert once == pytest.approx(sample.statistics(at), rel=5e-3)
    assert sample.statistics(at)[1:] == pytest.approx(np.quantile(gaps.gap_us, at))


def test_throughput_counts_from_first_arrival_to_last_token() -> None:
    pairs = pair_sides(side(["a", "b"], ttft=[100, 900]), side(["a", "b"], ttft=[100, 1900]))
    rates = rates_of(pairs)
    requests, tokens = rates["request_throughput"], rates["output_token_throughput"]
    assert (requests.observed, requests.simulated) == pytest.approx((2 / 2000 * 1e6, 2 / 3000 * 1e6))
    assert (tokens.observed, tokens.simulated) == pytest.approx((22 / 2000 * 1e6, 22 / 3000 * 1e6))
