"""A rate over time decides when the i-th arrival comes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.examples import examples
from traces.workload.arrivals import RateProfile, rate_profiles
from traces.workload.lengths import Constant, Separate
from traces.workload.model import ActiveWindow, Client

LENGTHS = Separate(prompt=Constant(value=1), output=Constant(value=1))
S = 1_000_000


def client(name: str, *windows: ActiveWindow, fraction: float = 1.0) -> Client:
    return Client(id=name, lengths=LENGTHS, windows=windows, rate_fraction=fraction)


def rate_at(profile: RateProfile, second: float) -> float:
    at = np.searchsorted(profile.edges_us, second * S, side="right") - 1
    return float(profile.per_us[at] * S) if 0 <= at < profile.per_us.size else 0.0


def test_a_constant_rate_scales() -> None:
    (profile,) = rate_profiles((client("a"),), 4.0)
    assert profile.times_us(np.array([0.5, 1, 2])) == pytest.approx([125_000, 250_000, 500_000])
    assert profile.expected(3 * S) == pytest.approx(12)


def test_fractions_share_the_rate_whatever_their_sum() -> None:
    profiles = rate_profiles((client("a", fraction=3), client("b", fraction=1)), 8.0)
    assert [rate_at(profile, 5) for profile in profiles] == pytest.approx([6, 2])


def test_those_active_share_the_whole_rate() -> None:
    late = client("late", ActiveWindow(start_us=10 * S, end_us=20 * S), fraction=3)
    always, later = rate_profiles((client("always"), late), 8.0)
    assert [rate_at(always, t) for t in (5, 15, 25)] == pytest.approx([8, 2, 8])
    assert [rate_at(later, t) for t in (5, 15, 25)] == pytest.approx([0, 6, 0])


def test_without_a_rate_the_windows_say_theirs() -> None:
    windows = (
        ActiveWindow(start_us=0, end_us=S, trace_rate_per_s=2),
        ActiveWindow(start_us=S, end_us=2 * S, trace_rate_per_s=5),
    )
    (profile,) = rate_profiles((client("a", *windows),), None)
    assert [rate_at(profile, t) for t in (0.5, 1.5, 2.5)] == pytest.approx([2, 5, 0])


def test_a_multiplier_scales_what_the_share_gives() -> None:
    half = ActiveWindow(start_us=0, end_us=S, rate_multiplier=0.5)
    (profile,) = rate_profiles((client("a", half),), 8.0)
    assert rate_at(profile, 0.5) == pytest.approx(4)


def test_an_arrival_due_at_an_edge_comes_at_the_edge_not_after_the_pause() -> None:
    pause = (ActiveWindow(start_us=0, end_us=S), ActiveWindow(start_us=5 * S, end_us=6 * S))
    (profile,) = rate_profiles((client("a", *pause),), 2.0)
    assert profile.times_us(np.array([1, 2, 3, 4, 5])).tolist() == [0.5 * S, S, 5.5 * S, 6 * S, math.inf]


def test_an_expected_count_turned_into_a_time_is_expected_again() -> None:
    ramp = tuple(
        ActiveWindow(start_us=i * S, end_us=(i + 1) * S, rate_multiplier=(i + 1) / 10) for i in range(10)
    )
    (profile,) = rate_profiles((client("a", *ramp),), 100.0)
    total = profile.expected(math.inf)
    assert total == pytest.approx(550)

    @examples(100)
    @given(st.floats(min_value=1e-6, max_value=float(total) - 1e-6))
    def check(count: float) -> None:
        time = float(profile.times_us(np.array([count]))[0])
        assert profile.expected(time) == pytest.approx(count, rel=1e-9)

    check()


def test_poisson_arrivals_under_a_changing_rate_are_poisson_with_that_rate() -> None:
    """Given their number, the arrival times are independent draws from the normalized rate."""
    steps = (
        ActiveWindow(start_us=0, end_us=S, rate_multiplier=0.2),
        ActiveWindow(start_us=2 * S, end_us=3 * S, rate_multiplier=1.0),
    )
    (profile,) = rate_profiles((client("a", *steps),), 5000.0)
    rng = np.random.default_rng(1)
    times = profile.times_us(np.cumsum(rng.exponential(size=20_000)))
    times = times[times < math.inf]
    total = profile.expected(math.inf)
    assert stats.kstest(times, lambda x: np.array([profile.expected(t) for t in x]) / total).pvalue > 1e-3
    assert abs(times.size - total) < 4 * math.sqrt(total)


def test_a_gap_of_nothing_comes_when_the_rate_begins() -> None:
    late = client("late", ActiveWindow(start_us=3 * S, end_us=4 * S))
    (profile,) = rate_profiles((late,), 2.0)
    assert profile.times_us(np.array([0.0, 0.0, 1.0])).tolist() == [3 * S, 3 * S, 3.5 * S]


def test_no_rate_is_never() -> None:
    (profile,) = rate_profiles((client("a", ActiveWindow(start_us=0, end_us=S, trace_rate_per_s=0.0)),), None)
    assert profile.times_us(np.array([0.0, 1.0])).tolist() == [math.inf, math.inf]
    assert profile.expected(math.inf) == 0
