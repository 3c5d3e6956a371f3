"""Resamples drawn by plain loops: which requests a block holds, what pooled values come to, how far they stray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ks_2samp, rankdata, wasserstein_distance

from calibrate.compare import metric_errors
from calibrate.compare.gaps import Gaps
from calibrate.compare.metric_errors import Bootstrap, _log_sd, compare, correlation, relative_errors
from calibrate.compare.pair import LATENCIES, pair_sides
from calibrate.compare.rates import COMPARED, COUNTED, Counters, rates_of
from calibrate.compare.samples import BIN_EDGES, KS_GRID, WeightedSample, spread_of
from tests.calibrate.compare.drawn import draw_counts
from tests.calibrate.compare.test_statistics_by_hand import plain_block_length, series_of
from tests.calibrate.sides import gaps_of, side
from traces.statistics import bootstrap
from traces.statistics.bootstrap import (
    Floats,
    _last_significant_lag,
    block_length,
    quantile_rows,
    weighted_sums,
)

NAN = math.nan
Counts = NDArray[np.float32]

# -- what is drawn -------------------------------------------------------------------------------------------


def plain_counts(n: int, block: int, *, replicates: int, seed: int, stream: int) -> list[list[int]]:
    """Blocks laid end to end around the circle of requests until there are n, one request at a time."""
    generator = np.random.Generator(np.random.Philox(key=np.array([seed % 2**64, stream], np.uint64)))
    found = []
    for starts in generator.integers(0, n, size=(replicates, math.ceil(n / block))):
        rows = [(start + step) % n for start in starts for step in range(block)][:n]
        found.append([rows.count(row) for row in range(n)])
    return found


@pytest.mark.parametrize(("n", "block"), [(1, 1), (7, 1), (7, 2), (7, 3), (12, 4), (12, 5), (30, 10), (9, 9)])
def test_what_is_drawn_is_blocks_around_the_circle(n: int, block: int) -> None:
    for seed, stream in ((3, 0), (-1, 2), (2**64 - 1, 5), (2**40, 970)):
        found = draw_counts(n, block, replicates=25, seed=seed, stream=stream)
        assert found.tolist() == plain_counts(n, block, replicates=25, seed=seed, stream=stream)
        assert found.dtype == np.float32


def test_a_sum_weighs_each_value_by_how_often_it_was_drawn() -> None:
    counts = np.array([[1, 0, 2], [0, 3, 0]], np.float32)
    assert weighted_sums(counts, np.array([1.0, 10.0, 1e9])).tolist() == [2e9 + 1, 30]


def resample(values: Floats, counts: Sequence[float]) -> Floats:
    return np.repeat(values, np.asarray(counts).astype(int))


def test_quantiles_of_rows_that_are_longer_and_shorter_and_begin_and_end_with_nothing() -> None:
    values = np.array([1.0, 2.0, 4.0, 8.0])
    counts = np.array([[1, 1, 1, 1], [0, 3, 0, 0], [2, 0, 0, 1], [0, 0, 5, 2]], np.float32)
    at = np.array([0.0, 0.25, 0.5, 0.9, 1.0])
    found = quantile_rows(values, counts, at=at)
    for row, drawn in zip(found, counts, strict=True):
        assert row == pytest.approx(np.quantile(resample(values, drawn), at))


def test_long_series_have_the_block_length_of_plain_loops() -> None:
    """Where a density is negative, or the window reaches further than the series, or a lag is just significant."""
    for n in (6, 7, 9, 16, 25, 100, 400):
        for phi in (-1.0, -0.97, -0.7, 0.5, 0.8, 0.95):
            series = series_of(n, phi, n) + 1000.0
            assert block_length(series) == plain_block_length(series), (n, phi)
    alternating = np.array([1.0, -1.0] * 20)
    assert block_length(alternating) == plain_block_length(alternating)
    steps = np.repeat([0.0, 1.0, 0.0], 12)
    assert block_length(steps) == plain_block_length(steps)


def test_the_last_significant_lag_counts_from_a_run_of_five_that_are_not() -> None:
    """Of a hundred: 2 sqrt(log10(100) / 100) = 0.283, looked at up to lag 15."""
    just, no = 0.2829, 0.2828

    def lag(*significant: int) -> int:
        correlation = np.full(100, no)
        correlation[[0, *significant]] = just
        return _last_significant_lag(correlation)

    assert lag() == 0
    assert lag(1) == 1
    assert lag(3) == 3
    assert lag(5) == 5
    assert lag(6) == 0  # the five before it are not significant
    assert lag(1, 7) == 1
    assert lag(1, 6) == 6
    assert lag(5, 10) == 10
    assert lag(5, 10, 15) == 10  # beyond that nothing is looked at
    assert lag(5, 9, 14) == 9 + 1  # no run of five: the last that one could begin at
    assert _last_significant_lag(-np.array([-1.0, 0.5] + [0.0] * 98)) == 1


def test_seeds_that_are_alike_but_for_a_digit_draw_otherwise() -> None:
    """Also those of 64 bits: as floats they would all be one."""
    firsts = {draw_counts(50, 3, replicates=1, seed=seed, stream=1).tobytes() for seed in (-2, -1, 2**63 + 1)}
    assert len(firsts) == 3


# -- samples -------------------------------------------------------------------------------------------------


def weighted_gaps() -> Gaps:
    """Return 60 gaps of 9 requests, some alike, each as often as it says."""
    generator = np.random.default_rng(8)
    return Gaps(
        request=generator.integers(0, 9, 60),
        gap_us=np.round(generator.lognormal(3, 1, 60)),
        weight=generator.integers(1, 6, 60).astype(np.float64),
        basis="request means",
    )


QUANTILES = np.array([0.0, 0.3, 0.5, 0.95, 1.0])


def test_statistics_are_over_each_gap_as_often_as_it_weighs() -> None:
    gaps = weighted_gaps()
    sample = WeightedSample.of_gaps(gaps, num_requests=9)
    pool = resample(gaps.gap_us, gaps.weight)
    assert sample.statistics(QUANTILES) == pytest.approx([pool.mean(), *np.quantile(pool, QUANTILES)])
    counts = draw_counts(9, 2, replicates=20, seed=1, stream=0)
    for row, drawn in zip(sample.resampled(counts, QUANTILES), counts, strict=True):
        again = resample(gaps.gap_us, gaps.weight * drawn[gaps.request])
        assert row == pytest.approx([again.mean(), *np.quantile(again, QUANTILES)])


def test_a_resample_of_requests_is_that_of_their_values() -> None:
    values = np.array([5.0, 1.0, 9.0, 1.0, 7.0])
    counts = draw_counts(5, 2, replicates=20, seed=1, stream=0)
    for row, drawn in zip(
        WeightedSample.of_requests(values).resampled(counts, QUANTILES), counts, strict=True
    ):
        again = resample(values, drawn)
        assert row == pytest.approx([again.mean(), *np.quantile(again, QUANTILES)])


def test_a_bin_of_many_gaps_stands_at_their_weighted_mean() -> None:
    generator = np.random.default_rng(2)
    n = 9000
    weight = generator.integers(1, 9, n).astype(np.float64)
    gap_us = generator.permutation(n).astype(np.float64)
    found = WeightedSample.of_gaps(
        Gaps(request=np.arange(n) % 7, gap_us=gap_us, weight=weight, basis="events"), num_requests=8
    )
    assert found.binned is not None
    assert found.bin_values is not None
    order = np.argsort(gap_us)
    before = np.cumsum(weight[order]) - weight[order]
    place = np.interp((before + weight[order] / 2) / weight.sum(), *BIN_EDGES).astype(int)
    numbers = sorted(set(place.tolist()))
    table = found.binned.toarray()
    assert table.shape == (8, len(numbers))
    for column in (0, 100, len(numbers) - 2, len(numbers) - 1):
        rows = order[place == numbers[column]]
        assert found.bin_values[column] == pytest.approx(np.average(gap_us[rows], weights=weight[rows]))
        for request in range(8):
            assert table[request, column] == weight[rows][rows % 7 == request].sum()


def test_distances_are_scipy_s_and_weights_count_as_so_many() -> None:
    gaps = weighted_gaps()
    one, two = (
        WeightedSample.of_gaps(gaps, num_requests=9),
        WeightedSample.of_requests(np.array([3.0, 20.0, 20.0, 55.0])),
    )
    pool = resample(gaps.gap_us, gaps.weight)
    assert one.distance(two) == pytest.approx(ks_2samp(pool, two.values).statistic)
    assert two.distance(one) == pytest.approx(one.distance(two))
    assert one.wasserstein(two) == pytest.approx(wasserstein_distance(pool, two.values))
    assert two.share_up_to(np.array([2.0, 3.0, 20.0, 54.0, 99.0])).tolist() == [0, 0.25, 0.75, 0.75, 1]


def test_how_far_a_resample_strays_is_that_of_its_values_counted_below_each_point() -> None:
    gaps, values = weighted_gaps(), np.array([3.0, 30.0, 20.0, 55.0, 1.0, 8.0, 9.0, 20.0, 60.0])
    samples = (WeightedSample.of_gaps(gaps, num_requests=9), WeightedSample.of_requests(values))
    counts = draw_counts(9, 2, replicates=12, seed=4, stream=0)
    reach, area = spread_of(samples, num_requests=9).reach([each.drawn(counts) for each in samples])
    grid = np.unique(np.quantile(np.concatenate([gaps.gap_us, values]), np.linspace(0, 1, KS_GRID)))

    def share(pool: Floats) -> Floats:
        return np.array([np.mean(pool <= at + 1e-9) for at in grid])

    whole = share(values) - share(resample(gaps.gap_us, gaps.weight))
    for row, drawn in enumerate(counts):
        again = share(resample(values, drawn)) - share(
            resample(gaps.gap_us, gaps.weight * drawn[gaps.request])
        )
        strayed = np.abs(again - whole)
        assert reach[row] == pytest.approx(strayed.max())
        assert area[row] == pytest.approx((strayed[:-1] * np.diff(grid)).sum())


# -- errors and their intervals ------------------------------------------------------------------------------

N = 40


def two_latencies() -> tuple[Floats, Floats]:
    generator = np.random.default_rng(6)
    observed = 1000 * generator.lognormal(0, 0.5, N)
    return observed, observed * (1.1 + 0.3 * series_of(N, 0.7, 3))


def test_every_interval_of_a_metric_is_that_of_its_resamples() -> None:
    """E2E is the fifth metric, whose resamples are stream 4000: drawn and worked out one by one."""
    observed, simulated = two_latencies()
    ids = [str(i) for i in range(N)]
    pairs = pair_sides(side(ids, e2e_us=observed), side(ids, e2e_us=simulated))
    settings = Bootstrap(replicates=60, level=0.8, seed=9)
    found = compare(pairs, bootstrap=settings, only=("e2e_us",))["e2e_us"]
    relative = simulated / observed - 1
    assert found.block == plain_block_length(relative) > 1
    drawn: dict[str, list[float]] = {}
    ranks = rankdata(observed), rankdata(simulated)
    for counts in plain_counts(N, found.block, replicates=60, seed=9, stream=4000):
        one, two, off, first, second = (
            resample(each, counts) for each in (observed, simulated, relative, *ranks)
        )
        for name, value in (
            ("mean error", two.mean() - one.mean()),
            ("mean", two.mean() / one.mean() - 1),
            ("p90 error", np.quantile(two, 0.9) - np.quantile(one, 0.9)),
            ("p90", np.quantile(two, 0.9) / np.quantile(one, 0.9) - 1),
            ("mape", np.abs(off).mean()),
            ("bias", off.mean()),
            ("r", np.corrcoef(one, two)[0, 1]),
            ("rho", np.corrcoef(first, second)[0, 1]),
        ):
            drawn.setdefault(name, []).append(float(value))
    for name, estimate in (
        ("mean error", found.error["mean"]),
        ("mean", found.rel_error["mean"]),
        ("p90 error", found.error["p90"]),
        ("p90", found.rel_error["p90"]),
        ("mape", found.mape),
        ("bias", found.bias),
        ("r", found.pearson_r),
        ("rho", found.spearman_r),
    ):
        assert (estimate.low, estimate.high) == pytest.approx(np.quantile(drawn[name], [0.1, 0.9])), name
    assert found.log_ratio_sd == pytest.approx(np.std(np.log1p(drawn["mean"])))
    samples = (WeightedSample.of_requests(observed), WeightedSample.of_requests(simulated))
    counts = np.array(plain_counts(N, found.block, replicates=60, seed=9, stream=4000), np.float32)
    reach, area = spread_of(samples, num_requests=N).reach([each.drawn(counts) for each in samples])
    assert found.ks.value is not None
    assert found.ks.high == pytest.approx(min(1, found.ks.value + np.quantile(reach, 0.8)))
    assert found.wasserstein_us.value == pytest.approx(wasserstein_distance(observed, simulated))
    assert found.wasserstein_us.high == pytest.approx(found.wasserstein_us.value + np.quantile(area, 0.8))


@pytest.mark.parametrize("cells", [4 * N + N - 1, 1])
def test_resamples_are_the_same_however_many_come_together(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty requests, ten replicates: four at a time, the last two alone; or one at a time."""
    monkeypatch.setattr(bootstrap, "CHUNK_CELLS", cells)
    observed, simulated = two_latencies()
    samples = WeightedSample.of_requests(observed), WeightedSample.of_requests(simulated)
    found = metric_errors._replicates(
        (observed, simulated), samples=samples, settings=Bootstrap(replicates=10, seed=2), block=3, stream=7
    )
    counts = plain_counts(N, 3, replicates=10, seed=2, stream=7000)
    due = [resample(simulated, row).mean() - resample(observed, row).mean() for row in counts]
    assert found["error mean"] == pytest.approx(due)


