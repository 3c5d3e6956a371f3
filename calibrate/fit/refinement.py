"""The refinement: from a place near the lowest loss to the optimum, on response surfaces."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from calibrate.compare.bootstrap import Floats
from calibrate.fit.objective.objective import Objective
from calibrate.fit.response_surface import Surface, average, minimum_of, reach_around, sample_surface
from calibrate.fit.search import Report, descend
from calibrate.fit.uncertainty import uncertainty

WIDE = (0.2, 0.1)
NARROWEST = 0.01
"""How far, relative to the coefficients, the points of the first surfaces lie, and of the last at least."""
STAIRCASE = 0.03
"""How much higher than an average a single run's loss may well be."""
EXACT = 0.7
"""A single run that fits this much better than the average of many is taken: such a trace was simulated."""
NUM_SURFACES = 6
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
    """Return the mean of the last surfaces' minima; each surface is as wide as the traces leave open."""
    surfaces: list[Surface] = []
    minima: list[Floats] = []
    loss = objective.evaluate(theta)
    for number in range(num_surfaces):
        reach = reach_around(objective, theta, relative=WIDE[min(number, len(WIDE) - 1)])
        if number >= len(WIDE):
            spread = uncertainty(objective, theta, surface=surfaces[-1], seed=seed, replicates=200)
            least = reach_around(objective, theta, relative=NARROWEST)
            reach = np.clip(3 * spread.replicates.std(axis=0), least, np.maximum(surfaces[-1].reach, least))
        surfaces.append(sample_surface(objective, theta, reach=reach, seed=seed + 100 + number))
        loss, theta = _no_worse(objective, theta, loss=loss, towards=minimum_of(surfaces[-1], objective))
        minima.append(theta)
        report(f"surface {number + 1} of {num_surfaces}", loss)
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


def _no_worse(objective: Objective, theta: Floats, *, loss: float, towards: Floats) -> tuple[float, Floats]:
    """Return the loss and the place of a step, shortened where a surface predicted what no run confirms.

    Where one preemption more or less decides over latencies no plane fits them; elsewhere a full step is taken even if
    a single run shows it slightly worse, since that is the staircase.
    """
    for share in (1.0, 0.4, 0.15):
        trial = theta + share * (towards - theta)
        trial_loss = objective.evaluate(trial)
        if trial_loss <= loss * (1 + STAIRCASE):
            return trial_loss, trial
    return loss, theta
