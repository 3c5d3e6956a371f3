"""Inter-token latencies out of spans are what every token's time says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from sim.records.itl import TIGHT, ninety_ninth, summed
from tests.examples import examples
from tests.sim.strategies import Case, any_model, blackbox, cases


def gaps_of(case: Case) -> list[np.ndarray]:
    """Return each request's gaps from its tokens' times."""
    request, time_us = case.run(record="tokens").tokens()
    return [np.diff(time_us[request == row]) for row in range(len(case.requests))]


def with_whole_alpha2(case: Case) -> Case:
    """The k-th token is k·alpha2 late, rounded once; only whole ones make every gap longer by the same."""
    if float(case.latency.alpha2).is_integer():
        return case
    return replace(case, latency=replace(case.latency, alpha2=3))


@examples(150)
@given(cases(closed=None, model=any_model))
def test_each_request_s_mean_and_p99_are_those_of_its_tokens(case: Case) -> None:
    case = with_whole_alpha2(case)
    latencies = case.run(record="spans").inter_token_latencies()
    for row, gaps in enumerate(gaps_of(case)):
        if len(gaps) == 0:
            assert np.isnan(latencies.mean_us[row])
            assert np.isnan(latencies.p99_us[row])
        else:
            assert latencies.mean_us[row] == pytest.approx(gaps.mean(), abs=1e-3)
            assert latencies.p99_us[row] == pytest.approx(np.percentile(gaps, 99), abs=1e-3)


@pytest.mark.parametrize("largest", [0, 7, TIGHT * 1000, TIGHT * 1000 + 1, 10**12])
def test_counts_are_summed_by_value_however_far_apart_the_values_are(largest: int) -> None:
    rng = np.random.default_rng(largest)
    values = np.append(rng.integers(0, min(largest, 50) + 1, 999), largest)
    counts = rng.integers(1, 5, 1000)
    distinct, sums = summed(values, counts)
    assert [distinct.dtype, sums.dtype] == [np.int64, np.int64]
    expected = {int(each): int(counts[values == each].sum()) for each in np.unique(values)}
    assert dict(zip(distinct.tolist(), sums.tolist(), strict=True)) == expected
    assert [len(each) for each in summed(values[:0], counts[:0])] == [0, 0]


@examples(150)
@given(cases(closed=None, model=any_model))
def test_the_pool_holds_every_gap_of_every_request(case: Case) -> None:
    case = with_whole_alpha2(case)
    latencies = case.run(record="spans").inter_token_latencies()
    gaps = np.sort(np.concatenate([np.zeros(0, np.int64), *gaps_of(case)]))
    np.testing.assert_array_equal(np.repeat(latencies.gaps_us, latencies.counts), gaps)
    assert np.all(np.diff(latencies.gaps_us) > 0)
    assert np.all(latencies.counts > 0)
    for percent in (0, 1, 50, 90, 99, 100):
        expected = np.percentile(gaps, percent) if len(gaps) else np.nan
        assert latencies.pooled_percentiles_us([percent])[0] == pytest.approx(expected, nan_ok=True)
    expected = gaps.mean() if len(gaps) else np.nan
    assert latencies.pooled_mean_us() == pytest.approx(expected, nan_ok=True)


@examples(100)
@given(cases(model=blackbox))
def test_a_fractional_alpha2_leaves_the_mean_exact_and_the_rest_a_microsecond_off_at_most(case: Case) -> None:
    """Each token's delay is rounded by itself, so the gaps of a request differ by one where the steps' do not."""
    latencies, gaps_of_requests = case.run(record="spans").inter_token_latencies(), gaps_of(case)
    for row, gaps in enumerate(gaps_of_requests):
        if len(gaps) > 0:
            assert latencies.mean_us[row] == pytest.approx(gaps.mean(), abs=1e-3)
            assert latencies.p99_us[row] == pytest.approx(np.percentile(gaps, 99), abs=1.0 + 1e-3)
    gaps = np.sort(np.concatenate([np.zeros(0, np.int64), *gaps_of_requests]))
    assert np.all(np.abs(np.repeat(latencies.gaps_us, latencies.counts) - gaps) <= 1)


@pytest.mark.parametrize("num_gaps", [1, 2, 99, 100, 101, 700, 6_301, 6_500])
@pytest.mark.parametrize("highest", [1, 10, 10_000])
def test_the_99th_percentile_is_numpy_s_for_short_and_long_answers_and_ties(
    num_gaps: int, highest: int
) -> None:
    none, pauses = np.zeros(0, np.int64), np.zeros(2, np.int64)
    drawn = np.random.default_rng(num_gaps).integers(0, highest + 1, num_gaps)
    for gaps in (drawn, np.sort(drawn), np.sort(drawn)[::-1]):
        times = np.concatenate([[0], np.cumsum(gaps)])
        found = ninety_ninth(times, np.array([0]), np.array([num_gaps]), pauses, none, none)
        assert found[0] == pytest.approx(np.percentile(gaps, 99), abs=1e-3)
