"""The search for the coefficients, with the simulator in the loop.

A simulated latency is a staircase in the coefficients: a change of 0.1 % shifts which step an arrival falls
into, so differences of single runs measure jumps, not slopes. Two kinds of slopes are smooth: a request's
exposures (``calibrate.fit.exposure``), which cost no further run but leave out that a slower server also queues
more, and a response surface (``calibrate.fit.response_surface``), which has it all at the price of some dozens of runs.
The first finds the valley from every start; the second finds its bottom from the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from calibrate.compare.bootstrap import Floats
from calibrate.fit.loss import Problem
from calibrate.fit.response_surface import (
    Surface,
    average,
    damped_step,
    minimum_of,
    normal_equations,
    reach_around,
    sample_surface,
)
from calibrate.fit.uncertainty import uncertainty

MAX_RUNS = 30
"""Simulations of all traces that one descent may take."""
ENOUGH = 1e-3
"""A descent is done when a step improves the loss by less than this fraction."""
COARSE = 0.3
WIDE = (0.2, 0.1)
NARROWEST = 0.01
"""How far, relative to the coefficients, the points of the first surfaces lie, and of the last at least."""
STAIRCASE = 0.03
"""How much higher than an average a single run's loss may well be."""
EXACT = 0.7
"""A single run that fits this much better than the average of many is kept: such a trace was simulated."""
NUM_TURNS = 3
NUM_SURFACES = 6
NUM_AVERAGED = 3
"""The minima of the last surfaces are averaged: what is left of the staircase in one is not in the next."""

Report = Callable[[str, float], None]
"""Called with the stage and the best loss so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Where a search ended; ``problem`` with the noise it measured, ``surface`` around ``theta``.

    ``scatter``: standard error of ``theta`` from the simulator's own staircase.
    """

    problem: Problem
    theta: Floats
    loss: float
    surface: Surface
    scatter: Floats
    converged: bool


def valley(problem: Problem, starts: Sequence[Floats], *, seed: int, report: Report) -> tuple[float, Floats]:
    """Return the lowest loss that any of the starts leads to, and where: not yet the valley's bottom."""
    found: list[tuple[float, Floats]] = []
    for number, start in enumerate(starts):
        stage = f"start {number + 1} of {len(starts)}"

        def tell(loss: float, stage: str = stage) -> None:
            report(stage, min([loss, *(best for best, _ in found)]))

        best = _coarse_step(problem, start, seed=seed + number, relative=COARSE, report=tell)
        found.append(descend(problem, best, report=tell))
    return min(found, key=lambda pair: pair[0])


def wide_valley(
    problem: Problem, starts: Sequence[Floats], *, seed: int, report: Report
) -> tuple[float, Floats]:
    """Return the same by surfaces alone, for terms whose slopes no exposure has; the better half goes on."""
    found = [(problem.evaluate(start), start) for start in starts]
    for turn in range(NUM_TURNS):
        found = sorted(found, key=lambda pair: pair[0])[: max(2, len(starts) >> turn)]
        for number, (_, start) in enumerate(found):
            stage = f"bent start {number + 1} of {len(found)}"
            theta = _coarse_step(problem, start, seed=seed + 10 * turn + number, relative=COARSE, report=None)
            found[number] = (problem.evaluate(theta), theta)
            report(stage, min(loss for loss, _ in found))
    return min(found, key=lambda pair: pair[0])


def _coarse_step(
    problem: Problem,
    start: Floats,
    *,
    seed: int,
    relative: float,
    report: Callable[[float], None] | None,
) -> Floats:
    """Return the best of a start, the points of a coarse surface around it, and the surface's minimum."""
    reach = reach_around(problem, start, relative=relative)
    coarse = sample_surface(problem, start, reach=reach, seed=seed, report=report, points_per_coefficient=4)
    return min((start, coarse.best[1], minimum_of(coarse, problem)), key=problem.evaluate)


