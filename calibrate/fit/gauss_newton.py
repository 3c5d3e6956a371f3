"""The optimum by Gauss-Newton steps, with slopes averaged over groups of similar requests.

One run's result for a request depends on the step into which its arrival fell, so a difference of two runs measures
jumps. Over a group of requests of similar lengths that arrived one after the other the jumps average out and leave the
slope, including the queue's own response. A step costs two runs per coefficient, and is taken where runs around its end
confirm it.

Not ``scipy.optimize.least_squares`` (which ``known_models`` uses, whose slopes need no groups): with its method trf in
place of ``gauss_newton``, 26 fits of simulated servers took as long (32.9 and 33.2 CPU s), and none ended at the same
loss. The worst error of a step's three coefficients was 0.8 % instead of 0.9 % at the median, and 3.4 % instead of
2.1 % at the 90th percentile. In place of ``refinement.descend``, trf and dogbox ended at the same loss in 8 and 7 of 26
fits, with 3.2 and 3.1 % at the 90th percentile (60 to 400 requests, with noise of 0 or 3 %; a busy AMD EPYC,
2026-11-24).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.many_runs import loss_around, residuals_around, simulate_many
from calibrate.fit.objective.objective import FitObjective, robust_weight
from calibrate.fit.response_surface import damped_step, normal_equations, reach_around, slopes_of
from traces.statistics.bootstrap import Floats

GROUP = 16
"""Requests whose slopes are averaged, at most."""
REACH = 0.15
"""How far from the coefficients, relative to them, the first slopes are taken, one coefficient after the other."""
NARROW, WIDE = 0.05, 0.6
"""The later ones are taken along the directions that the traces tell apart, at least and at most so far."""
RISE = 0.1
"""In between, at the distance that raises the loss by this fraction: far along a valley, where coefficients can
compensate each other, so that its small slope outweighs the jumps."""
MAX_STEPS = 8
ENOUGH = 5e-3
"""After a step that improves the loss by less than this fraction, one more with new slopes follows, then the end."""
ENOUGH_STUCK = 2
"""The descent ends after this many steps in a row that improve the loss by less than ``ENOUGH``."""
SHARES = (1.0, 0.5, 0.25)
"""Shares of a step to a fit without some requests that are tried."""
STAIRCASE = 0.03
"""How much higher the loss of some runs may be to count as equal to that of others."""
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-2, 1e-4, 1e2
HARDER = 30.0
"""A step that does not lower the loss is tried again with this many times the damping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussNewtonEnd:
    """Where the steps ended, the loss of runs around there, and ``offsets`` [p, p] for further slopes."""

    theta: Floats
    loss: float
    offsets: Floats


def gauss_newton(
    objective: FitObjective,
    start: Floats,
    *,
    offsets: Floats | None = None,
    max_steps: int = MAX_STEPS,
    report: Callable[[float], None] = lambda _loss: None,
) -> GaussNewtonEnd:
    """Return the optimum that steps from ``start`` lead to; the loss never rises.

    ``offsets`` [p, p]: where the first slopes are taken, from the coefficients; None: one after the other.
    """
    groups = [groups_of(trace) for trace in objective.traces]
    theta = np.clip(start, 0.0, objective.most())
    residuals = residuals_around(objective, theta)
    loss = objective.loss(residuals, theta)
    if offsets is None:
        offsets = np.diag(reach_around(objective, theta, relative=REACH))
    damping, num_stuck = FIRST_DAMPING, 0
    for _ in range(max_steps):
        slopes = grouped_slopes(objective, theta, residuals, groups=groups, offsets=offsets)
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
            damping *= HARDER
        offsets = told_apart(objective, theta, normal, loss=loss)
        damping = min(damping, FIRST_DAMPING)
        num_stuck = num_stuck + 1 if before - loss < ENOUGH * before else 0
        if num_stuck == ENOUGH_STUCK:
            break
    return GaussNewtonEnd(theta=theta, loss=loss, offsets=offsets)


def steps_without(
    objective: FitObjective, found: GaussNewtonEnd, held: Sequence[Sequence[NDArray[np.bool_]]]
) -> list[Floats]:
    """Return where the optimum would be without the requests of each of ``held`` (a mask per trace, by fold).

    Each by one step on slopes that all share, from ``found``, that of all requests; shortened where it fits the other
    requests worse. A coefficient that is 0 stays so.
    """
    theta = found.theta
    residuals = residuals_around(objective, theta)
    groups = [groups_of(trace) for trace in objective.traces]
    slopes = grouped_slopes(objective, theta, residuals, groups=groups, offsets=found.offsets)
    ends = []
    for masks in held:
        left = objective.on(
            tuple(trace.without(rows) for trace, rows in zip(objective.traces, masks, strict=True))
        )
        kept = [np.where(rows, np.nan, residual) for residual, rows in zip(residuals, masks, strict=True)]
        normal, gradient = normal_equations(left, slopes, residuals=kept, theta=theta)
        step = damped_step(normal, gradient, at=theta / objective.scale, damping=LEAST_DAMPING)
        end = np.where(theta > 0, np.clip(step * objective.scale, 0.0, objective.most()), 0.0)
        ends.append(_confirmed(left, theta, end, loss=left.loss(kept, theta)))
    return ends


def _confirmed(objective: FitObjective, theta: Floats, end: Floats, *, loss: float) -> Floats:
    """Return the end of a step, or nearer to ``theta``, where runs around it fit no worse; ``theta`` where none do."""
    for share in SHARES:
        trial = theta + share * (end - theta)
        if loss_around(objective, trial) <= loss * (1 + STAIRCASE):
            return np.asarray(trial)
    return theta


def told_apart(objective: FitObjective, theta: Floats, normal: Floats, *, loss: float) -> Floats:
    """Return the directions [p, p] that the traces tell apart, in rows, each as far as slopes are taken along it."""
    values, vectors = np.linalg.eigh(normal)
    far = np.sqrt(RISE * loss / np.maximum(values, 1e-12 * values[-1]))
    directions = vectors.T * objective.scale
    share = np.abs(directions) / reach_around(objective, theta, relative=1.0)
    widest = share.max(axis=1)
    return np.asarray(directions * np.clip(far, NARROW / widest, WIDE / widest)[:, None])


def groups_of(trace: FitTrace) -> NDArray[np.int64]:
    """Return the group of each request [n], -1 for excluded ones: halved by lengths and by arrival in turn."""
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
    objective: FitObjective,
    theta: Floats,
    residuals: list[Floats],
    *,
    groups: list[NDArray[np.int64]],
    offsets: Floats,
) -> list[Floats]:
    """Return, per trace [p, 4, n], d residual / d scaled coefficient as the mean of each request's group.

    From runs at either side of ``theta`` by each row of ``offsets`` [p, p], moved inside the coefficients' limits. The
    means are weighted as the robust loss weighs the ``residuals`` [4, n] at ``theta``.
    """
    least = np.abs(offsets).sum(axis=0) / len(theta)
    centre = np.maximum(theta, least)  # so that the two sides differ
    points = np.clip(np.concatenate([centre - offsets, centre + offsets]), 0.0, objective.most())
    sampled = [objective.residuals(runs) for runs in simulate_many(objective, list(points))]
    design = points / objective.scale
    return [
        _group_means(
            slopes_of(design, np.stack([each[t] for each in sampled])), robust_weight(residual), group
        )
        for t, (group, residual) in enumerate(zip(groups, residuals, strict=True))
    ]


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
