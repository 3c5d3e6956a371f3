"""Finding the coefficients of one latency model: from the traces to the bottom of the valley."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from calibrate.compare.bootstrap import Floats
from calibrate.fit.extended_guess import extended_starts, plain
from calibrate.fit.initial_guess import first_guess, guess_of_steps, natural_scale, several_starts
from calibrate.fit.loss import COEFFICIENTS, EXTENDED_FITTED, FitTrace, Problem, head_of
from calibrate.fit.priors import Prior, proportions, with_priors
from calibrate.fit.search import NUM_SURFACES, Found, Report, descend, settle, valley, wide_valley
from sim import Blackbox, Extended

if TYPE_CHECKING:
    from replay import TwinConfig

HEAD = 500
"""Requests of each trace, its first ones, that the starts are tried on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What is to be fitted. ``names``: blackbox's coefficients that vary; ``config.latency`` says which model.

    ``priors``: what model and GPU imply. ``report``: called with the stage and the best loss.
    """

    traces: tuple[FitTrace, ...]
    config: TwinConfig
    names: tuple[str, ...]
    priors: Mapping[str, Prior]
    seed: int
    report: Report

    @property
    def latency(self) -> Blackbox:
        """The model whose coefficients are to be found; ``fit`` has seen to it that it is one of these."""
        latency = self.config.latency
        assert isinstance(latency, Blackbox)  # noqa: S101 - fit refuses any other
        return latency


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChoice:
    """Which way of scheduling explains the traces better: the loss with and without async scheduling."""

    async_scheduling: bool
    loss_async: float
    loss_sync: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The straight line within an extended model: ``problem``, and its coefficients found on the traces' heads."""

    problem: Problem
    theta: Floats

    def by_name(self) -> dict[str, float]:
        """Return blackbox's six coefficients, those that are held included."""
        values = {name: float(getattr(self.problem.base, name)) for name in COEFFICIENTS}
        return {**values, **dict(zip(self.problem.names, self.theta.tolist(), strict=True))}


def find(task: Task) -> Found:
    """Return the coefficients of the configured model; the extended one's from those of the line within it."""
    line = find_line(task)
    if not isinstance(task.latency, Extended):
        return settled(task, line.problem, line.theta)
    problem, theta = find_bent(task, line, EXTENDED_FITTED)
    return settled(task, problem, theta)


def problem_of(task: Task, names: Sequence[str]) -> Problem:
    """Return the problem in which these names vary, without priors; the spread of steps is left to later."""
    base = task.latency
    if isinstance(base, Extended):
        base = replace(base, sigma=0.0)
    return Problem(
        traces=task.traces,
        engine=task.config.engine,
        names=tuple(names),
        base=base,
        scale=natural_scale(task.traces, names),
    )


def find_line(task: Task) -> Line:
    """Return blackbox's coefficients: the first guess, its variants and the configured values, tried and descended."""
    problem = problem_of(task, task.names)
    if isinstance(problem.base, Extended):
        problem = plain(problem)
    guess = first_guess(problem)
    starts = several_starts(guess, names=problem.names, scale=problem.scale)
    if (logged := guess_of_steps(problem, guess)) is not None:
        starts.insert(0, np.maximum(logged, 0.02 * problem.scale))
    if float(problem.base.beta0) > 0:
        starts.append(configured(problem))
    _, theta = valley(problem.on(heads(task)), starts, seed=task.seed, report=task.report)
    return Line(problem=problem, theta=theta)


def find_bent(task: Task, line: Line, terms: Sequence[str]) -> tuple[Problem, Floats]:
    """Return the problem with some of the extended model's ``terms``, the others 0, and where its valley is."""
    problem = problem_of(task, (*task.names, *terms))
    absent = {name: 0.0 for name in EXTENDED_FITTED if name not in terms}
    values = line.by_name()
    usual = proportions(beta1=values["beta1"], step_us=values["beta0"])
    priors = with_priors(usual, task.priors)
    problem = replace(
        problem,
        base=replace(problem.base, **absent),
        priors={name: prior for name, prior in priors.items() if name in problem.names},
    )
    starts = extended_starts(problem, values)
    if not task.latency.is_blackbox:
        starts.append(configured(problem))
    _, theta = wide_valley(problem.on(heads(task)), starts, seed=task.seed, report=task.report)
    return problem, theta


def settled(task: Task, problem: Problem, theta: Floats, *, num_surfaces: int = NUM_SURFACES) -> Found:
    """Return the bottom of the valley that ``theta`` lies in, each metric's noise measured on the way."""
    loss, theta = descend(problem, theta, report=lambda loss: task.report("all requests", loss))
    problem = problem.with_noise_of(problem.simulate(theta))
    loss, theta = descend(problem, theta, report=lambda loss: task.report("reweighted", loss))
    return settle(problem, theta, loss=loss, seed=task.seed, report=task.report, num_surfaces=num_surfaces)


def better_schedule(task: Task) -> tuple[Task, ScheduleChoice]:
    """Return the task under the scheduling, async or not, that explains the traces better, by one measure of noise."""
    found: dict[bool, Found] = {}
    tasks: dict[bool, Task] = {}
    for way in (True, False):
        label = "async" if way else "sync"

        def tell(stage: str, loss: float, label: str = label) -> None:
            task.report(f"{label}, {stage}", loss)

        engine = replace(task.config.engine, async_scheduling=way)
        tasks[way] = replace(task, config=replace(task.config, engine=engine))
        found[way] = find(replace(tasks[way], report=tell))
    noise = (found[True].problem.noise + found[False].problem.noise) / 2
    losses = {way: replace(each.problem, noise=noise).evaluate(each.theta) for way, each in found.items()}
    best = min(losses, key=lambda way: losses[way])
    choice = ScheduleChoice(async_scheduling=best, loss_async=losses[True], loss_sync=losses[False])
    return tasks[best], choice


def configured(problem: Problem) -> Floats:
    """Return the coefficients as configured, none of them quite 0."""
    given = np.array([float(getattr(problem.base, name)) for name in problem.names])
    return np.asarray(np.maximum(given, 0.02 * problem.scale))


def heads(task: Task) -> tuple[FitTrace, ...]:
    """Return the beginnings of the traces."""
    return tuple(head_of(trace, HEAD) for trace in task.traces)