@pytest.mark.parametrize(("n", "is_drawn"), [(7, False), (8, True)])
def test_eight_requests_are_enough_for_an_interval(n: int, is_drawn: bool) -> None:
    ids = [str(i) for i in range(n)]
    pairs = pair_sides(side(ids), side(ids, ttft=[110.0 + i for i in range(n)]))
    settings = Bootstrap(replicates=30)
    assert (compare(pairs, bootstrap=settings)["e2e_us"].mape.low is not None) is is_drawn
    found = rates_of(pairs, bootstrap=settings)["request_throughput"]
    assert ((found.error.low is not None), (found.rel_error.low is not None)) == (is_drawn, is_drawn)


def test_the_spread_of_a_ratio_s_logarithm() -> None:
    assert _log_sd(np.array([math.e - 1, NAN, math.e**3 - 1])) == pytest.approx(1.0)
    assert _log_sd(np.array([0.5, -1.0])) is None  # nothing took any time
    assert _log_sd(np.array([NAN])) is None
    assert _log_sd(None) is None


def test_who_was_observed_to_take_no_time_counts_in_no_share() -> None:
    """Of 0, 10 and 20 observed, 5, 11 and 16 simulated: a tenth too long and a fifth too short."""
    ids = ["a", "b", "c"]
    found = compare(pair_sides(side(ids, e2e_us=[0.0, 10.0, 20.0]), side(ids, e2e_us=[5.0, 11.0, 16.0])))[
        "e2e_us"
    ]
    assert found.mape.value == pytest.approx(0.15)
    assert found.bias.value == pytest.approx(-0.05)
    assert found.pearson_r.value == pytest.approx(np.corrcoef([0, 10, 20], [5, 11, 16])[0, 1])
    assert found.spearman_r.value == pytest.approx(1.0)
    assert found.error["mean"].value == pytest.approx(2 / 3)
    assert found.rel_error["mean"].value == pytest.approx(2 / 30)


