"""A response surface: how every residual answers to the coefficients, single steps averaged out.

The simulator is run at points drawn around a centre and each residual regressed on the coefficients. A single run's
result for a request depends on the step into which its arrival fell; over many points that averages out and leaves the
expectation and its slopes, including the queue's own response.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass

import numpy as np

from calibrate.fit.objective.many_runs import simulate_many
from calibrate.fit.objective.objective import FitObjective, robust_weight
from traces.statistics.bootstrap import Floats, generator_of

POINTS_PER_COEFFICIENT = 12
SCALE_SHARE = 0.3
"""How far a point may lie relative to a coefficient's scale, as a share of how far relative to its value."""
SHAPED_REACH = 1.5
"""How far a surface of shaped points is trusted, in standard deviations of theirs; a step goes twice as far at most."""
REWEIGHTINGS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """Residuals near ``centre``: ``means`` [4, n] by trace, ``slopes`` [p, 4, n] per scaled coefficient.

    ``halves``: slopes from either half of the points, independent, so that their product is free of the
    square of their noise. ``best``: the lowest single loss among the points, and where.
    """

    centre: Floats
    reach: Floats
    means: list[Floats]
    slopes: list[Floats]
    halves: tuple[list[Floats], list[Floats]]
    best: tuple[float, Floats]


def reach_around(objective: FitObjective, theta: Floats, *, relative: float) -> Floats:
    """Return the distance of points: a fraction of each coefficient, or a share of that fraction of its scale."""
    return np.maximum(relative * theta, SCALE_SHARE * relative * objective.scale)


