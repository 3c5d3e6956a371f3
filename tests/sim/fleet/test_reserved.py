"""Reserved against burst: the cheapest number is what trying every number finds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import InvalidConfig
from sim.fleet.reserved import cheapest_reserved, cost_with, day_between


@settings(max_examples=60, deadline=None)
@given(needed=st.lists(st.integers(0, 30), min_size=24, max_size=24), burst=st.floats(0.3, 12))
def test_no_other_number_is_cheaper(needed: list[int], burst: float) -> None:
    best = cheapest_reserved(needed, reserved_price=1.0, burst_price=burst)
    every = [cost_with(each, needed, reserved_price=1.0, burst_price=burst).cost for each in range(32)]
    assert best.cost == pytest.approx(min(every))


def test_a_year_costs_what_it_says() -> None:
    """20 hours of 2 engines and 4 of 5; 4 < 24/2, so 2 are reserved and 12 engine hours a day are burst."""
    best = cheapest_reserved([2] * 20 + [5] * 4, reserved_price=1.0, burst_price=2.0)
    assert (best.reserved, best.burst_hours) == (2, 12)
    assert best.reserved_cost == 2 * 8766
    assert best.burst_cost == 12 * 2 * 365.25


def test_a_day_goes_from_trough_to_peak_and_back() -> None:
    day = day_between(200.0, 40.0)
    assert (len(day), max(day), day[14]) == (24, 200.0, 200.0)
    assert min(day) == pytest.approx(40)
    with pytest.raises(InvalidConfig, match="peak >= trough"):
        day_between(40.0, 200.0)


def test_of_numbers_that_cost_as_much_the_smallest_is_taken() -> None:
    """24 · 1 / 6 is 4 hours, and four hours need more than 2: a third engine would cost what it saves."""
    assert cheapest_reserved([2] * 20 + [3] * 4, reserved_price=1.0, burst_price=6.0).reserved == 2
    assert cheapest_reserved([2] * 19 + [3] * 5, reserved_price=1.0, burst_price=6.0).reserved == 3
    assert cheapest_reserved([0, 0, 1], reserved_price=0.1, burst_price=0.3).reserved == 0
    assert cheapest_reserved([0, 0, 1], reserved_price=0.1, burst_price=0.31).reserved == 1


def test_a_day_of_few_hours_costs_as_much_as_there_are() -> None:
    found = cost_with(2, [1, 2, 5, 4], reserved_price=0.5, burst_price=3.0)
    assert (found.reserved, found.burst_hours) == (2, 5)
    assert found.reserved_cost == 2 * 4 * 365.25 * 0.5
    assert found.burst_cost == 5 * 365.25 * 3.0
    assert found.cost == 1461.0 + 5478.75


@pytest.mark.parametrize("needed", [[], [3, -1]])
def test_hours_are_there_and_need_no_less_than_nothing(needed: list[int]) -> None:
    with pytest.raises(InvalidConfig, match="reserved: got no hours, or less than no engines"):
        cheapest_reserved(needed, reserved_price=1.0, burst_price=1.0)


@pytest.mark.parametrize(
    "prices", [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, -1.0), (float("inf"), 1.0), (1.0, float("inf"))]
)
def test_prices_are_more_than_nothing(prices: tuple[float, float]) -> None:
    with pytest.raises(InvalidConfig, match="reserved: got prices of"):
        cheapest_reserved([1], reserved_price=prices[0], burst_price=prices[1])


def test_the_hours_of_a_day_are_those_of_a_cosine() -> None:
    """120 in the middle and 80 to either side; a quarter of a day from the peak it is the middle."""
    day = day_between(200.0, 40.0, peak_hour=3)
    assert [day[hour] for hour in (3, 7, 9, 15, 21)] == pytest.approx([200, 160, 120, 40, 120])
    assert len(day) == 24
    assert day_between(0.5, 0.5) == pytest.approx([0.5] * 24)
    for peak, trough in ((1.0, 0.0), (1.0, -1.0), (float("inf"), 1.0), (1.0, 1.1)):
        with pytest.raises(InvalidConfig, match=r"diurnal: got .*peak >= trough > 0"):
            day_between(peak, trough)
