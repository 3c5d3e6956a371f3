"""Computing on a GPU whose clock falls meanwhile: the closed form beside the sum over small times."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Extended
from sim.latency.batch import StepBatch
from sim.latency.throttling import throttled_us
from tests.sim.step_batches import batch_of


def summed_us(
    compute_us: float, duty: float, kappa: float, u0: float, tau_us: float, parts: int = 4000
) -> float:
    """Return the same by small times: each computes at the clock that the share of recent time gives it."""
    piece = compute_us * (1 + kappa) / parts
    done = took = 0.0
    while done < compute_us:
        middle = 1 - (1 - duty) * math.exp(-piece / 2 / tau_us)
        rate = 1 / (1 + kappa * max(0.0, middle - u0))
        piece_here = min(piece, (compute_us - done) / rate)
        done += rate * piece_here
        took += piece_here
        duty = 1 - (1 - duty) * math.exp(-piece_here / tau_us)
        if piece_here < piece:
            break
    return took


@given(
    compute_us=st.floats(10, 500_000),
    duty=st.floats(0, 1),
    kappa=st.floats(0, 2),
    u0=st.floats(0, 1),
    tau_us=st.floats(1_000, 10_000_000),
)
def test_the_closed_form_is_the_sum_over_small_times(
    compute_us: float, duty: float, kappa: float, u0: float, tau_us: float
) -> None:
    expected = summed_us(compute_us, duty, kappa, u0, tau_us)
    assert throttled_us(compute_us, duty, kappa, u0, tau_us) == pytest.approx(expected, rel=2e-3)


def test_nothing_is_slower_below_the_threshold_and_all_of_it_far_above() -> None:
    assert throttled_us(20_000, 0.0, 0.7, 0.55, 34_000) == 20_000  # reaches 0.445
    assert throttled_us(50_000, 0.9, 0.0, 0.1, 34_000) == 50_000
    assert throttled_us(50_000, 0.9, 0.7, 1.0, 34_000) == 50_000
    assert throttled_us(0.0, 0.9, 0.7, 0.1, 34_000) == 0.0
    assert throttled_us(1_000, 0.5, 0.7, 0.1, 0.0) == 1_000
    assert throttled_us(10_000, 1.0, 0.7, 0.5, 34_000) == pytest.approx(10_000 * 1.35)
    assert throttled_us(0.9, 1.0, 0.7, 0.5, 34_000) == pytest.approx(0.9 * 1.35)
    assert throttled_us(10.0, 1.0, 0.7, 0.5, 0.9) == pytest.approx(10 * 1.35)
    slow = throttled_us(10_000, 0.8, 0.5, 0.2, 1e12)  # a long memory: as it is before the step
    assert slow == pytest.approx(10_000 * (1 + 0.5 * 0.6), rel=1e-6)


def test_a_step_of_many_tokens_costs_more_a_token_than_one_of_few() -> None:
    model = Extended(beta0=2000, beta1=20, beta4=0.001, floor=4000, kappa=0.65, u0=0.55, tau_s=0.034)
    plain = Extended(beta0=2000, beta1=20, beta4=0.001, floor=4000)
    batch: StepBatch = batch_of(
        [[(500, 0, False)], [(1000, 0, False)], [(4000, 0, False)], [(2000, 0, False)] * 2]
    )
    longer = model.durations_us(batch) / plain.durations_us(batch)
    assert longer[0] == longer[1] == 1
    assert longer[2] > 1.05
    assert longer[3] > 1.05
