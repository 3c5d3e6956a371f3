"""How well a 99th percentile is known: its interval holds the truth as often as it says, on queues of known truth."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from tests.traces.measured.test_stream_shape import answers
from traces import fewest_beyond, precision_rows
from traces.findings.tail_precision import (
    TailPrecision,
    _largest,
    _needed,
    _ranks,
    _rounded_up,
    _times_scattered,
    _up_to,
    _worth_of_median,
    num_effective,
    precision_of,
    tail_precision,
)

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
    assert second[1] == "for ±5 %: p99 takes more than 10 times these 200 requests"


@pytest.mark.parametrize(("load", "n"), [(0.3, 200), (0.5, 600), (0.8, 5000)])
def test_where_p99_has_no_upper_end_p90_has_an_interval_that_holds(load: float, n: int) -> None:
    true = -np.log(0.1) * load / (1 - load)
    rng = np.random.default_rng(11)
    found = [known(sojourns(n, load, rng)) for _ in range(100)]
    told = [(each["p90_low"], each["p90_high"]) for each in found if each["high"] is None]
    ends = [(low, high) for low, high in told if low is not None and high is not None]
    assert len(ends) > 0.9 * len(told) > 80
    assert 0.85 <= np.mean([low <= true <= high for low, high in ends]) <= 1.0
    assert all((each["p90_low"] is None) == (each["p90_high"] is None) for each in found)
    assert all(each["p90_low"] is None for each in found if each["high"] is not None)
    rows = precision_rows({"ttft_us": next(each for each in found if each["p90_low"] is not None)})
    assert [name for name, _ in rows] == ["p99 within", "p90 within", ""]


@pytest.mark.parametrize(
    ("load", "n", "least"), [(0.3, 1000, 88), (0.5, 3000, 88), (0.8, 20_000, 88), (0.9, 3000, 82)]
)
def test_the_median_s_interval_holds_as_often_as_it_says(load: float, n: int, least: int) -> None:
    true = np.log(2) * load / (1 - load)
    rng = np.random.default_rng(13)
    found = [known(sojourns(n, load, rng)) for _ in range(100)]
    ends = [(each["p50_low"], each["p50_high"]) for each in found]
    held = sum(low <= true <= high for low, high in ends if low is not None and high is not None)
    assert least <= held <= 99


def test_a_median_of_few_values_has_no_interval_and_of_equal_ones_has_no_width() -> None:
    few = known(np.arange(999.0))
    assert (few["p50_low"], few["p50_high"]) == (None, None)
    alike = known(np.full(1000, 7.0))
    assert (alike["p50_low"], alike["p50_high"]) == (7.0, 7.0)


def test_a_median_that_drifts_is_known_less_well_than_one_of_mixed_values() -> None:
    values = np.random.default_rng(2).exponential(1, 4000)
    drifts = values * np.repeat([1.0, 2.0], 2000)
    mixed = np.random.default_rng(3).permutation(drifts)
    wide, narrow = ((each["p50_low"], each["p50_high"]) for each in (known(drifts), known(mixed)))
    assert None not in (*wide, *narrow)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]  # type: ignore[operator] # neither is None


def test_batches_that_follow_each_other_alike_are_worth_less_for_a_median() -> None:
    """Of a wave as long as the run, a batch says most of what the next one says."""
    rng = np.random.default_rng(4)
    independent = rng.exponential(1, 4000)
    wave = independent + 3 * np.sin(np.linspace(0, 2 * np.pi, 4000))
    for values, least, most in ((independent, 0.5, 1.0), (wave, 0.05, 0.15)):
        ordered = np.sort(values)
        share = _worth_of_median(values, ordered) / num_effective(values, ordered, tail=0.5)
        means = np.array([(part > ordered[2000]).mean() for part in np.split(values, 20)])
        apart = means - means.mean()
        r = min(max(float((apart[1:] * apart[:-1]).sum() / (apart**2).sum()) + 1 / 20, 0.0), 0.9)
        assert share == pytest.approx((1 - r) / (1 + r))
        assert least <= share <= most


def test_a_run_knows_tpot_in_its_document_and_tells_it_in_no_row() -> None:
    values = np.random.default_rng(1).exponential(100, 40)
    sent = [1_000_000 * row for row in range(40)]
    found = precision_of(answers(*[[at] for at in sent], send_time_us=sent), {**LATENCIES, "tpot_us": values})
    assert found["tpot_us"] == tail_precision(values)
    assert "TPOT" not in precision_rows(found)[0][1]


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


@pytest.mark.parametrize("number", [1, 40, 368, 5_000, 29_999])
def test_the_chances_of_so_many_beyond_the_percentile_are_the_binomial_distribution_s(number: int) -> None:
    found = _up_to(float(number))
    assert found is not None
    assert found == pytest.approx(binom.cdf(np.arange(len(found)), number, 0.01), abs=1e-9)
    assert found[-1] > 1 - 1e-9
    assert len(found) <= number + 1


def test_of_very_many_values_the_normal_distribution_gives_the_ranks() -> None:
    assert _up_to(30_000.0) is not None
    assert _up_to(30_001.0) is None
    wide = 1.96 * np.sqrt(40_000 * 0.01 * 0.99)
    assert _ranks(40_000.0) == pytest.approx((400 + wide + 1, 400 - wide))
    assert fewest_beyond(40_000) == pytest.approx(400 - wide)


def test_the_ranks_lie_where_the_chances_pass_two_and_a_half_percent() -> None:
    most, least = _ranks(5_000.0)
    assert least is not None
    at = np.arange(200)
    chances = binom.cdf(at, 5_000, 0.01)
    assert np.interp(least - 1, at, chances) == pytest.approx(0.025, rel=1e-6)
    assert np.interp(most - 1, at, chances) == pytest.approx(0.975, rel=1e-6)
    most, least = _ranks(367.0)
    assert least is None
    assert np.interp(most - 1, at, binom.cdf(at, 367, 0.01)) == pytest.approx(0.95, rel=1e-6)


@pytest.mark.parametrize(("worth", "value"), [(101.0, 99.5), (2.0, 50.0), (1.0, 50.0)])
def test_a_rank_from_the_top_is_one_of_as_many_as_the_values_are_worth(worth: float, value: float) -> None:
    assert _largest(np.arange(101.0), 1.5, worth=worth) == pytest.approx(value)


def test_how_many_requests_are_needed_grows_with_the_square_of_the_width() -> None:
    assert _needed(1_000, 1_000.0, p99=100.0, low=90.0, high=110.0) == 4_000
    assert _needed(1_000, 1_000.0, p99=100.0, low=99.0, high=101.0) == 40
    assert _needed(1_000, 1_000.0, p99=0.0, low=0.0, high=0.0) is None
    assert _needed(1_000, 1_000.0, p99=1e-9, low=1e-9, high=1e-9) == 1
    # without an upper end: the lower one by its own chance, and four values beyond the percentile at least
    assert (
        _needed(200, 100.0, p99=100.0, low=50.0, high=None) == 29_000
    )  # 200 * (0.5 * 1.96 / 1.645 / 0.05)^2
    assert _needed(200, 100.0, p99=100.0, low=100.0, high=None) == 800


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(0.0, 1), (1.0, 1), (9.2, 10), (10.0, 10), (99.0, 99), (100.0, 100), (101.0, 110), (12_345.0, 13_000)],
)
def test_a_number_that_is_asked_for_has_two_digits_and_is_no_smaller(number: float, rounded: int) -> None:
    assert _rounded_up(number) == rounded


def test_values_that_scatter_like_independent_ones_are_worth_their_number() -> None:
    """Each of twenty batches of 100 has one value beyond the percentile: their scatter is none."""
    values = np.tile(np.arange(100.0), 20)
    found = known(values)
    assert (found["n"], found["p99"], found["num_effective"]) == (2000, pytest.approx(98.01), 2000)
    # all of the tail in one batch, of 100 values of which 20 lie beyond
    at_once = np.concatenate([np.zeros(1900), np.ones(80), 2 + np.arange(20.0)])
    of_tail = _times_scattered(at_once, np.sort(at_once), 0.01)
    means, share = np.array([0.0] * 19 + [0.19]), 0.0095  # the percentile's own value is not beyond it
    assert of_tail == pytest.approx(means.var(ddof=1) / 20 * 2000 / (share * (1 - share)))
    of_wider = _times_scattered(at_once, np.sort(at_once), 0.1)
    means, share = np.array([0.0] * 19 + [1.0]), 0.05
    assert of_wider == pytest.approx(means.var(ddof=1) / 20 * 2000 / (share * (1 - share)))
    trust = 20 / of_tail / 20
    both = trust * of_tail + (1 - trust) * of_wider
    assert known(at_once)["num_effective"] == pytest.approx(2000 / (1 + (both - 1) * (2.093 / 1.96) ** 2))


def test_forty_values_are_the_fewest_and_equal_ones_are_known_exactly() -> None:
    found = known(np.full(40, 5.0))
    assert (found["n"], found["p99"], found["low"], found["num_for_5_percent"]) == (40, 5.0, 5.0, 400)


def test_the_interval_of_gaps_is_from_the_percentiles_of_batches() -> None:
    """Forty requests of 11 tokens each: the gaps of one batch of two are twice as long."""
    times = [
        [1_000_000 * row + 10_000 * (2 if row < 2 else 1) * index for index in range(11)] for row in range(40)
    ]
    found = precision_of(answers(*times, send_time_us=[1_000_000 * row for row in range(40)]), LATENCIES)[
        "itl_us"
    ]
    assert found is not None
    assert (found["n"], found["p99"], found["num_effective"]) == (400, 20_000, None)
    half = 2.093 * 10_000 * np.sqrt(19 / 20 / 19)
    assert found["high"] == pytest.approx(20_000 + half)
    assert found["low"] == pytest.approx(20_000 - half)
    assert found["num_for_5_percent"] == _rounded_up(40 * (half / 20_000 / 0.05) ** 2)
    assert precision_of(answers(*times[:39]), LATENCIES)["itl_us"] is None
    without = [each[:1] if row < 2 else each for row, each in enumerate(times)]  # a batch of no gaps
    sent = [1_000_000 * row for row in range(40)]
    assert precision_of(answers(*without, send_time_us=sent), LATENCIES)["itl_us"] is None


LATENCIES = {name: np.zeros(40) for name in ("ttft_us", "tpot_us", "e2e_us")}


def test_the_rows_say_what_it_takes_only_where_an_interval_is_wide() -> None:
    more = {"num_effective": None, "p90_low": None, "p90_high": None, "p50_low": None, "p50_high": None}
    narrow = TailPrecision(n=100, p99=100_000, low=95_000, high=105_000, num_for_5_percent=70, **more)  # type: ignore[typeddict-item] # the same keys
    wide = TailPrecision(n=100, p99=100_000, low=94_000, high=105_000, num_for_5_percent=1_200, **more)  # type: ignore[typeddict-item] # the same keys
    assert precision_rows({"ttft_us": narrow}) == [("p99 within", "TTFT 95 to 105 ms")]
    few = TailPrecision(**{**wide, "num_for_5_percent": 1_000})  # type: ignore[typeddict-item] # the same keys
    assert precision_rows({"ttft_us": narrow, "itl_us": few})[1] == ("", "for ±5 %: 1,000 requests")
    timed = precision_rows({"ttft_us": narrow, "itl_us": few}, requests_per_s=4.0)
    assert timed[1] == ("", "for ±5 %: 1,000 requests, 4.17 min at this load")
    assert precision_rows({"itl_us": wide})[1] == ("", "for ±5 %: 1,200 requests")
    advice = "for ±5 %: p99 takes more than 10 times these 100 requests"
    assert precision_rows({"ttft_us": narrow, "itl_us": wide})[1] == ("", advice)


def test_a_chance_of_just_two_and_a_half_percent_has_an_upper_end() -> None:
    """0.99^n is 2.5 % at n = 367.03: of 367 there is no upper end, of 368 it is nearly the largest value."""
    assert _ranks(367.0)[1] is None
    least = _ranks(368.0)[1]
    assert least is not None
    assert 1.0 <= least < 1.01


def test_values_that_scatter_less_than_independent_ones_are_worth_no_more_than_they_are() -> None:
    values = np.tile(np.arange(200.0), 20)
    assert _times_scattered(values, np.sort(values), 0.01) == pytest.approx(0.0)
    assert num_effective(values, np.sort(values)) == 4000


def test_the_percentile_of_gaps_is_the_ninety_ninth() -> None:
    """400 gaps of 1 to 400 ms in one request after another: the percentile lies between the 396th and the 397th."""
    times = [
        np.cumsum([0, *(1000 * (10 * row + index) for index in range(1, 11))]) + 10**8 * row
        for row in range(40)
    ]
    found = precision_of(answers(*times, send_time_us=[10**8 * row for row in range(40)]), LATENCIES)[
        "itl_us"
    ]
    assert found is not None
    assert found["p99"] == pytest.approx(1000 * (396 + 0.01))