def test_what_does_not_vary_correlates_with_nothing() -> None:
    counts = np.array([[1, 1, 1], [2, 0, 1]], np.float32)
    x = np.array([1.0, 2.0, 5.0])
    assert np.isnan(correlation((x, np.ones(3)), counts)).all()
    assert correlation((x, -3 * x), counts) == pytest.approx([-1, -1])
    y = np.array([4.0, 1.0, 1.0])
    assert correlation((x, y), counts) == pytest.approx(
        [np.corrcoef(x, y)[0, 1], np.corrcoef([1, 1, 5], [4, 4, 1])[0, 1]]
    )


# -- rates ---------------------------------------------------------------------------------------------------


def test_the_interval_of_a_rate_is_that_of_its_resamples() -> None:
    """A throughput is n over the time that they took; both sides lose or gain the same stretches."""
    observed, simulated = two_latencies()
    ends = np.cumsum(observed), np.cumsum(simulated)
    ids = [str(i) for i in range(N)]
    still = {"arrival_us": np.zeros(N)}
    pairs = pair_sides(side(ids, e2e_us=ends[0], **still), side(ids, e2e_us=ends[1], **still))
    found = rates_of(pairs, bootstrap=Bootstrap(replicates=50, level=0.8, seed=3))["request_throughput"]
    spans = [np.diff(np.sort(each), prepend=0.0) / 1e6 for each in ends]
    block = plain_block_length(spans[1] - spans[0])
    assert block > 1
    rows = np.array(plain_counts(N, block, replicates=50, seed=3, stream=900))
    first, second = (N / (rows @ each) for each in spans)
    assert (found.error.low, found.error.high) == pytest.approx(np.quantile(second - first, [0.1, 0.9]))
    assert (found.rel_error.low, found.rel_error.high) == pytest.approx(
        np.quantile(second / first - 1, [0.1, 0.9])
    )
    assert found.rel_error.value == pytest.approx(ends[0][-1] / ends[1][-1] - 1)
    assert (found.n, found.basis) == (N, COMPARED)


