"""The descent on single runs: for traces that follow the simulator step by step, where an average fits worse.

Its slopes are a request's exposures (``calibrate.fit.objective.exposure``), which cost no further run, and leave out
that a slower server also queues more.
"""

from __future__ import annotations

from collections.abc import Callable

from calibrate.compare.bootstrap import Floats
from calibrate.fit.objective.objective import Objective
from calibrate.fit.response_surface import damped_step, normal_equations

MAX_RUNS = 30
"""Simulations of all traces that one descent may take."""
ENOUGH = 1e-3
"""A descent is done when a step improves the loss by less than this fraction."""


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
