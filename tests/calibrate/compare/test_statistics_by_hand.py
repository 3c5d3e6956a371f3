"""The comparison's statistics against a pencil and plain loops: block lengths, saturation, kinds of requests, steps."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from calibrate.compare.engine_steps import EngineSteps, step_errors
from calibrate.compare.equivalence import equivalence
from calibrate.compare.metric_errors import Bootstrap, compare, correlation
from calibrate.compare.pair import PHASES, pair_sides
from calibrate.compare.phases import split
from calibrate.compare.samples import WeightedSample
from calibrate.compare.served import _observed_point, served_sides
from calibrate.compare.strata import strata_of
from replay import TwinConfig
from sim import Blackbox, EngineConfig
from tests.calibrate.compare.test_errors import two_sides
from tests.calibrate.sides import gaps_of, side
from traces.findings.saturation import saturation
from traces.statistics.bootstrap import MIN_REQUESTS, Estimate, Floats, block_length, finite, interval

# -- block lengths -------------------------------------------------------------------------------------------


def plain_block_length(series: Floats) -> int:
    """Politis & White (2004) and Patton (2009), lag by lag: circular blocks, a flat-top window."""
    x = [float(each) for each in series]
    n, mean = len(x), math.fsum(x) / len(x)

    def covariance(k: int) -> float:
        return math.fsum((x[i] - mean) * (x[i + k] - mean) for i in range(n - k)) / n

    variance = covariance(0)
    run = 5  # sqrt(log10 n) is less, whatever there is of requests
    last = min(math.ceil(math.sqrt(n)) + run, n - 1)
    small = [abs(covariance(k) / variance) < 2 * math.sqrt(math.log10(n) / n) for k in range(1, last + 1)]
    reach = next((m for m in range(last - run) if all(small[m : m + run])), max(last - run, 0))
    window = 2 * reach
    slope, density = 0.0, variance
    for k in range(1, min(window, n - 1) + 1):
        share = k / window
        weight = 1.0 if share <= 0.5 else 2 * (1 - share)
        slope += 2 * weight * k * covariance(k)
        density += 2 * weight * covariance(k)
    if density <= 0:
        return 1
    best = (2 * slope**2 / (4 / 3 * density**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(max(math.ceil(best), 1), math.ceil(min(3 * math.sqrt(n), n / 3))))


def series_of(n: int, phi: float, seed: int) -> Floats:
    noise, series = np.random.default_rng(seed).normal(size=n), np.zeros(n)
    for i in range(n):
        series[i] = phi * series[i - 1] + noise[i] if i else noise[i]
    return series


@pytest.mark.parametrize("phi", [-0.9, -0.4, 0.0, 0.3, 0.6, 0.9, 1.0])
def test_a_block_length_is_that_of_plain_loops(phi: float) -> None:
    """Lengths from 1 up to a third of the series; some where the window reaches over all that is looked at."""
    for n in (4, 5, 8, 12, 30, 61, 200):
        for seed in range(4):
            series = series_of(n, phi, seed)
            assert block_length(series) == plain_block_length(series), (n, seed)


def test_fewer_than_four_values_and_equal_ones_make_blocks_of_one() -> None:
    assert block_length(np.array([1.0, 2.0, 3.0])) == 1
    assert [block_length(np.array(each)) for each in ([], [5.0], [1.0, 2.0])] == [1, 1, 1]
    assert block_length(np.full(50, 7.0)) == 1
    assert block_length(np.arange(4.0)) == plain_block_length(np.arange(4.0))


def test_an_interval_ends_where_twentieths_of_the_replicates_are_outside() -> None:
    """Of 0 to 100, shuffled: 5 and 95, or by a level of a half 25 and 75. Half may be unknown, and no more."""
    steps = np.random.default_rng(1).permutation(101).astype(np.float64)

    def ends(replicates: Floats, **level: float) -> list[float | None]:
        found = interval(50.0, replicates, **level)
        return [found.value, found.low, found.high]

    half = np.append(np.full(101, np.nan), steps)
    assert ends(steps) == pytest.approx([50, 5, 95])
    assert ends(steps, level=0.5) == pytest.approx([50, 25, 75])
    assert ends(half) == pytest.approx([50, 5, 95])
    assert ends(np.append(half, np.nan)) == [50, None, None]
    assert interval(math.inf, steps) == Estimate(value=None)
    assert interval(1.0, np.zeros(0)) == Estimate(value=1.0)
    assert [finite(each) for each in (1.5, math.nan, -math.inf)] == [1.5, None, None]


# -- saturation ----------------------------------------------------------------------------------------------


def seconds(values: list[float]) -> Floats:
    return np.array(values) * 1e6


def test_a_queue_that_grows_counted_by_hand() -> None:
    """Twenty, one a second, the i-th there for 1 + i: from 3 s, when it has filled, to 19 s 17 come and 9 go."""
    order = np.random.default_rng(1).permutation(20)
    found = saturation(seconds(list(range(20)))[order], seconds([1.0 + i for i in range(20)])[order])
    assert (found.state, found.n, found.backlog) == ("saturated", 20, 10)
    assert found.unserved_frac.value == pytest.approx(8 / 17)
    assert found.slope_per_s.value == pytest.approx(8 / 16)
    assert found.trend == pytest.approx(15.5 / 5.5 - 1)
    assert found.index == pytest.approx(8 / 17)
    assert found.floor == pytest.approx(1 / math.sqrt(20))
    said = "47 % of what arrived was not served in time, and the later half of the requests took 182 % longer"
    assert found.reason == said


def test_a_queue_that_stands_counted_by_hand() -> None:
    found = saturation(seconds(list(range(20))), seconds([2.0] * 20))
    assert (found.state, found.backlog, found.trend, found.index) == ("stable", 2, 0.0, 0.0)
    assert (found.unserved_frac.value, found.slope_per_s.value) == (0.0, 0.0)
    assert found.reason == "as much was served as arrived"


def test_nineteen_are_too_few_to_show_a_trend() -> None:
    found = saturation(seconds(list(range(19))), seconds([1.0 + i for i in range(19)]))
    assert (found.state, found.n, found.backlog, found.index) == ("stable", 19, None, None)
    assert found.reason == "19 requests, too few to show a trend"


def test_a_trend_without_a_backlog_and_a_backlog_without_a_trend_are_no_overload() -> None:
    """The lesser of both counts: later ones take longer, and yet as many go as come; and the other way round."""
    longer = seconds([1.0 if i < 20 else 2.0 for i in range(40)])
    found = saturation(seconds(list(range(40))), longer)
    assert found.trend == pytest.approx(1.0)
    assert found.state == "stable"
    assert found.index is not None
    assert found.index < 1 / math.sqrt(40)


@pytest.mark.parametrize(
    ("gap_s", "state"),
    [
        (0.06, "saturated"),  # nine tenths are answered within 17.1 times that, which is more than the second
        (0.05, "unclear"),
    ],
)
def test_a_burst_is_a_queue_where_it_is_answered_more_slowly_than_it_came(gap_s: float, state: str) -> None:
    """Twenty within 0.95 s, all before the first answer at 2 s; from then on one answer a gap."""
    arrival = np.arange(20) * 0.05
    end = 2 + np.arange(20) * gap_s
    found = saturation(seconds(arrival.tolist()), seconds((end - arrival).tolist()))
    assert (found.state, found.backlog, found.index) == (state, 20, 1.0)
    assert (
        found.reason
        == "almost all 20 requests were sent at once: 20 were in flight when the last one was sent"
    )


# -- ties, scale, bases --------------------------------------------------------------------------------------


def test_equal_gaps_are_one_point_of_a_distribution() -> None:
    gaps = gaps_of([10.0] * 300, [20.0] * 300)
    sample = WeightedSample.of_gaps(gaps, num_requests=2)
    assert sample.bin_values is not None
    assert sample.bin_values.tolist() == [10.0, 20.0]


def test_correlation_keeps_its_digits_far_from_zero() -> None:
    """Times of an hour in us that differ by some us: R to six digits."""
    generator = np.random.default_rng(4)
    x = generator.normal(size=200)
    y = x + generator.normal(size=200)
    far = (3.6e9 + x, 3.6e9 + y)
    found = correlation(far, np.ones((1, 200), np.float32))[0]
    assert found == pytest.approx(np.corrcoef(x, y)[0, 1], rel=1e-5)


def test_a_twin_without_spread_is_equivalent_up_to_the_margin() -> None:
    """Twice as slow in every request: the ratio is 2 in every resample, and a margin of 1 allows it."""
    found = compare(two_sides(40, scale=2.0), bootstrap=Bootstrap(replicates=20))["ttft_us"]
    found = replace(found, log_ratio_sd=0.0, rel_error={**found.rel_error, "mean": Estimate(value=1.0)})
    assert (equivalence(found, 1.0).p_value, equivalence(found, 1.0).equivalent) == (0.0, True)
    assert (equivalence(found, 0.99).p_value, equivalence(found, 0.99).equivalent) == (1.0, False)
    gone = replace(found, rel_error={**found.rel_error, "mean": Estimate(value=-1.0)})
    assert (equivalence(gone, 1.0).ratio, equivalence(gone, 1.0).equivalent) == (0.0, None)
    spread = replace(found, log_ratio_sd=0.1, rel_error={**found.rel_error, "mean": Estimate(value=0.0)})
    room = math.log(1.2) / 0.1
    assert equivalence(spread, 0.2).p_value == pytest.approx(0.5 * math.erfc(room / math.sqrt(2)))


# -- kinds of requests ---------------------------------------------------------------------------------------


def sides(n: int, **columns: Any) -> Any:  # noqa: ANN401 - columns of any type
    ids = [str(i) for i in range(n)]
    return pair_sides(side(ids, **columns), side(ids, ttft=[110.0] * n, **columns))


def labelled(n: int, by: str, **columns: Any) -> list[tuple[str, int]]:  # noqa: ANN401
    found = strata_of(sides(n, **columns), bootstrap=Bootstrap(replicates=20))
    return [(each.label, each.n) for each in found if each.by == by]


def test_thirds_go_from_their_least_value_to_their_most() -> None:
    prompts = [float(10 * i) for i in range(30)]
    assert labelled(30, "prompt_tokens", prompt_tokens=prompts) == [
        ("0 to 90", 10),
        ("100 to 190", 10),
        ("200 to 290", 10),
    ]
    assert labelled(30, "output_tokens", prompt_tokens=prompts) == []  # all alike
    assert labelled(30, "window_s", arrival_us=[1e12 * (50 + i) for i in range(30)])[0] == (
        "0 to 9,000,000",
        10,
    )


def test_three_times_eight_requests_are_enough_for_kinds() -> None:
    assert MIN_REQUESTS == 8
    assert len(labelled(24, "prompt_tokens", prompt_tokens=[float(i) for i in range(24)])) == 3
    assert labelled(23, "prompt_tokens", prompt_tokens=[float(i) for i in range(23)]) == []


def test_a_kind_by_a_word_needs_eight_requests_and_another_word() -> None:
    words = ["b"] * 8 + ["a"] * 15 + ["c"] * 7
    assert labelled(30, "slo_class", slo_class=words) == [("a", 15), ("b", 8)]
    assert labelled(30, "slo_class", slo_class=["a"] * 30) == []
    cached = [0.0] * 10 + [5.0] * 10 + [math.nan] * 10
    assert labelled(30, "cached", cached_tokens=cached) == [
        ("cached in part", 10),
        ("not stated", 10),
        ("nothing cached", 10),
    ]


def test_what_was_observed_at_a_rate_leaves_the_first_tenth_to_come_out() -> None:
    """Twenty, one a second, in another order than they came; the two that came first took ten times as long."""
    order = np.random.default_rng(2).permutation(20)
    ttft = np.where(np.arange(20) < 2, 10_000.0, 1000.0 + np.arange(20))[order]
    ids = [str(i) for i in range(20)]
    pairs = pair_sides(*[side(ids, ttft=ttft.tolist(), arrival_us=1e6 * order)] * 2)
    point = _observed_point(pairs, drawn_per_s=None)
    assert point is not None
    assert point.rate_per_s == pytest.approx(1.0)
    assert point.latencies_us["ttft"][0] == pytest.approx(np.median(1000.0 + np.arange(2, 20)))
    at_once = pair_sides(*[side(ids, arrival_us=[5.0] * 20)] * 2)
    assert _observed_point(at_once, drawn_per_s=None) is None


def test_what_a_run_s_requests_come_to_on_both_sides() -> None:
    """Three from 0 to 2 s: the server's last ends after 3 s, the twin's, sent later, after 5 from its own first."""
    ids = ["a", "b", "c"]
    times: dict[str, Any] = {"arrival_us": [0.0, 1e6, 2e6], "e2e_us": [1e6, 0.5e6, 1e6], "output_tokens": 5}
    later: dict[str, Any] = {"arrival_us": [7e6, 8e6, 9e6], "e2e_us": [5e6, 0.5e6, 1e6], "output_tokens": 4}
    observed, simulated = served_sides(
        pair_sides(side(ids, **times), side(ids, ttft=[5.0, 6.0, 9.0], **later))
    )
    assert observed.requests_per_s == pytest.approx(1.0)
    assert observed.output_tokens_per_s == pytest.approx(5.0)
    assert simulated.requests_per_s == pytest.approx(3 / 5)
    assert simulated.output_tokens_per_s == pytest.approx(12 / 5)
    assert observed.latencies_us["e2e_us"] == pytest.approx((1e6, 1e6))
    assert simulated.latencies_us["ttft_us"] == pytest.approx((6.0, 8.94))
    short: dict[str, Any] = {"arrival_us": [0.0, 1e5, 2e5], "e2e_us": [1e5, 1e5, 1e5]}
    assert served_sides(pair_sides(side(ids, **short), side(ids, **short)))[
        0
    ].requests_per_s == pytest.approx(10)


def test_phases_are_the_server_s_of_half_the_requests_or_divided_as_the_simulator_does() -> None:
    """TTFT of 100 before an end at 150 and 170. The simulator has 0, 0, 0 of the first and 10, 20, 20 of the second."""
    unknown = pd.DataFrame(
        {name: [math.nan] * 2 for name in PHASES} | {"ttft_us": [100.0] * 2, "e2e_us": [150.0, 170.0]}
    )
    simulated = pd.DataFrame(
        dict(zip(PHASES, ([0.0, 10.0], [0.0, 20.0], [0.0, 20.0], [5.0, 6.0]), strict=True))
    )
    pairs: Any = SimpleNamespace(observed=unknown, simulated=simulated)
    found = split(pairs)
    assert found is not None
    assert found[0] == "simulator"
    assert found[1].tolist() == [[100, 0, 0, 50], [20, 40, 40, 70]]
    assert found[2].tolist() == [[0, 0, 0, 5], [10, 20, 20, 6]]
    assert found[3].tolist() == [0, 1]
    half: Any = SimpleNamespace(
        observed=unknown.assign(**{name: [math.nan, 7.0] for name in PHASES}), simulated=simulated
    )
    found = split(half)
    assert found is not None
    assert (found[0], found[1].tolist(), found[3].tolist()) == ("server", [[7, 7, 7, 7]], [1])
    assert split(SimpleNamespace(observed=unknown, simulated=simulated * math.nan)) is None  # type: ignore[arg-type]


# -- steps ---------------------------------------------------------------------------------------------------


def test_errors_of_steps_by_hand() -> None:
    """Of 100 + 1 a prefill and 10 a decode token: 110, 130, 190 for 100, 130, 200; what took no time is left out."""
    config = TwinConfig(engine=EngineConfig(), latency=Blackbox(beta0=100, beta1=1, beta2=10))
    logged = EngineSteps(
        prefill_tokens=np.array([0.0, 20.0, 9.0, 0.0]),
        decode_tokens=np.array([1.0, 1.0, 9.0, 9.0]),
        duration_us=np.array([100.0, 130.0, 0.0, 200.0]),
    )
    found = step_errors(logged, config, simulated=[])
    assert found is not None
    assert found.predicted_us.tolist() == [110, 130, 190]
    assert found.mape == pytest.approx((0.1 + 0 + 0.05) / 3)
    assert found.bias == pytest.approx((0.1 + 0 - 0.05) / 3)
    assert found.time_error == pytest.approx(0.0)
    assert found.pearson_r == pytest.approx(np.corrcoef([110, 130, 190], [100, 130, 200])[0, 1])
    alike = step_errors(replace(logged, duration_us=np.full(4, 50.0)), config, simulated=[])
    assert alike is not None
    assert alike.pearson_r is None
    two = step_errors(
        EngineSteps(
            prefill_tokens=np.zeros(2), decode_tokens=np.array([1.0, 2.0]), duration_us=np.array([1.0, 2.0])
        ),
        config,
        simulated=[],
    )
    assert two is not None
    assert two.pearson_r is None
    assert step_errors(replace(logged, duration_us=np.zeros(4)), config, simulated=[]) is None
