"""The refinement: from a place near the lowest loss to the optimum, and whether another start ends there, too."""

from __future__ import annotations

from collections.abc import Callable
from lazy_dataclasses import dataclass, replace

import numpy as np

from calibrate.fit.gauss_newton import GaussNewtonEnd, gauss_newton
from calibrate.fit.objective.coefficients import COEFFICIENTS, EXTENDED_FITTED
from calibrate.fit.objective.many_runs import CLOSE_BY, loss_around, num_requests
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.response_surface import (
    POINTS_PER_COEFFICIENT,
    Surface,
    average,
    damped_step,
    minimum_of,
    normal_equations,
    reach_around,
    sample_shaped,
    sample_surface,
)
from calibrate.fit.search import Report
from calibrate.fit.uncertainty import flat_surface, uncertainty
from traces.statistics.bootstrap import Floats

LAST_STEPS = 2
"""Steps after the noise was measured again."""
FIRST_REACH = 0.1
SHAPE_SHARE = 0.4
"""Distance of the later surfaces' points, as a share of the remaining uncertainty: planes hold there."""
MANY_REQUESTS = 1500
POINTS_OF_MANY = 8
"""Points per coefficient with ``MANY_REQUESTS`` or more: they are less noisy, so fewer show the slopes as well."""
ROUNDS = 2
"""How often the place is moved to the minima of the surfaces around it."""
NUM_AVERAGED = 3
"""Surfaces whose minima are averaged: their remaining noise is independent."""
EXACT = 0.7
"""A single run that fits this much better than the average of many is used: such a trace was simulated."""
ELSEWHERE = 1.35
"""The restart begins at the coefficients times and divided by this in turn."""
SAME_LOSS = 0.03
LEAST_LOSS = 1e-4
"""A restart whose loss differs by at most this fraction, or this amount, has found the same optimum."""
MOST_RESTARTS = 2
MAX_RUNS = 30
"""Simulations of all traces that one descent on single runs may take."""
ENOUGH = 1e-3
"""Such a descent is done when a step improves the loss by less than this fraction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """The optimum ``theta``: ``objective`` with the noise that was measured, ``loss`` of runs around it.

    ``offsets`` [p, p]: where slopes are taken, from ``theta``.
    """

    objective: FitObjective
    theta: Floats
    loss: float
    offsets: Floats
    is_exact: bool = False

    def by_name(self) -> dict[str, float]:
        """Return blackbox's six coefficients, those that are held included."""
        values = {name: float(getattr(self.objective.base, name)) for name in COEFFICIENTS}
        return {**values, **dict(zip(self.objective.names, self.theta.tolist(), strict=True))}

    def found(self) -> GaussNewtonEnd:
        """Return where further steps begin."""
        return GaussNewtonEnd(theta=self.theta, loss=self.loss, offsets=self.offsets)

    def on(self, objective: FitObjective, *, report: Report) -> Refined:
        """Return the optimum of another objective with these coefficients, from here."""
        if all(one is other for one, other in zip(objective.traces, self.objective.traces, strict=True)):
            return self
        return refine(objective, self.theta, report=report)


def refine(objective: FitObjective, theta: Floats, *, report: Report) -> Refined:
    """Return the optimum near ``theta``, each metric's noise measured on the way."""
    objective = objective.with_noise_of(objective.simulate(theta))
    found = gauss_newton(objective, theta, report=lambda loss: report("all requests", loss))
    objective = objective.with_noise_of(objective.simulate(found.theta))
    found = gauss_newton(
        objective,
        found.theta,
        offsets=found.offsets,
        max_steps=LAST_STEPS,
        report=lambda loss: report("reweighted", loss),
    )
    return single(objective, found, report=report)