def test_what_was_good_by_second_and_as_a_share() -> None:
    """Four within 8 s, of which two keep 150 us to the first token; of the twin's three, within 5 s."""
    ids = list("abcd")
    arrival = {"arrival_us": [0.0, 1e6, 2e6, 3e6]}
    observed = side(ids, ttft_us=[100.0, 150.0, 151.0, 200.0], e2e_us=[1e6, 1e6, 1e6, 5e6], **arrival)
    simulated = side(ids, ttft_us=[100.0, 10.0, 10.0, 200.0], e2e_us=[5e6, 1e6, 1e6, 1e6], **arrival)
    found = rates_of(pair_sides(observed, simulated), slo_us={"ttft": 150.0})
    assert (found["goodput"].observed, found["goodput"].simulated) == pytest.approx((2 / 8, 3 / 5))
    assert (found["good_frac"].observed, found["good_frac"].simulated) == pytest.approx((0.5, 0.75))
    assert found["good_frac"].rel_error.value == pytest.approx(0.5)
    tokens = found["output_token_throughput"]
    assert (tokens.observed, tokens.simulated) == pytest.approx((44 / 8, 44 / 5))
    without = rates_of(pair_sides(observed, simulated))
    assert list(without) == ["request_throughput", "output_token_throughput"]


