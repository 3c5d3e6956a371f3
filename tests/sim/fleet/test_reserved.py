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
