"""The refinement: from a place near the lowest loss to the optimum, and whether another start ends there, too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrate.compare.bootstrap import Floats
from calibrate.fit.averaged_runs import CLOSE_BY
from calibrate.fit.descent import descend
from calibrate.fit.gauss_newton import REACHES, Found, gauss_newton
from calibrate.fit.objective.coefficients import COEFFICIENTS
from calibrate.fit.objective.objective import Objective
from calibrate.fit.response_surface import (
    Surface,
    average,
    minimum_of,
    reach_around,
    sample_shaped,
    sample_surface,
)
from calibrate.fit.search import Report
from calibrate.fit.uncertainty import uncertainty

LAST_STEPS = 2
"""Steps after the noise was measured again."""
FIRST_REACH = 0.1
SHAPE_SHARE = 0.4
"""How far the points of the later surfaces lie, as a share of what traces and priors leave open: planes hold there."""
POINTS = 8
"""Points per coefficient of a surface."""
NUM_SURFACES = 3
"""The first shows what the traces leave open, the others lie as far."""
EXACT = 0.7
"""A single run that fits this much better than the average of many is taken: such a trace was simulated."""
ELSEWHERE = 1.35
"""The restart begins at the coefficients times and divided by this in turn."""
SAME_LOSS = 0.01
LEAST_LOSS = 1e-4
"""A restart whose loss differs by at most this fraction, or this, has found the optimum as well."""
MOST_RESTARTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """The optimum ``theta``: ``objective`` with the noise that was measured, ``loss`` of runs around it."""

    objective: Objective
    theta: Floats
    loss: float
    is_exact: bool = False

    def by_name(self) -> dict[str, float]:
        """Return blackbox's six coefficients, those that are held included."""
        values = {name: float(getattr(self.objective.base, name)) for name in COEFFICIENTS}
        return {**values, **dict(zip(self.objective.names, self.theta.tolist(), strict=True))}

    def on(self, objective: Objective, *, report: Report) -> Refined:
        """Return the optimum of another objective with these coefficients, from here."""
        if all(one is other for one, other in zip(objective.traces, self.objective.traces, strict=True)):
            return self
        return refine(objective, self.theta, report=report)


def refine(objective: Objective, theta: Floats, *, report: Report) -> Refined:
    """Return the optimum near ``theta``, each metric's noise measured on the way."""
    objective = objective.with_noise_of(objective.simulate(theta))
    found = gauss_newton(objective, theta, report=lambda loss: report("all requests", loss))
    objective = objective.with_noise_of(objective.simulate(found.theta))
    found = gauss_newton(
        objective,
        found.theta,
        reaches=REACHES[1:],
        max_steps=LAST_STEPS,
        report=lambda loss: report("reweighted", loss),
    )
    return single(objective, found, report=report)


def single(objective: Objective, found: Found, *, report: Report) -> Refined:
    """Return the optimum, that of a single run where it fits clearly better than the average of many."""
    loss, theta = descend(objective, found.theta, report=lambda loss: report("one run", loss))
    if loss > EXACT * found.loss:
        return Refined(objective=objective, theta=found.theta, loss=found.loss)
    return Refined(objective=objective, theta=theta, loss=loss, is_exact=True)


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
            else Refined(objective=objective, theta=found.theta, loss=found.loss)
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
    """The surface around an optimum, and the standard error of ``theta`` from the simulator's own staircase."""

    surface: Surface
    scatter: Floats


def surroundings(refined: Refined, *, seed: int) -> Surroundings:
    """Return what lies around an optimum: a wide surface, then ones shaped as what the traces leave open.

    Where two coefficients can stand in for each other, the lowest losses lie along a narrow valley: points drawn as far
    off in either would mostly lie on its slopes, where no plane holds.
    """
    objective, theta = refined.objective, refined.theta
    reach = reach_around(objective, theta, relative=FIRST_REACH)
    surfaces = [sample_surface(objective, theta, reach=reach, seed=seed + 100, points_per_coefficient=POINTS)]
    for number in range(1, NUM_SURFACES):
        around = average(surfaces[-1:], around=theta, objective=objective)
        spread = uncertainty(objective, theta, surface=around, seed=seed + number, replicates=300)
        root = _root_of(spread.covariance, least=reach_around(objective, theta, relative=CLOSE_BY))
        surfaces.append(
            sample_shaped(
                objective, theta, root=root, seed=seed + 100 + number, points_per_coefficient=POINTS
            )
        )
    minima = np.array([minimum_of(each, objective) for each in surfaces[1:]])
    scatter = np.zeros(len(theta)) if refined.is_exact else minima.std(axis=0, ddof=1) / np.sqrt(len(minima))
    return Surroundings(surface=average(surfaces[1:], around=theta, objective=objective), scatter=scatter)


def _root_of(covariance: Floats, *, least: Floats) -> Floats:
    """Return the root of how far points may lie [p, p]: a share of a covariance, and ``least`` in any direction."""
    return np.asarray(np.linalg.cholesky(SHAPE_SHARE**2 * covariance + np.diag((least / 3) ** 2)))
