"""The optimum by Gauss-Newton steps, the slopes averaged over groups of alike requests.

What one run says about one request depends on which step its arrival fell into, so a difference of two runs measures
jumps. Over a group of requests of alike lengths that arrived one after the other the jumps average out, and what is
left is the slope, the queue's own response included. A step costs two runs per coefficient, and is taken where runs
around its end confirm it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.bootstrap import Floats
from calibrate.fit.averaged_runs import residuals_around
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.objective import Objective, robust_weight
from calibrate.fit.response_surface import damped_step, normal_equations, reach_around, simulate_many

GROUP = 16
"""Requests whose slopes are averaged, at most."""
REACHES = (0.15, 0.05)
"""How far from the coefficients, relative to them, the slopes are taken: far first, then near."""
MAX_STEPS = 5
"""Steps at each reach."""
ENOUGH = 5e-3
"""A step that improves the loss by less than this fraction is the last at its reach."""
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-4, 1e2


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where the steps ended, and the loss of runs around there."""

    theta: Floats
    loss: float


def gauss_newton(
    objective: Objective,
    start: Floats,
    *,
    reaches: tuple[float, ...] = REACHES,
    max_steps: int = MAX_STEPS,
    report: Callable[[float], None] = lambda _loss: None,
) -> Found:
    """Return the optimum that steps from ``start`` lead to; the loss never rises."""
    groups = [groups_of(trace) for trace in objective.traces]
    theta = np.clip(start, 0.0, objective.most())
    residuals = residuals_around(objective, theta)
    loss = objective.loss(residuals, theta)
    for relative in reaches:
        damping = FIRST_DAMPING
        for _ in range(max_steps):
            slopes = grouped_slopes(objective, theta, residuals, groups=groups, relative=relative)
            normal, gradient = normal_equations(objective, slopes, residuals=residuals, theta=theta)
            before = loss
            while damping <= MOST_DAMPING:
                trial = damped_step(normal, gradient, at=theta / objective.scale, damping=damping)
                trial = np.clip(trial * objective.scale, 0.0, objective.most())
                there = residuals_around(objective, trial)
                trial_loss = objective.loss(there, trial)
                if trial_loss < loss:
                    theta, residuals, loss = trial, there, trial_loss
                    damping = max(damping / 5, LEAST_DAMPING)
                    report(loss)
                    break
                damping *= 10
            if before - loss < ENOUGH * before:
                break
    return Found(theta=theta, loss=loss)


def groups_of(trace: FitTrace) -> NDArray[np.int64]:
    """Return the group of each request [n], -1 of those that take no part: halved by lengths and by arrival in turn."""
    columns = [
        trace.requests.prompt_tokens.astype(np.float64),
        trace.requests.arrival_us.astype(np.float64),
        trace.observed_timeline.output_tokens.astype(np.float64),
    ]
    groups = np.full(len(trace.requests), -1, np.int64)
    parts = [(np.flatnonzero(trace.used()), 0)]
    number = 0
    while parts:
        rows, depth = parts.pop()
        if len(rows) <= GROUP:
            groups[rows] = number
            number += 1
            continue
        order = rows[np.argsort(columns[depth % len(columns)][rows], kind="stable")]
        middle = len(order) // 2
        parts += [(order[:middle], depth + 1), (order[middle:], depth + 1)]
    return groups


def grouped_slopes(
    objective: Objective,
    theta: Floats,
    residuals: list[Floats],
    *,
    groups: list[NDArray[np.int64]],
    relative: float,
) -> list[Floats]:
    """Return, per trace [p, 4, n], d residual / d scaled coefficient as the mean of each request's group.

    The means are weighted as the robust loss weighs the ``residuals`` [4, n] at ``theta``.
    """
    p = len(theta)
    reach = reach_around(objective, theta, relative=relative)
    low = np.maximum(theta - reach, 0.0)
    high = np.minimum(low + 2 * reach, objective.most())
    points = np.repeat(theta[None], 2 * p, axis=0)
    points[np.arange(p), np.arange(p)], points[p + np.arange(p), np.arange(p)] = low, high
    sampled = [objective.residuals(runs) for runs in simulate_many(objective, list(points))]
    width = (high - low) / objective.scale
    slopes = []
    for t, (group, residual) in enumerate(zip(groups, residuals, strict=True)):
        values = np.stack([each[t] for each in sampled])
        difference = (values[p:] - values[:p]) / width[:, None, None]
        slopes.append(_group_means(difference, robust_weight(residual), group))
    return slopes


def _group_means(values: Floats, weight: Floats, group: NDArray[np.int64]) -> Floats:
    """Return ``values`` [p, 4, n] replaced by the weighted mean of each request's group; NaN outside of groups."""
    member = np.zeros((len(group), max(int(group.max(initial=-1)), 0) + 1))
    inside = group >= 0
    member[inside, group[inside]] = 1.0
    known = np.isfinite(values) & np.isfinite(weight)
    total = (np.where(known, values * weight, 0.0)) @ member
    count = np.where(known, weight, 0.0) @ member
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (total / count)[:, :, group]
    return np.where(inside & np.isfinite(weight), means, np.nan)