def single(objective: FitObjective, found: GaussNewtonEnd, *, report: Report) -> Refined:
    """Return the optimum, that of a single run where it fits clearly better than the average of many."""
    loss, theta = descend(objective, found.theta, report=lambda loss: report("one run", loss))
    if loss > EXACT * found.loss:
        return Refined(objective=objective, theta=found.theta, loss=found.loss, offsets=found.offsets)
    return Refined(objective=objective, theta=theta, loss=loss, offsets=found.offsets, is_exact=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """The best optimum that was found, and where the last restart ``ended``; ``is_same_loss``: whether as low."""

    refined: Refined
    ended: Floats
    is_same_loss: bool


def restarted(refined: Refined, *, report: Report) -> Restarted:
    """Return the optimum after a search from elsewhere; where that ends lower, it is searched again from there."""
    best = refined
    for _ in range(MOST_RESTARTS):
        objective = best.objective
        factors = ELSEWHERE ** np.where(np.arange(len(best.theta)) % 2 == 0, 1.0, -1.0)
        start = np.clip(best.theta * factors, 0.0, objective.most())
        report("restart", best.loss)
        found = gauss_newton(objective, start)
        again = (
            single(objective, found, report=report)
            if best.is_exact
            else Refined(objective=objective, theta=found.theta, loss=found.loss, offsets=found.offsets)
        )
        is_lower = again.loss < best.loss
        is_same = abs(again.loss - best.loss) <= SAME_LOSS * best.loss + LEAST_LOSS
        ended = best.theta if is_lower else again.theta
        best = again if is_lower else best
        if is_same or not is_lower:
            break
    return Restarted(refined=best, ended=ended, is_same_loss=is_same)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """An optimum ``at`` the mean of several surfaces' minima, their average surface, and the optimum's standard error.

    The standard error, ``scatter``, is due to the jumps of the simulator's results.
    """

    at: Refined
    surface: Surface
    scatter: Floats


def surroundings(refined: Refined, *, seed: int) -> Surroundings:
    """Return the optimum moved to the minima of surfaces around it, and these surfaces, which show its uncertainty.

    If two coefficients can compensate each other, the lowest losses lie along a narrow valley: points drawn equally far
    in either would mostly lie on its slopes, where no plane holds.
    """
    is_flat = not set(refined.objective.names) & set(EXTENDED_FITTED)
    best = replace(refined, loss=loss_around(refined.objective, refined.theta, carefully=True))
    for number in range(1 if refined.is_exact else ROUNDS):
        objective, theta = best.objective, best.theta
        sample = _flat_surfaces if is_flat else _shaped_surfaces
        surfaces = sample(objective, theta, seed=seed + 100 * number)
        minima = np.array([minimum_of(each, objective) for each in surfaces])
        if not refined.is_exact:
            best = _no_worse(best, towards=minima.mean(axis=0))
    scatter = np.zeros(len(theta)) if refined.is_exact else minima.std(axis=0, ddof=1) / np.sqrt(len(minima))
    # for blackbox one surface, not the average: the noise of its slopes is part of the uncertainty
    surface = surfaces[-1] if is_flat else average(surfaces, around=best.theta, objective=objective)
    return Surroundings(at=best, surface=surface, scatter=scatter)


def _flat_surfaces(objective: FitObjective, theta: Floats, *, seed: int) -> list[Surface]:
    """Return surfaces of blackbox."""
    return [flat_surface(objective, theta, seed=seed + number) for number in range(NUM_AVERAGED)]


def _shaped_surfaces(objective: FitObjective, theta: Floats, *, seed: int) -> list[Surface]:
    """Return surfaces of points spread as the uncertainty, which a wide surface before them shows."""
    points = POINTS_OF_MANY if num_requests(objective) >= MANY_REQUESTS else POINTS_PER_COEFFICIENT
    reach = reach_around(objective, theta, relative=FIRST_REACH)
    surfaces = [sample_surface(objective, theta, reach=reach, seed=seed, points_per_coefficient=points)]
    for number in range(1, 1 + NUM_AVERAGED):
        around = average(surfaces[-NUM_AVERAGED:], around=theta, objective=objective)
        spread = uncertainty(objective, theta, surface=around, seed=seed + number, replicates=300)
        root = _root_of(spread.covariance, least=reach_around(objective, theta, relative=CLOSE_BY))
        surfaces.append(
            sample_shaped(objective, theta, root=root, seed=seed + number, points_per_coefficient=points)
        )
    return surfaces[1:]


def _no_worse(refined: Refined, *, towards: Floats) -> Refined:
    """Return the optimum after a step, shortened until runs around it confirm it; unchanged if none do."""
    for share in (1.0, 0.5, 0.25):
        trial = refined.theta + share * (towards - refined.theta)
        loss = loss_around(refined.objective, trial, carefully=True)
        if loss < refined.loss:
            return replace(refined, theta=trial, loss=loss)
    return refined


def _root_of(covariance: Floats, *, least: Floats) -> Floats:
    """Return the root of how far points may lie [p, p]: a share of a covariance, and ``least`` in any direction."""
    return np.asarray(np.linalg.cholesky(SHAPE_SHARE**2 * covariance + np.diag((least / 3) ** 2)))


def descend(
    objective: FitObjective, start: Floats, *, report: Callable[[float], None], max_runs: int = MAX_RUNS
) -> tuple[float, Floats]:
    """Return the loss and the place at the end of damped Gauss-Newton steps on a single run.

    The slopes are exposures (``calibrate.fit.objective.exposure``): they cost no further run, and ignore that a slower
    server also queues more.
    """
    theta, damping, runs_left = start, 1e-2, max_runs
    runs = objective.simulate(theta)
    loss = objective.loss(objective.residuals(runs), theta)
    while runs_left > 0 and damping < 1e4:
        slopes = [
            gradient * objective.scale[:, None, None] for gradient in objective.exposure_gradients(runs)
        ]
        normal, gradient = normal_equations(
            objective, slopes, residuals=objective.residuals(runs), theta=theta
        )
        gain = 0.0
        while runs_left > 0 and damping < 1e4 and gain <= 0:
            trial = (
                damped_step(normal, gradient, at=theta / objective.scale, damping=damping) * objective.scale
            )
            trial_runs = objective.simulate(trial)
            trial_loss = objective.loss(objective.residuals(trial_runs), trial)
            runs_left -= 1
            gain = loss - trial_loss
            damping = damping * 6 if gain <= 0 else max(damping / 5, 1e-6)
        if gain > 0:
            theta, runs, loss = trial, trial_runs, trial_loss
            report(loss)
            if gain < ENOUGH * (loss + gain):
                break
    return loss, theta
