"""The search for the highest rate, step by step, and what a rate comes to, against servers that are a formula."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replay.capacity.capacity import _crossing
from replay.capacity.capacity import _curve as around
from replay.search.evaluation import (
    FAILED,
    GROWN,
    NOTHING_CAME,
    THROUGHPUT,
    TOO_SHORT,
    Evaluation,
    MeasuredRequests,
    _curve,
    _no_gaps,
    _pooled,
    _token_rate,
)
from replay.search.highest import (
    DOUBLE,
    LASTING,
    MORE,
    NEAR_STEP,
    HighestRate,
    _bracket,
    _narrowed,
    bisect,
    highest_among,
    requests_to_last,
)
from sim import Status
from tests.replay.capacity.test_capacity_by_hand import LIMITS, TPOT, TTFT, Known, evaluation
from tests.replay.verdict.test_verdict_by_hand import outcomes_of

# -- the search ----------------------------------------------------------------------------------------------


class Asked:
    """It holds up to a rate; which rates were asked for is kept."""

    def __init__(self, most: float) -> None:
        self.most, self.rates = most, []  # type: float, list[float]

    def __call__(self, rate: float) -> bool:
        self.rates.append(rate)
        return rate <= self.most


def test_steps_square_until_they_double() -> None:
    asked = Asked(10.0)
    assert _bracket(asked, 6.0, step=1.5) == pytest.approx((9.0, 18.0))
    assert asked.rates == pytest.approx([6, 9, 18])  # 1.5, then 2: its square is more
    asked = Asked(1.3)
    step = NEAR_STEP
    low, high = _bracket(asked, 1.0, step=step) or (0, 0)
    assert asked.rates == pytest.approx([1, step, step**3, step**7])
    assert (low, high) == pytest.approx((step**3, step**7))


def test_downwards_it_ends_at_a_rate_that_is_known_to_hold() -> None:
    asked = Asked(1.0)
    assert _bracket(asked, 8.0, step=DOUBLE) == (1.0, 2.0)
    assert asked.rates == [8, 4, 2, 1]
    asked = Asked(1.0)
    assert _bracket(asked, 8.0, step=DOUBLE, least=2.0) == (2.0, 4.0)  # 2 is not asked for again
    assert asked.rates == [8, 4]
    assert _bracket(Asked(0.0), 1.0, step=DOUBLE) is None
    assert _bracket(Asked(math.inf), 1.0, step=DOUBLE) is None
    far = Asked(2.0**39.5)
    assert _bracket(far, 1.0, step=DOUBLE) == (2.0**39, 2.0**40)
    assert _bracket(Asked(2.0**40), 1.0, step=DOUBLE) is None


def test_bisection_halves_orders_of_magnitude_first() -> None:
    asked = Asked(10.0)
    low, high = bisect(asked, 1.0, 64.0, tolerance=0.5)
    assert asked.rates == [8.0, math.sqrt(8 * 64), (8 + math.sqrt(8 * 64)) / 2]
    assert (low, high) == (8.0, asked.rates[-1])
    asked = Asked(10.0)
    assert bisect(asked, 4.0, 16.0, tolerance=0.5) == (10.0, 16.0)  # four times is not far apart
    assert asked.rates == [10.0]
    asked = Asked(10.0)
    assert bisect(asked, 8.0, 16.0, tolerance=0.5) == (8.0, 16.0)  # as near as the tolerance
    assert asked.rates == []


def rates_of(
    known: Known, low: float, high: float, *, tolerance: float
) -> tuple[tuple[float, float], list[float]]:
    """Return what ``_narrowed`` finds, and the rates that it simulates beside the two."""
    for rate in (low, high):
        known.at(rate)
    found = _narrowed(known, low, high, tolerance=tolerance)  # type: ignore[arg-type] # looks and walks like one
    return found, [rate for rate in known.seen if rate not in (low, high)]


def test_where_latencies_are_a_power_of_the_rate_two_rates_find_where_it_passes_the_limit() -> None:
    """The line leads to 100: aimed at a third of the tolerance below it, and then as far above that as is left."""
    (low, high), rates = rates_of(Known([], [1.0], capacity=100.0), 80.0, 120.0, tolerance=0.03)
    assert rates == pytest.approx([99.0, 99.0 * 1.027])
    assert (low, high) == pytest.approx((99.0, 99.0 * 1.027))


def test_rates_further_apart_than_twice_are_bisected() -> None:
    _, rates = rates_of(Known([], [1.0], capacity=100.0), 50.0, 120.0, tolerance=0.4)
    assert rates == [85.0]
    _, rates = rates_of(Known([], [1.0], capacity=100.0), 60.0, 120.0, tolerance=0.3)
    assert rates[0] == pytest.approx(90.0)  # the line leads to 100, a tenth off: 100 · (1 - 0.3 / 3)


def test_rates_as_near_as_the_tolerance_are_what_is_found() -> None:
    found, rates = rates_of(Known([], [1.0], capacity=100.0), 96.0, 120.0, tolerance=0.2)
    assert (found, rates) == ((96.0, 120.0), [])


@pytest.mark.parametrize(
    ("capacity", "low", "ends"),
    [
        (10.5, 10.0, (10.0, 11.0)),  # as before
        (9.5, 10.0, (9.0, 10.0)),  # all draws together break where fewer did not
        (8.5, 10.0, (8.0, 9.0)),
        (11.5, 10.0, (11.0, 12.0)),
    ],
)
def test_with_more_draws_the_rates_that_were_looked_at_come_first(
    capacity: float, low: float, ends: tuple[float, float]
) -> None:
    known = Known([], [1.0], capacity=capacity)
    near = found_at(low, None, evaluation(0.01, 1000))
    found = highest_among(known, [12.0, 8.0, 9.0, 11.0, 10.0, 0.001], near=near)  # type: ignore[arg-type]
    assert found.low is not None
    assert found.broken is not None
    assert ends[0] <= found.low <= capacity < found.broken.rate_per_s <= ends[1]
    assert found.broken.rate_per_s <= found.low * 1.0051
    assert {rate for rate in known.seen if rate != round(rate)} == {
        rate for rate in known.seen if ends[0] < rate < ends[1]
    }


def test_where_all_the_rates_that_were_looked_at_hold_or_break_it_is_searched_anew() -> None:
    near = found_at(10.0, None, evaluation(0.01, 1000))
    for capacity in (20.0, 5.0):
        for rates in ([9.0, 10.0, 11.0], [9.0, 11.0]):  # or none of them is the one that held
            known = Known([], [1.0], capacity=capacity)
            found = highest_among(known, rates, near=near)  # type: ignore[arg-type]
            assert found.low == pytest.approx(capacity, rel=0.006)


def test_where_nothing_is_below_the_limit_the_rate_that_holds_is_the_crossing() -> None:
    seen: Any = SimpleNamespace(seen={rate: evaluation(rate, 1) for rate in (10, 20)})
    assert _crossing(seen, lambda each: 0.0 if each.rate_per_s < 15 else 2.0) == 10


def test_the_curve_has_rates_around_the_capacity_and_those_near_it_that_were_looked_at() -> None:
    """9.05 and 9.29 stand for 9, less than 0.3 away, 10.71 for 11; 8.79 and 11.21 are not within 1.2 of it."""
    known: Any = Known([8.79, 9.05, 9.29, 10.0, 10.71, 11.21, 50.0], [1.0], capacity=10.0)
    curve = around(known, known, 10.0)
    assert [each.rate_per_s for each in curve] == [2, 4, 6, 7, 8, 9.05, 9.29, 10, 10.71, 12]


# -- what a rate comes to ------------------------------------------------------------------------------------


def test_a_rate_is_undecided_where_nothing_is_broken_and_it_is_too_short() -> None:
    short = replace(evaluation(10, 50_000), under_way_frac=0.21)
    assert short.is_too_short
    assert short.is_undecided(LIMITS)
    assert not short.meets(LIMITS)
    assert short.worst(LIMITS) == TOO_SHORT
    assert not replace(short, under_way_frac=0.2).is_too_short
    broken = replace(evaluation(10, 150_000), under_way_frac=0.21)  # TTFT is, TPOT is not
    assert not broken.is_undecided(LIMITS)
    assert broken.worst(LIMITS) == TTFT
    at_limit = evaluation(10, 100_000)
    assert at_limit.meets(LIMITS)
    assert replace(at_limit, under_way_frac=0.21).is_undecided(LIMITS)
    assert not evaluation(10, 100_001).meets(LIMITS)
    behind = replace(evaluation(10, 50_000, grown=1.1 * GROWN), under_way_frac=0.21)
    assert not behind.is_too_short


def test_the_limits_that_a_rate_is_over() -> None:
    whole = evaluation(10, 50_000)
    assert whole.ratios(LIMITS) == pytest.approx({TTFT: 0.5, TPOT: 0.1})
    assert replace(whole, failed_frac=0.01).ratios(LIMITS).get(FAILED, 0.0) <= 1
    assert replace(whole, failed_frac=0.5).ratios(LIMITS)[FAILED] > 1
    assert evaluation(10, 50_000, grown=0.3).ratios(LIMITS)[THROUGHPUT] == pytest.approx(1.3)
    assert evaluation(10, math.nan).ratios(LIMITS)[TTFT] == math.inf
    assert evaluation(10, 300_000).worst_latency(LIMITS) == pytest.approx(3)
    parts = evaluation(10, 50_000, parts=[20_000, 250_000])
    assert [parts.worst_of_part(part, LIMITS) for part in (0, 1)] == pytest.approx([0.2, 2.5])
    assert whole.worst([]) == THROUGHPUT
    assert replace(whole, waiting_frac=0.11).has_queue
    assert not replace(whole, waiting_frac=0.1).has_queue
    assert replace(whole, waiting_frac=0.11).is_behind


def test_growth_that_a_new_server_would_show_is_no_being_behind() -> None:
    """After nine generations a load of 1 piles up a tenth; a fifth more than that is chance."""
    early = replace(evaluation(10, 50_000), generations=9)
    assert not replace(early, growths=(0.119,)).is_behind
    assert replace(early, growths=(0.121,)).is_behind


def found_at(low: float | None, broken: Evaluation | None, idle: Evaluation) -> HighestRate:
    return HighestRate(low=low, broken=broken, idle=idle)


def with_e2e(each: Evaluation, median_us: float) -> Evaluation:
    return replace(each, curve_us={**each.curve_us, "e2e": (median_us, 9 * median_us)})


def test_a_run_lasts_fifty_stays_of_the_busy_server_or_of_the_idle_one_where_only_the_load_ends_it() -> None:
    """At 12/s: stays of 2.01 s busy, 0.51 s idle; rounded up to hundreds."""
    known = Known([], [1.0], capacity=10.0)
    known.loads = [[0] * 700]  # type: ignore[list-item] # a load is as long as its requests
    known.seen[12.0] = with_e2e(evaluation(12, 90_000), 2.01e6)
    idle = with_e2e(evaluation(1, 1000), 0.51e6)
    latency, load = evaluation(13, 110_000), evaluation(13, 50_000, grown=0.5)
    assert (LASTING, MORE) == (50, 4)
    assert requests_to_last(known, found_at(12.0, latency, idle)) == 1300  # type: ignore[arg-type] # 1206
    assert requests_to_last(known, found_at(12.0, load, idle)) == 400  # type: ignore[arg-type] # 306
    assert requests_to_last(known, found_at(12.0, None, idle)) == 400  # type: ignore[arg-type]
    short = replace(latency, under_way_frac=0.9)
    assert requests_to_last(known, found_at(12.0, short, idle)) == 2800  # type: ignore[arg-type] # four times
    unknown = with_e2e(idle, math.nan)
    assert requests_to_last(known, found_at(12.0, load, unknown)) == 0  # type: ignore[arg-type]
    undecided = replace(idle, under_way_frac=0.9)
    assert requests_to_last(known, found_at(None, None, undecided)) == 2800  # type: ignore[arg-type]
    assert requests_to_last(known, found_at(None, None, idle)) == 0  # type: ignore[arg-type]


def measured(ttft: list[float], *, failed: float, preempted: int) -> MeasuredRequests:
    return MeasuredRequests(
        latencies_us={
            name: np.array(ttft) * factor for name, factor in (("ttft", 1), ("tpot", 2), ("e2e", 3))
        },
        gaps=_no_gaps,
        failed_frac=failed,
        output_tokens_per_s=100.0 * (1 + preempted),
        num_preemptions=preempted,
        growth=NOTHING_CAME,
    )


def test_runs_are_pooled_and_cut_into_stretches() -> None:
    runs = [measured([1, 2], failed=0.5, preempted=3), measured([3], failed=0.0, preempted=4)]
    whole = _pooled(runs)
    assert {name: values.tolist() for name, values in whole.latencies_us.items()} == {
        "ttft": [1, 2, 3],
        "tpot": [2, 4, 6],
        "e2e": [3, 6, 9],
    }
    assert (whole.failed_frac, whole.output_tokens_per_s, whole.num_preemptions) == (0.25, 450.0, 7)
    assert _pooled(runs[:1]) is runs[0]
    stretches = measured([1, 2, 3, 4, 5], failed=0, preempted=0).stretches(2)
    assert [each.latencies_us["ttft"].tolist() for each in stretches] == [[1, 2, 3], [4, 5]]
    assert [each.latencies_us["itl"].tolist() for each in stretches] == [[2, 4, 6], [8, 10]]


def test_the_median_and_the_99th_percentile_of_what_is_known() -> None:
    assert _curve(np.array([math.nan, *range(101)])) == pytest.approx((50, 99))
    assert np.isnan(_curve(np.array([math.nan]))).all()


def test_tokens_per_second_from_the_first_arrival_to_the_last_answer() -> None:
    outcomes = outcomes_of([0, 500_000], [0, 0], [1_000_000, 2_000_000], tokens=30)
    assert _token_rate(outcomes) == 30.0
    assert _token_rate(outcomes_of([0], [-1], [-1], status=[Status.REJECTED])) == 0.0
