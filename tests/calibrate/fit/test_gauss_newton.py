"""Gauss-Newton steps on slopes that groups share: against slopes by hand, a full fit, and the bottom of a valley."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit.gauss_newton import (
    GROUP,
    GaussNewtonEnd,
    gauss_newton,
    grouped_slopes,
    groups_of,
    steps_without,
    told_apart,
)
from calibrate.fit.objective.many_runs import loss_around
from calibrate.fit.objective.simulated_trace import SimulatedTrace
from calibrate.fit.pipeline import _is_within
from calibrate.fit.refinement import refine, restarted
from calibrate.fit.response_surface import normal_equations
from calibrate.fit.uncertainty import Coefficient
from tests.calibrate.fit.test_refinement import NUM_REQUESTS, TRUTH, Valley, valley
from traces.statistics.bootstrap import Floats

SMOOTH = 0.0


def quiet(_stage: str, _loss: float) -> None:
    return None


def by_hand(objective: Valley, theta: Floats) -> Floats:
    """Return d residual / d scaled coefficient [3, n] of beta0 + hypot(floor, beta1 x tokens), by its derivatives."""
    beta0, floor, beta1 = theta
    bent = np.hypot(floor, beta1 * objective.tokens)
    slopes = np.stack([np.ones(NUM_REQUESTS), floor / bent, beta1 * objective.tokens**2 / bent]) / (
        beta0 + bent
    )
    return np.asarray(slopes * objective.scale[:, None] / objective.noise[0])


def test_groups_hold_all_requests_that_count_few_each_and_of_alike_lengths() -> None:
    objective = valley(seed=1)
    trace = objective.traces[0]
    left = np.zeros(NUM_REQUESTS, bool)
    left[::7] = True
    groups = groups_of(trace.without(left))
    assert (groups[left] == -1).all()
    assert (groups[~left] >= 0).all()
    assert np.bincount(groups[~left]).max() <= GROUP
    lengths = np.log(objective.tokens)
    within = np.mean([lengths[groups == number].std() for number in range(groups.max() + 1)])
    assert within < 0.4 * lengths.std()


def test_shared_slopes_are_the_mean_of_each_groups_own() -> None:
    objective = valley(seed=2, rugged=SMOOTH)
    residuals = objective.residuals(objective.simulate(TRUTH))
    groups = groups_of(objective.traces[0])
    (slopes,) = grouped_slopes(objective, TRUTH, residuals, groups=[groups], offsets=np.diag(0.02 * TRUTH))
    own = by_hand(objective, TRUTH)
    weight = 1 / np.sqrt(1 + residuals[0][0] ** 2)
    for number in (0, 3):
        rows = groups == number
        expected = np.average(own[:, rows], axis=1, weights=weight[rows])
        assert slopes[:, 0, rows] == pytest.approx(np.repeat(expected[:, None], rows.sum(), axis=1), rel=0.01)
    assert np.isnan(slopes[:, 1:]).all()  # metrics that nobody observed have none


def test_a_coefficient_at_its_limit_has_a_slope_from_inside() -> None:
    objective = valley(seed=2, rugged=SMOOTH)
    at = np.array([0.0, 9000.0, 20.0])
    residuals = objective.residuals(objective.simulate(at))
    (slopes,) = grouped_slopes(
        objective,
        at,
        residuals,
        groups=[groups_of(objective.traces[0])],
        offsets=np.diag([200.0, 200.0, 0.4]),
    )
    assert slopes[0, 0].mean() == pytest.approx(by_hand(objective, at)[0].mean(), rel=0.05)


def test_directions_that_the_traces_hardly_tell_apart_are_looked_along_far_and_others_close_by() -> None:
    objective = valley(seed=3, rugged=SMOOTH)
    residuals = objective.residuals(objective.simulate(TRUTH))
    slopes = grouped_slopes(
        objective, TRUTH, residuals, groups=[groups_of(objective.traces[0])], offsets=np.diag(0.05 * TRUTH)
    )
    normal, _ = normal_equations(objective, slopes, residuals=residuals, theta=TRUTH)
    offsets = told_apart(objective, TRUTH, normal, loss=1.0)
    far, close = offsets[0] / TRUTH, offsets[-1] / TRUTH
    assert far[0] * far[1] < 0  # beta0 stands in for the floor
    assert np.abs(far).max() > 2 * np.abs(close).max()
    assert np.abs(offsets / TRUTH).max() < 1


@pytest.mark.parametrize("start", [(9000.0, 3500.0, 17.5), (500.0, 12_500.0, 21.5), TRUTH])
def test_without_a_staircase_the_bottom_is_reached_and_a_restart_ends_there(start: tuple[float, ...]) -> None:
    objective = valley(seed=5, rugged=SMOOTH)
    best = min(gauss_newton(objective, np.array(at), max_steps=30).loss for at in (TRUTH, TRUTH * 1.1))
    found = gauss_newton(objective, np.array(start), max_steps=30)
    assert found.loss <= loss_around(objective, np.array(start))
    assert found.loss < 1.03 * best
    again = restarted(refine(objective, np.array(start), report=quiet), report=quiet)
    assert again.is_same_loss


def test_a_restart_that_ends_higher_is_no_convergence() -> None:
    """A second, shallower hollow lies where the restart begins: it ends there, and the fit has not converged."""
    objective = TwoHollows(**{name: getattr(valley(seed=5, rugged=SMOOTH), name) for name in FIELDS})
    refined = refine(objective, TRUTH, report=quiet)
    again = restarted(refined, report=quiet)
    assert not again.is_same_loss
    assert again.refined.loss <= refined.loss


FIELDS = ("traces", "engine", "names", "base", "scale", "noise", "tokens", "rugged")


class TwoHollows(Valley):
    """Everything is half as slow again wherever beta0 is a fifth above the truth: a wall that no slope leads across."""

    def simulate(self, theta: Floats) -> list[SimulatedTrace]:
        (run,) = super().simulate(theta)
        if theta[0] < 1.2 * TRUTH[0]:
            return [run]
        return [replace(run, latency_us=run.latency_us * 1.5)]


def test_a_step_without_some_requests_ends_where_a_fit_without_them_does() -> None:
    objective = valley(seed=6, rugged=SMOOTH)
    trace = objective.traces[0]
    odd = np.arange(NUM_REQUESTS) % 4 == 0
    observed = np.where(odd, 1.05, 1.0) * trace.observed_us  # a quarter of the requests took longer
    objective = replace(objective, traces=(replace(trace, observed_us=observed),))
    found = gauss_newton(objective, TRUTH, max_steps=30)
    (end,) = steps_without(
        objective, GaussNewtonEnd(theta=found.theta, loss=found.loss, offsets=found.offsets), [[odd]]
    )
    left = objective.on((objective.traces[0].without(odd),))
    whole = gauss_newton(left, found.theta, max_steps=30)

    def lasts(theta: Floats) -> Floats:
        return objective.simulate(theta)[0].latency_us[0]

    assert lasts(end) == pytest.approx(lasts(whole.theta), rel=0.006)
    assert np.median(lasts(found.theta) / lasts(whole.theta)) > 1.008


def test_a_value_outside_of_one_interval_is_not_within() -> None:
    def coefficient(low: float, high: float) -> Coefficient:
        return Coefficient(
            name="beta0", value=2.0, low=low, high=high, fitted=True, identifiable=True, reason=None
        )

    both = [coefficient(1, 3), coefficient(0, 5)]
    assert _is_within(np.array([1.0, 5.0]), both)
    assert not _is_within(np.array([0.9, 5.0]), both)
    assert not _is_within(np.array([1.0, 5.1]), both)
