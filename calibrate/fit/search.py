"""The search: from every start to the region of the lowest loss, with the simulator in the loop.

A simulated latency is a staircase in the coefficients: a change of 0.1 % shifts which step an arrival falls
into, so differences of single runs measure jumps, not slopes. Two kinds of slopes are smooth: a request's
exposures (``calibrate.fit.objective.exposure``), which cost no further run but leave out that a slower server also
queues more, and a response surface (``calibrate.fit.response_surface``), which has all of it for some dozens of runs.
The search uses the first from every start; the refinement (``calibrate.fit.refinement``) uses the second from the best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from calibrate.compare.bootstrap import Floats
from calibrate.fit.objective.objective import Objective
from calibrate.fit.response_surface import (
    damped_step,
    minimum_of,
    normal_equations,
    reach_around,
    sample_surface,
)

MAX_RUNS = 30
"""Simulations of all traces that one descent may take."""
ENOUGH = 1e-3
"""A descent is done when a step improves the loss by less than this fraction."""
COARSE = 0.3
"""How far, relative to the coefficients, the points of a start's surface lie."""
TURNS = (0.3, 0.15, 0.15, 0.08)
"""The same of the extended starts, turn by turn: a plane fits a smaller region better."""

Report = Callable[[str, float], None]
"""Called with the stage and the best loss so far."""


def search(
    objective: Objective, starts: Sequence[Floats], *, seed: int, report: Report
) -> tuple[float, Floats]:
    """Return the lowest loss that any of the starts leads to, and the coefficients there, yet to be refined."""
    found: list[tuple[float, Floats]] = []
    for number, start in enumerate(starts):
        stage = f"start {number + 1} of {len(starts)}"

        def tell(loss: float, stage: str = stage) -> None:
            report(stage, min([loss, *(best for best, _ in found)]))

        best = _coarse_step(objective, start, seed=seed + number, relative=COARSE, report=tell)
        best = in_order_of_arrival(objective, descend(objective, best, report=tell)[1])
        found.append(descend(objective, best, report=tell))
    return min(found, key=lambda pair: pair[0])


def search_on_surfaces(
    objective: Objective, starts: Sequence[Floats], *, seed: int, report: Report
) -> tuple[float, Floats]:
    """Return the same by response surfaces alone, for terms without exposures; the better half of starts goes on."""
    found = [(objective.evaluate(start), start) for start in starts]
    for turn, relative in enumerate(TURNS):
        found = sorted(found, key=lambda pair: pair[0])[: max(2, len(starts) >> turn)]
        for number, (_, start) in enumerate(found):
            stage = f"extended start {number + 1} of {len(found)}"
            theta = _coarse_step(
                objective, start, seed=seed + 10 * turn + number, relative=relative, report=None
            )
            theta = in_order_of_arrival(objective, theta)
            found[number] = (objective.evaluate(theta), theta)
            report(stage, min(loss for loss, _ in found))
    return min(found, key=lambda pair: pair[0])


def in_order_of_arrival(objective: Objective, theta: Floats) -> Floats:
    """Return ``theta`` with alpha1 0 where that fits better, else as it is.

    With alpha1 above 0 a short prompt overtakes a long one on its way into the queue. Where seats run out, which of two
    comes first decides over seconds, however small alpha1 is: no slope leads to 0, it has to be tried.
    """
    if "alpha1" not in objective.names:
        return theta
    prompts = np.concatenate([trace.requests.prompt_tokens for trace in objective.traces])
    number = objective.names.index("alpha1")
    flat = theta.copy()
    flat[number] = 0.0
    if "alpha0" in objective.names:  # the usual prompt's way in stays as long
        flat[objective.names.index("alpha0")] += theta[number] * float(prompts.mean())
    return min((theta, flat), key=objective.evaluate)


def _coarse_step(
    objective: Objective,
    start: Floats,
    *,
    seed: int,
    relative: float,
    report: Callable[[float], None] | None,
) -> Floats:
    """Return the best of a start, the points of a coarse surface around it, and the surface's minimum."""
    reach = reach_around(objective, start, relative=relative)
    coarse = sample_surface(objective, start, reach=reach, seed=seed, report=report, points_per_coefficient=4)
    return min((start, coarse.best[1], minimum_of(coarse, objective)), key=objective.evaluate)


def descend(
    objective: Objective, start: Floats, *, report: Callable[[float], None], max_runs: int = MAX_RUNS
) -> tuple[float, Floats]:
    """Return the loss and the place to which damped Gauss-Newton steps on exposures lead."""
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
