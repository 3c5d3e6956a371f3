"""The gate's arithmetic at its ends: how far a ratio is from 1, what an interval allows, when there is a warning."""

from __future__ import annotations

import math

import pytest

from calibrate.compare.bootstrap import Estimate
from calibrate.gate.checks import Limit, check, ratio_distance, reach


@pytest.mark.parametrize(
    ("error", "distance"),
    [
        (None, None),
        (0.0, 0.0),
        (0.25, 0.25),
        (-0.2, -0.25),
        (-0.5, -1.0),
        (-1.0, -math.inf),
        (-1.5, -math.inf),
    ],
)
def test_a_fifth_less_is_as_far_as_a_quarter_more(error: float | None, distance: float | None) -> None:
    found = ratio_distance(Estimate(value=error, low=error, high=error))
    for each in (found.value, found.low, found.high):
        assert each == (None if distance is None else pytest.approx(distance))


@pytest.mark.parametrize(
    ("low", "high", "sizes"),
    [
        (-0.3, 0.1, (0.0, 0.3)),
        (-0.3, 0.0, (0.0, 0.3)),
        (0.0, 0.2, (0.0, 0.2)),
        (0.1, 0.2, (0.1, 0.2)),
        (-0.3, -0.1, (0.1, 0.3)),
        (None, 0.1, None),
        (0.1, None, None),
    ],
)
def test_the_sizes_of_an_error_that_an_interval_allows(
    low: float | None, high: float | None, sizes: tuple[float, float] | None
) -> None:
    assert reach(Estimate(value=0.0, low=low, high=high)) == sizes


@pytest.mark.parametrize(
    ("value", "is_warned"), [(0.1, False), (-0.1, False), (0.1001, True), (-0.1001, True), (None, False)]
)
def test_a_warning_is_for_what_is_beyond_it(value: float | None, is_warned: bool) -> None:
    limit = Limit(metric="ttft_us", statistic="p50", warn=0.1, fail=0.5)
    estimate = Estimate(value=value, low=value, high=value)
    found = check(limit, estimate, n=100, least=30)
    assert ("above the warning at 10" in found.reason) is is_warned
