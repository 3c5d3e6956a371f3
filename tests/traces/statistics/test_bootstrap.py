import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from calibrate.compare.metric_errors import correlation
from calibrate.compare.samples import WeightedSample, spread_of
from tests.calibrate.compare.drawn import draw_counts
from tests.coverage_bounds import assert_covers
from traces.statistics.bootstrap import (
    Floats,
    block_length,
    interval,
    over_resamples,
    quantile_rows,
    weighted_sums,
)


def autoregressive(n: int, phi: float, generator: np.random.Generator) -> Floats:
    noise = generator.normal(size=n + 100)
    series = np.zeros(n + 100)
    for i in range(1, n + 100):
        series[i] = phi * series[i - 1] + noise[i]
    return series[100:]


@given(st.integers(1, 60), st.integers(1, 70), st.integers(0, 2**40))
def test_every_resample_has_as_many_requests_as_the_trace(n: int, block: int, seed: int) -> None:
    counts = draw_counts(n, min(block, n), replicates=7, seed=seed, stream=1)
    assert counts.shape == (7, n)
    assert (counts >= 0).all()
    assert (counts.sum(axis=1) == n).all()


def test_the_same_seed_and_stream_draw_the_same_and_another_stream_does_not() -> None:
    first = draw_counts(50, 5, replicates=9, seed=3, stream=1)
    assert (first == draw_counts(50, 5, replicates=9, seed=3, stream=1)).all()
    assert (first != draw_counts(50, 5, replicates=9, seed=3, stream=2)).any()


def test_a_block_of_one_as_long_as_the_trace_is_drawn_in_full() -> None:
    assert (draw_counts(12, 12, replicates=5, seed=0, stream=0) == 1).all()


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.integers(0, 1000))
def test_quantiles_of_a_resample_are_numpys(values: list[float], seed: int) -> None:
    ordered = np.sort(np.array(values))
    counts = draw_counts(len(ordered), 1, replicates=4, seed=seed, stream=0)
    at = np.array([0.0, 0.5, 0.9, 0.99, 1.0])
    expected = [np.quantile(np.repeat(ordered, row.astype(int)), at) for row in counts]
    assert quantile_rows(ordered, counts, at=at) == pytest.approx(np.array(expected), rel=1e-9, abs=1e-6)


def test_independent_requests_need_no_blocks_and_correlated_ones_do() -> None:
    generator = np.random.default_rng(5)
    assert block_length(generator.normal(size=1000)) <= 4
    assert block_length(autoregressive(1000, 0.8, generator)) >= 10
    assert block_length(np.ones(100)) == 1


def test_the_block_length_is_the_optimal_one_of_an_autoregressive_series() -> None:
    # b = (2 G² / (4/3 g²))^(1/3) n^(1/3), circular blocks; AR(1): G = Σ|k| R(k) and g = Σ R(k), G / g = 2φ / (1 - φ²)
    n, phi = 20_000, 0.8
    generator = np.random.default_rng(7)
    found = np.mean([block_length(autoregressive(n, phi, generator)) for _ in range(30)])
    assert found == pytest.approx((1.5 * (2 * phi / (1 - phi**2)) ** 2) ** (1 / 3) * n ** (1 / 3), rel=0.08)


@pytest.mark.parametrize("unknown", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_left_out_of_a_block_length(unknown: float) -> None:
    series = autoregressive(1000, 0.8, np.random.default_rng(5))
    expected = block_length(series)
    assert expected >= 10
    assert block_length(np.insert(series, [0, 3, 700, 1000], unknown)) == expected
    assert block_length(np.full(50, unknown)) == 1
    assert block_length(np.array([unknown, 1.0, 2.0, 4.0])) == 1


@pytest.mark.parametrize("scale", [2.0**-900, 2.0**900])
def test_a_block_length_does_not_hang_on_the_unit(scale: float) -> None:
    series = autoregressive(1000, 0.8, np.random.default_rng(5))
    assert block_length(series * scale) == block_length(series)
    series[500] = 0.0  # has no size
    assert block_length(series * scale) == block_length(series)


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_intervals_of_a_mean_hold_the_truth_about_as_often_as_stated(phi: float) -> None:
    generator = np.random.default_rng(11)
    covered = 0
    for trial in range(100):
        series = autoregressive(300, phi, generator)
        counts = draw_counts(300, block_length(series), replicates=300, seed=trial, stream=0)
        found = interval(series.mean(), counts @ series / 300)
        covered += found.low <= 0 <= found.high
    assert_covers(covered, 100)


def test_blocks_are_what_makes_the_interval_of_correlated_requests_wide_enough() -> None:
    series = autoregressive(400, 0.8, np.random.default_rng(2))

    def width(block: int) -> float:
        found = interval(
            series.mean(), draw_counts(400, block, replicates=400, seed=1, stream=0) @ series / 400
        )
        return found.high - found.low

    assert width(block_length(series)) > 1.7 * width(1)


def test_an_undefined_value_has_no_interval() -> None:
    assert interval(float("nan"), np.ones(10)).value is None
    assert interval(1.0, np.full(10, np.nan)).low is None


def ends_of_two_traces(n: int) -> dict[str, Floats]:
    """Every kind of figure that is resampled, of one draw."""
    generator = np.random.default_rng(3)
    one = generator.lognormal(10, 1, n)
    two = one * generator.lognormal(0, 0.2, n)
    counts = draw_counts(n, 7, replicates=400, seed=1, stream=1)
    samples = (WeightedSample.of_requests(one), WeightedSample.of_requests(two))
    return {
        "correlation": correlation((one, two), counts),
        "quantiles": samples[0].resampled(counts, np.array([0.5, 0.99])),
        "distances": np.column_stack(
            spread_of(samples, num_requests=n).reach([each.drawn(counts) for each in samples])
        ),
        "sums": weighted_sums(counts, one),
    }


def test_the_ends_of_intervals_do_not_hang_on_the_number_of_threads() -> None:
    for n in (500, 3_000):
        with threadpool_limits(1):
            alone = ends_of_two_traces(n)
        with threadpool_limits(2):
            beside = ends_of_two_traces(n)
        assert {name: np.array_equal(alone[name], beside[name]) for name in alone} == dict.fromkeys(
            alone, True
        )


def test_memory_does_not_grow_with_the_resamples() -> None:
    def most_bytes(replicates: int) -> int:
        tracemalloc.start()
        over_resamples(
            lambda counts: counts.mean(axis=1), 100_000, 4, replicates=replicates, seed=1, stream=1
        )
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert most_bytes(120) < 1.1 * most_bytes(60)