def test_prefix_hits_and_preemptions_are_of_the_requests_that_both_sides_tell() -> None:
    ids = list("abcd")
    observed = side(
        ids,
        prompt_tokens=[100.0, 50.0, 70.0, NAN],
        cached_tokens=[50.0, 0.0, NAN, 1.0],
        num_preemptions=[2.0, 1.0, NAN, 0.0],
    )
    simulated = side(ids, cached_tokens=[30.0, 30.0, 70.0, 1.0], num_preemptions=[1.0, NAN, 4.0, 3.0])
    found = rates_of(pair_sides(observed, simulated))
    hits, preempted = found["prefix_hit_frac"], found["num_preemptions"]
    assert (hits.n, hits.observed, hits.simulated) == (2, pytest.approx(50 / 150), pytest.approx(60 / 150))
    assert hits.error.value == pytest.approx(10 / 150)
    assert (preempted.n, preempted.observed, preempted.simulated) == (2, pytest.approx(2), pytest.approx(4))
    assert hits.basis == preempted.basis == COMPARED
    none = side(ids, prompt_tokens=[0.0] * 4, cached_tokens=[0.0] * 4)
    assert "prefix_hit_frac" not in rates_of(pair_sides(none, simulated))
    counted = [Counters(hit_frac=(0.25, 0.5), preemptions=(0, 3), num_requests=9)]
    found = rates_of(pair_sides(none, simulated), counters=counted)
    assert (found["prefix_hit_frac"].n, found["prefix_hit_frac"].basis) == (9, COUNTED)
    assert found["prefix_hit_frac"].error.value == pytest.approx(0.25)
    assert found["prefix_hit_frac"].rel_error.value == pytest.approx(1.0)
    untold = pair_sides(side(ids), side(ids))
    found = rates_of(untold, counters=counted)
    assert (found["num_preemptions"].error.value, found["num_preemptions"].rel_error.value) == (3, None)
    assert "num_preemptions" not in rates_of(untold)
    never = [replace(counted[0], preemptions=(0, None))]
    assert "num_preemptions" not in rates_of(untold, counters=never)
    silent = pair_sides(replace(observed), side(ids, cached_tokens=[NAN] * 4, num_preemptions=[NAN] * 4))
    assert "prefix_hit_frac" not in rates_of(silent)
    assert "num_preemptions" not in rates_of(silent)


