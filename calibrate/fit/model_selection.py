"""Model selection: which of the extended model's terms a fit has, or physics; compared on requests held out.

Candidates that the traces cannot tell apart inside their range come out differently beyond it. Blackbox has one line
for short and long prompts, few and many sequences; each term that a GPU is known to have bends it the right way, and
physics has them all from model and GPU. So among candidates within two standard errors of the best, not the simplest is
chosen but the one that goes on most safely. The order is stated (``PREFERRED``), not fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.bootstrap import Floats
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.objective import Objective, log_ratio, robust
from calibrate.fit.refinement import Refined, runs_around
from calibrate.fit.response_surface import Surface, minimum_of

LatencyModel = Literal["auto", "blackbox", "extended"]

TERMS: dict[str, tuple[str, ...]] = {
    "blackbox": (),
    "attention": ("beta3", "beta4"),
    "attention, floor": ("beta3", "beta4", "floor", "concavity"),
    "attention, floor, slowdown": ("beta3", "beta4", "floor", "concavity", "kappa", "u0", "tau_s"),
}
"""The candidates, the simplest first."""
PHYSICS = "physics"
"""The candidate beside them where model and GPU are known."""
PREFERRED = (PHYSICS, "attention, floor, slowdown", "attention, floor", "attention", "blackbox")
"""Which of the candidates that the traces cannot tell apart is taken: the one that goes on most safely beyond them."""
PREFERRED_UNKNOWN = (PHYSICS, "attention, floor", "attention", "attention, floor, slowdown", "blackbox")
"""The same where nothing is known of the GPU's slowdown: one that is not there makes higher loads worse."""
NEAR = 2.0
"""Standard errors of the blocks within which two candidates are not told apart: one seed's search differs from
another's by as much as one block from the other, of which the standard error knows nothing."""
MIN_TRACES = 3
"""From so many traces on, each is held out in turn; of fewer, a trace more or less is another experiment."""
NUM_SPANS = 4
"""Spans of time that fewer traces are cut into."""
BLOCKS = 5
"""Spans per held-out part whose mean scores are taken for independent."""
SHARES = (1.0, 0.5, 0.25)
"""Of a step to a fit without some requests, how much of it is tried."""
STAIRCASE = 0.03
"""How much higher than an average a single run's loss may well be."""
NUM_SURFACES = 4
"""Response surfaces per candidate: enough to compare, the chosen one is refined again on all requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model that was compared. ``error``: mean robust loss of held-out requests, in units of their noise.

    ``difference`` and ``standard_error``: to the candidate with the least error.
    """

    name: str
    terms: tuple[str, ...]
    error: float
    difference: float
    standard_error: float
    chosen: bool


def select(scores: dict[str, Floats], *, known: set[str]) -> tuple[Candidate, ...]:
    """Return the candidates with the choice made: of those near the best, the one that is preferred.

    ``scores``: held-out blocks' mean losses by candidate, the same blocks in all. ``known``: coefficients with an
    informative prior.
    """
    best = min(scores, key=lambda name: float(scores[name].mean()))
    rows = {}
    for name, score in scores.items():
        off = score - scores[best]
        error = float(off.std(ddof=1) / np.sqrt(len(off))) if len(off) > 1 else 0.0
        rows[name] = (float(score.mean()), float(off.mean()), error)
    order = PREFERRED if "kappa" in known else PREFERRED_UNKNOWN
    near = [name for name, (_, off, error) in rows.items() if off <= NEAR * error]
    chosen = min(near, key=order.index)
    return tuple(
        Candidate(
            name=name,
            terms=TERMS.get(name, ()),
            error=mean,
            difference=off,
            standard_error=error,
            chosen=name == chosen,
        )
        for name, (mean, off, error) in rows.items()
    )


Predictor = Callable[[Sequence[NDArray[np.bool_]]], list[Floats]]
"""From which requests of each trace are left out, to every trace's latencies [4, n] as a fit without them has them."""


def predictor_of(refined: Refined) -> Predictor:
    """Return what predicts requests that are left out: the surface's minimum without them, simulated."""
    objective, theta = refined.objective, refined.theta
    latest: list[list[Floats]] = []

    def predict(held: Sequence[NDArray[np.bool_]]) -> list[Floats]:
        def loss_without(at: Floats) -> float:
            sampled = [[np.log(run.latency_us) for run in runs] for runs in runs_around(objective, at)]
            latest.append([np.exp(np.mean(values, axis=0)) for values in zip(*sampled, strict=True)])
            residuals = [
                np.where(rows, np.nan, log_ratio(latencies, trace.observed_us) / objective.noise[:, None])
                for latencies, trace, rows in zip(latest[-1], objective.traces, held, strict=True)
            ]
            return objective.loss(residuals, at)

        towards = np.where(theta > 0, _without(objective, refined.surface, held), 0.0)
        return confirmed(theta, towards, loss_at=loss_without, latest=latest)

    return predict


def confirmed(
    theta: Floats, towards: Floats, *, loss_at: Callable[[Floats], float], latest: list[list[Floats]]
) -> list[Floats]:
    """Return the latencies where a fit without some requests ends up, from ``theta``, that of all.

    A step to where the other requests fit worse is shortened: no fit ends there. ``loss_at`` adds the latencies to
    ``latest``.
    """
    here = loss_at(theta)
    for share in SHARES:
        if loss_at(theta + share * (towards - theta)) <= here * (1 + STAIRCASE):
            return latest[-1]
    loss_at(theta)
    return latest[-1]


def held_out_scores(traces: Sequence[FitTrace], predict: Predictor, noise: Floats) -> Floats:
    """Return the mean loss of each block of requests, each block's fold left out of the fit that predicts it."""
    scores: list[float] = []
    for held in _folds(traces):
        for trace, latencies, rows in zip(traces, predict(held), held, strict=True):
            residual = log_ratio(latencies, trace.observed_us) / noise[:, None]
            known = np.isfinite(residual) & rows
            counts = known.sum(axis=0)
            each = np.where(known, robust(np.nan_to_num(residual)), 0.0).sum(axis=0) / np.maximum(counts, 1)
            seen = np.flatnonzero(counts > 0)
            scores += [float(each[block].mean()) for block in np.array_split(seen, BLOCKS) if len(block)]
    return np.array(scores)


def _folds(traces: Sequence[FitTrace]) -> list[list[NDArray[np.bool_]]]:
    """Return, per fold, which requests of each trace are held out: traces in turn, or of few, spans of time."""
    if len(traces) >= MIN_TRACES:
        return [
            [trace.used() & (index == left) for index, trace in enumerate(traces)]
            for left in range(len(traces))
        ]
    folds = []
    for number in range(NUM_SPANS):
        held = [np.zeros(len(trace.requests), bool) for trace in traces]
        for mask, trace in zip(held, traces, strict=True):
            mask[np.array_split(np.flatnonzero(trace.used()), NUM_SPANS)[number]] = True
        folds.append(held)
    return folds


def _without(objective: Objective, surface: Surface, held: Sequence[NDArray[np.bool_]]) -> Floats:
    """Return the surface's minimum when these requests of the traces do not count."""
    left = tuple(
        replace(trace, observed_us=np.where(rows, np.nan, trace.observed_us))
        for trace, rows in zip(objective.traces, held, strict=True)
    )
    means = [np.where(rows, np.nan, mean) for rows, mean in zip(held, surface.means, strict=True)]
    return minimum_of(replace(surface, means=means), objective.on(left))
