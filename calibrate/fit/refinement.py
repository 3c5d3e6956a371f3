"""The refinement: from a place near the lowest loss to the optimum, on response surfaces."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrate.compare.bootstrap import Floats
from calibrate.fit.objective.objective import Objective
from calibrate.fit.objective.simulated import Run
from calibrate.fit.response_surface import (
    POINTS_PER_COEFFICIENT,
    Surface,
    average,
    minimum_of,
    reach_around,
    sample_shaped,
    sample_surface,
    simulate_many,
)
from calibrate.fit.search import Report, descend
from calibrate.fit.uncertainty import uncertainty

WIDE = (0.2, 0.1)
NARROWEST = 0.01
"""How far, relative to the coefficients, the points of the first surfaces lie, and of the last at least."""
SHAPE_SHARE = 0.4
"""How far the points of the later surfaces lie, as a share of what traces and priors leave open: planes hold there."""
AVERAGED_REQUESTS = 4800
MOST_PAIRS = 12
"""A place's loss is that of as many runs around it as make so many simulated requests, at most two times 12 runs."""
MANY_REQUESTS = 1500
POINTS_OF_MANY = 8
"""Of so many requests, fewer points per coefficient show the slopes as well."""
ENOUGH_STUCK = 2
"""After so many surfaces in a row that lead nowhere better, the refinement ends."""
EXACT = 0.7
"""A single run that fits this much better than the average of many is taken: such a trace was simulated."""
NUM_SURFACES = 10
NUM_AVERAGED = 3
"""The minima of the last surfaces are averaged: what is left of the staircase in one is not in the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refined:
    """The optimum: ``objective`` with the noise that was measured, ``surface`` around ``theta``.

    ``scatter``: standard error of ``theta`` from the simulator's own staircase.
    """

    objective: Objective
    theta: Floats
    loss: float
    surface: Surface
    scatter: Floats
    converged: bool


def refine(
    objective: Objective, theta: Floats, *, seed: int, report: Report, num_surfaces: int = NUM_SURFACES
) -> Refined:
    """Return the optimum near ``theta``, each metric's noise measured on the way."""
    loss, theta = descend(objective, theta, report=lambda loss: report("all requests", loss))
    objective = objective.with_noise_of(objective.simulate(theta))
    loss, theta = descend(objective, theta, report=lambda loss: report("reweighted", loss))
    refined = _refine_on_surfaces(objective, theta, seed=seed, report=report, num_surfaces=num_surfaces)
    if loss > EXACT * refined.loss:
        return refined
    # The trace follows the simulator step by step: where one run fits this well, an average fits worse.
    reach = np.maximum(reach_around(objective, theta, relative=NARROWEST), refined.surface.reach)
    surface = sample_surface(objective, theta, reach=reach, seed=seed + 300)
    return replace(refined, theta=theta, loss=loss, surface=surface, scatter=np.zeros(len(theta)))


def _refine_on_surfaces(
    objective: Objective, theta: Floats, *, seed: int, report: Report, num_surfaces: int
) -> Refined:
    """Return the place that the surfaces lead to: first wide ones, then ones shaped as what the traces leave open.

    Where two coefficients can stand in for each other, the lowest losses lie along a narrow valley: points drawn as far
    off in either would mostly lie on its slopes, where no plane holds.
    """
    surfaces: list[Surface] = []
    minima: list[Floats] = []
    loss, num_stuck = _loss_around(objective, theta), 0
    num_points = POINTS_OF_MANY if _num_requests(objective) >= MANY_REQUESTS else POINTS_PER_COEFFICIENT
    for number in range(num_surfaces):
        if number < len(WIDE):
            reach = reach_around(objective, theta, relative=WIDE[number])
            surface = sample_surface(
                objective, theta, reach=reach, seed=seed + 100 + number, points_per_coefficient=num_points
            )
        else:
            around = average(surfaces[-NUM_AVERAGED:], around=theta, objective=objective)
            spread = uncertainty(objective, theta, surface=around, seed=seed + number, replicates=300)
            root = _root_of(spread.covariance, least=reach_around(objective, theta, relative=NARROWEST))
            surface = sample_shaped(
                objective,
                theta,
                root=root,
                seed=seed + 100 + number,
                points_per_coefficient=num_points,
            )
        surfaces.append(surface)
        before = theta
        lowest = minimum_of(surface, objective)
        loss, theta = _no_worse(objective, theta, loss=loss, towards=lowest)
        minima.append(lowest)
        report(f"surface {number + 1} of {num_surfaces}", loss)
        num_stuck = num_stuck + 1 if theta is before else 0
        if num_stuck == ENOUGH_STUCK and number + 1 >= len(WIDE) + NUM_AVERAGED:
            break
    last = np.array(minima[-NUM_AVERAGED:])
    loss, theta = _no_worse(objective, theta, loss=loss, towards=last.mean(axis=0))
    return Refined(
        objective=objective,
        theta=theta,
        loss=loss,
        surface=average(surfaces[-NUM_AVERAGED:], around=theta, objective=objective),
        scatter=last.std(axis=0, ddof=1) / np.sqrt(len(last)),
        converged=bool((np.ptp(last, axis=0) <= 2 * surfaces[-1].reach).all()),
    )


def _root_of(covariance: Floats, *, least: Floats) -> Floats:
    """Return the root of how far points may lie [p, p]: a share of a covariance, and ``least`` in any direction."""
    return np.asarray(np.linalg.cholesky(SHAPE_SHARE**2 * covariance + np.diag((least / 3) ** 2)))


def _no_worse(objective: Objective, theta: Floats, *, loss: float, towards: Floats) -> tuple[float, Floats]:
    """Return the loss and the place of a step, shortened until runs around it confirm it; the start where none do."""
    for share in (1.0, 0.5, 0.25):
        trial = theta + share * (towards - theta)
        trial_loss = _loss_around(objective, trial)
        if trial_loss < loss:
            return trial_loss, trial
    return loss, theta


def _loss_around(objective: Objective, theta: Floats) -> float:
    """Return the loss of residuals averaged over runs close by: the staircase of one outweighs what a step gains."""
    sampled = [objective.residuals(runs) for runs in runs_around(objective, theta)]
    return objective.loss([np.mean(values, axis=0) for values in zip(*sampled, strict=True)], theta)


def _num_requests(objective: Objective) -> int:
    """Return how many requests take part in the loss."""
    return sum(trace.num_used for trace in objective.traces)


def runs_around(objective: Objective, theta: Floats) -> list[list[Run]]:
    """Return every trace's runs at places close to ``theta``, in mirrored pairs; of many requests fewer."""
    wanted = np.ceil(AVERAGED_REQUESTS / (2 * max(_num_requests(objective), 1)))
    num_pairs = int(np.clip(wanted, 1, MOST_PAIRS))
    generator = np.random.Generator(np.random.Philox(key=[num_pairs, 79]))
    drawn = NARROWEST * generator.uniform(-1, 1, size=(num_pairs, len(theta)))
    points = np.clip(theta * (1 + np.concatenate([drawn, -drawn])), 0.0, objective.most())
    return simulate_many(objective, list(points))