def test_a_rate_of_nothing_observed_has_no_share() -> None:
    ids = [str(i) for i in range(9)]
    observed, simulated = side(ids, num_preemptions=[0.0] * 9), side(ids, num_preemptions=[1.0] * 9)
    found = rates_of(pair_sides(observed, simulated), bootstrap=Bootstrap(replicates=20))["num_preemptions"]
    assert (found.observed, found.simulated, found.error.value) == (0, pytest.approx(9), pytest.approx(9))
    assert (found.rel_error.value, found.rel_error.low) == (None, None)
    assert found.error.low == pytest.approx(9)


def test_gaps_of_one_side_only_are_no_metric() -> None:
    ids = ["a", "b"]
    some = side(ids, gaps=gaps_of([10.0, 20.0], [30.0]))
    for pairs in (pair_sides(some, side(ids)), pair_sides(side(ids), some)):
        assert "itl_us" not in compare(pairs)
    found = compare(pair_sides(some, some))
    assert found["itl_us"].observed["mean"] == pytest.approx(20)
    assert (found["itl_us"].basis, found["e2e_us"].basis) == ("events", None)


@pytest.mark.parametrize("is_again", [False, True])
@pytest.mark.parametrize("early_us", [0.0, 40.0])
def test_the_errors_of_a_kind_of_requests_are_those_of_a_whole_comparison(
    is_again: bool, early_us: float
) -> None:
    generator = np.random.default_rng(3)
    ids, draw = [str(i) for i in range(30)], lambda: generator.lognormal(5, 0.3, 30).tolist()
    one = side(ids, ttft=draw(), ttft_too_long_us=early_us)
    again = generator.lognormal(5, 0.3, (4, 30, len(LATENCIES))) if is_again else None
    pairs = pair_sides(one, replace(side(ids, ttft=draw()), again=again))
    settings, only = Bootstrap(replicates=50), ("ttft_us", "tpot_us", "e2e_us")
    whole = compare(pairs, bootstrap=settings, only=only)
    assert relative_errors(pairs, bootstrap=settings, only=only) == {
        name: (each.mape, each.bias) for name, each in whole.items()
    }