def sample_surface(
    objective: FitObjective,
    theta: Floats,
    *,
    reach: Floats,
    seed: int,
    report: Callable[[float], None] | None = None,
    points_per_coefficient: int = POINTS_PER_COEFFICIENT,
) -> Surface:
    """Return the surface around ``theta``, or as near to it as leaves every point within its limits."""
    p = len(theta)
    centre = np.maximum(np.minimum(theta, objective.most() - reach), reach)
    generator = generator_of(seed, 78)
    drawn = generator.uniform(-1, 1, size=(points_per_coefficient * p // 2, p)) * reach
    # mirrored: slopes are free of any even curvature
    return _surface(objective, centre, np.concatenate([drawn, -drawn]), reach=reach, report=report)


def sample_shaped(
    objective: FitObjective,
    theta: Floats,
    *,
    root: Floats,
    seed: int,
    points_per_coefficient: int = POINTS_PER_COEFFICIENT,
) -> Surface:
    """Return the surface around ``theta`` from points that are spread as ``root`` [p, p] times independent ones.

    Points beyond a coefficient's limits are moved there.
    """
    p = len(theta)
    generator = generator_of(seed, 80)
    drawn = np.sqrt(3.0) * generator.uniform(-1, 1, size=(points_per_coefficient * p // 2, p)) @ root.T
    points = np.clip(theta + np.concatenate([drawn, -drawn]), 0.0, objective.most())
    reach = SHAPED_REACH * np.sqrt((root**2).sum(axis=1))
    return _surface(objective, theta, points - theta, reach=reach, report=None)


def _surface(
    objective: FitObjective,
    centre: Floats,
    offsets: Floats,
    *,
    reach: Floats,
    report: Callable[[float], None] | None,
) -> Surface:
    """Return the surface through runs at these offsets from ``centre``."""
    sampled = [objective.residuals(runs) for runs in simulate_many(objective, list(centre + offsets))]
    losses = [
        objective.loss(residuals, centre + offset) for residuals, offset in zip(sampled, offsets, strict=True)
    ]
    if report is not None:
        report(min(losses))
    design = offsets / objective.scale
    by_trace = [np.stack([residuals[t] for residuals in sampled]) for t in range(len(objective.traces))]
    half = np.arange(len(design)) % 2 == 0
    lowest = int(np.argmin(losses))
    slopes = [slopes_of(design, values) for values in by_trace]
    return Surface(
        centre=centre,
        reach=reach,
        means=[
            values.mean(axis=0) - np.tensordot(design.mean(axis=0), slope, axes=1)
            for values, slope in zip(by_trace, slopes, strict=True)
        ],
        slopes=slopes,
        halves=(
            [slopes_of(design[half], values[half]) for values in by_trace],
            [slopes_of(design[~half], values[~half]) for values in by_trace],
        ),
        best=(losses[lowest], centre + offsets[lowest]),
    )


def slopes_of(design: Floats, values: Floats) -> Floats:
    """Return the slopes [p, 4, n] of values [points, 4, n] over a design [points, p]."""
    flat = values.reshape(len(design), -1)
    inverse = np.linalg.pinv(design - design.mean(axis=0))
    solved = inverse @ (flat - flat.mean(axis=0))
    return np.asarray(solved.reshape(design.shape[1], *values.shape[1:]))


def average(surfaces: Sequence[Surface], *, around: Floats, objective: FitObjective) -> Surface:
    """Return one surface from several around nearby centres, each shifted to ``around``."""

    def mean(parts: Sequence[list[Floats]]) -> list[Floats]:
        return [np.mean(values, axis=0) for values in zip(*parts, strict=True)]

    shifted = [
        [
            value + np.tensordot((around - surface.centre) / objective.scale, slopes, axes=1)
            for value, slopes in zip(surface.means, surface.slopes, strict=True)
        ]
        for surface in surfaces
    ]
    return Surface(
        centre=around,
        reach=surfaces[-1].reach,
        means=mean(shifted),
        slopes=mean([surface.slopes for surface in surfaces]),
        halves=(
            mean([surface.halves[0] for surface in surfaces]),
            mean([surface.halves[1] for surface in surfaces]),
        ),
        best=min((surface.best for surface in surfaces), key=lambda best: best[0]),
    )


def minimum_of(surface: Surface, objective: FitObjective) -> Floats:
    """Return the coefficients with the least robust loss, at most two reaches from the centre."""
    theta = surface.centre.copy()
    for _ in range(REWEIGHTINGS):
        moved = [
            mean + np.tensordot((theta - surface.centre) / objective.scale, slopes, axes=1)
            for mean, slopes in zip(surface.means, surface.slopes, strict=True)
        ]
        normal, slope = normal_equations(objective, surface.slopes, residuals=moved, theta=theta)
        step = damped_step(normal, slope, at=theta / objective.scale, damping=1e-4) * objective.scale
        theta = np.clip(step, surface.centre - 2 * surface.reach, surface.centre + 2 * surface.reach)
        theta = np.clip(theta, 0.0, objective.most())
    return np.asarray(theta)


def normal_equations(
    objective: FitObjective, slopes: list[Floats], *, residuals: list[Floats], theta: Floats
) -> tuple[Floats, Floats]:
    """Return J'WJ [p, p] and J'Wr [p] in scaled coefficients, reweighted for the robust loss, prior included."""
    p = len(theta)
    precision = objective.prior_precision(theta)
    off = (theta - objective.prior_centre()) / objective.scale
    normal, gradient = np.diag(precision), precision * off
    for slope, residual, weight in zip(slopes, residuals, objective.weights(), strict=True):
        flat = slope.reshape(p, -1)
        value, importance = residual.ravel(), (weight * robust_weight(residual)).ravel()
        known = np.isfinite(value) & np.isfinite(flat).all(axis=0)
        flat, value, importance = flat[:, known], value[known], importance[known]
        normal += (flat * importance) @ flat.T
        gradient += (flat * importance) @ value
    return normal, gradient


def damped_step(normal: Floats, gradient: Floats, *, at: Floats, damping: float) -> Floats:
    """Return the non-negative minimum of a quadratic model, damped towards ``at``; coefficients scaled."""
    from scipy.optimize import nnls

    diagonal = np.diag(normal)
    size = np.maximum(diagonal, 1e-6 * max(float(diagonal.max()), 1e-12))
    curvature = normal + damping * np.diag(size)
    factor = np.linalg.cholesky(curvature + 1e-12 * np.trace(curvature) * np.eye(len(at)))
    x, _ = nnls(factor.T, np.linalg.solve(factor, curvature @ at - gradient))
    return np.asarray(x)