def settle(
    problem: Problem,
    theta: Floats,
    *,
    loss: float,
    seed: int,
    report: Report,
    num_surfaces: int = NUM_SURFACES,
) -> Found:
    """Return the valley's bottom, from a place in it where the loss of one run is ``loss``."""
    refined = _refine(problem, theta, seed=seed, report=report, num_surfaces=num_surfaces)
    if loss > EXACT * refined.loss:
        return refined
    # The trace follows the simulator step by step: where one run fits this well, an average fits worse.
    reach = np.maximum(reach_around(problem, theta, relative=NARROWEST), refined.surface.reach)
    surface = sample_surface(problem, theta, reach=reach, seed=seed + 300)
    return replace(refined, theta=theta, loss=loss, surface=surface, scatter=np.zeros(len(theta)))


def _refine(problem: Problem, theta: Floats, *, seed: int, report: Report, num_surfaces: int) -> Found:
    """Return the mean of the last surfaces' minima; each surface is as wide as the traces leave open."""
    surfaces: list[Surface] = []
    minima: list[Floats] = []
    loss = problem.evaluate(theta)
    for number in range(num_surfaces):
        reach = reach_around(problem, theta, relative=WIDE[min(number, len(WIDE) - 1)])
        if number >= len(WIDE):
            spread = uncertainty(problem, theta, surface=surfaces[-1], seed=seed, replicates=200)
            least = reach_around(problem, theta, relative=NARROWEST)
            reach = np.clip(3 * spread.replicates.std(axis=0), least, np.maximum(surfaces[-1].reach, least))
        surfaces.append(sample_surface(problem, theta, reach=reach, seed=seed + 100 + number))
        loss, theta = _no_worse(problem, theta, loss=loss, towards=minimum_of(surfaces[-1], problem))
        minima.append(theta)
        report(f"surface {number + 1} of {num_surfaces}", loss)
    last = np.array(minima[-NUM_AVERAGED:])
    loss, theta = _no_worse(problem, theta, loss=loss, towards=last.mean(axis=0))
    return Found(
        problem=problem,
        theta=theta,
        loss=loss,
        surface=average(surfaces[-NUM_AVERAGED:], around=theta, problem=problem),
        scatter=last.std(axis=0, ddof=1) / np.sqrt(len(last)),
        converged=bool((np.ptp(last, axis=0) <= 2 * surfaces[-1].reach).all()),
    )


def _no_worse(problem: Problem, theta: Floats, *, loss: float, towards: Floats) -> tuple[float, Floats]:
    """Return the loss and the place of a step, shortened where a surface promised what no run keeps.

    Where one preemption more or less decides over latencies no plane fits them; elsewhere a whole step is taken even if
    a single run shows it slightly worse, since that is the staircase.
    """
    for share in (1.0, 0.4, 0.15):
        trial = theta + share * (towards - theta)
        trial_loss = problem.evaluate(trial)
        if trial_loss <= loss * (1 + STAIRCASE):
            return trial_loss, trial
    return loss, theta


def descend(
    problem: Problem, start: Floats, *, report: Callable[[float], None], max_runs: int = MAX_RUNS
) -> tuple[float, Floats]:
    """Return the loss and the place to which damped Gauss-Newton steps on exposures lead."""
    theta, damping, runs_left = start, 1e-2, max_runs
    runs = problem.simulate(theta)
    loss = problem.loss(problem.residuals(runs), theta)
    while runs_left > 0 and damping < 1e4:
        slopes = [gradient * problem.scale[:, None, None] for gradient in problem.exposure_gradients(runs)]
        normal, gradient = normal_equations(problem, slopes, residuals=problem.residuals(runs), theta=theta)
        gain = 0.0
        while runs_left > 0 and damping < 1e4 and gain <= 0:
            trial = damped_step(normal, gradient, at=theta / problem.scale, damping=damping) * problem.scale
            trial_runs = problem.simulate(trial)
            trial_loss = problem.loss(problem.residuals(trial_runs), trial)
            runs_left -= 1
            gain = loss - trial_loss
            damping = damping * 6 if gain <= 0 else max(damping / 5, 1e-6)
        if gain > 0:
            theta, runs, loss = trial, trial_runs, trial_loss
            report(loss)
            if gain < ENOUGH * (loss + gain):
                break
    return loss, theta
