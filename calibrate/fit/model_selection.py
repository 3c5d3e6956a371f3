"""Model selection: which of the extended model's terms a fit has; nested candidates, compared on requests held out.

Where a coefficient's prior is informative, its term costs no freedom: what the traces cannot see then takes the value
that such hardware has, and a model without the term would take zero, which no hardware has. So among candidates that
the traces cannot distinguish, by one standard error of the difference, the most complete one is chosen, not the
simplest: the simplest is as good inside the range that was observed and wrong beyond it. A term whose prior is only
that of any transformer pays a penalty, so that it must earn its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrate.compare.bootstrap import Floats
from calibrate.fit.objective.fit_trace import FitTrace
from calibrate.fit.objective.objective import Objective, robust
from calibrate.fit.refinement import Refined
from calibrate.fit.response_surface import Surface, minimum_of

LatencyModel = Literal["auto", "blackbox", "extended"]

TERMS: dict[str, tuple[str, ...]] = {
    "blackbox": (),
    "attention": ("beta3", "beta4"),
    "attention, floor": ("beta3", "beta4", "floor", "concavity"),
    "attention, floor, slowdown": ("beta3", "beta4", "floor", "concavity", "kappa", "u0", "tau_s"),
}
"""The candidates, the simplest first."""
WEAK_PENALTY = 0.25
"""Standard errors that a term without an informative prior costs."""
SHAPES = {"u0", "tau_s"}
"""Coefficients that only say how another one's term goes, and have no effect of their own."""
MIN_TRACES = 3
"""From so many traces on, each is held out in turn; of fewer, a trace more or less is another experiment."""
NUM_SPANS = 4
"""Spans of time that fewer traces are cut into."""
BLOCKS = 5
"""Spans per held-out part whose mean scores are taken for independent."""
NUM_SURFACES = 4
"""Response surfaces per candidate: enough to compare, the chosen one is refined again on all requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model that was compared. ``error``: mean robust loss of held-out requests, in units of their noise.

    ``difference`` and ``standard_error``: to the candidate with the least error. ``penalty``: what its terms without an
    informative prior cost, in the same unit.
    """

    name: str
    terms: tuple[str, ...]
    error: float
    difference: float
    standard_error: float
    penalty: float
    chosen: bool


def select(scores: dict[str, Floats], *, known: set[str]) -> tuple[Candidate, ...]:
    """Return the candidates with the choice made: the last that is within a standard error of the best, penalty paid.

    ``scores``: held-out blocks' mean losses by candidate, the same blocks in all. ``known``: coefficients with an
    informative prior.
    """
    best = min(scores, key=lambda name: float(scores[name].mean()))
    rows = []
    for name, score in scores.items():
        off = score - scores[best]
        error = float(off.std(ddof=1) / np.sqrt(len(off))) if len(off) > 1 else 0.0
        weak = [term for term in TERMS[name] if term not in known | SHAPES]
        rows.append((name, float(score.mean()), float(off.mean()), error, WEAK_PENALTY * len(weak) * error))
    within = [name for name, _, off, error, penalty in rows if off + penalty <= error]
    return tuple(
        Candidate(
            name=name,
            terms=TERMS[name],
            error=mean,
            difference=off,
            standard_error=error,
            penalty=penalty,
            chosen=name == within[-1],
        )
        for name, mean, off, error, penalty in rows
    )


def held_out_scores(refined: Refined, noise: Floats) -> Floats:
    """Return the mean loss of each block of requests, each block's fold left out of the fit that predicts it.

    The folds' fits are minima of the response surface that the search ended on; what they predict is simulated.
    """
    objective = refined.objective
    scored = replace(objective, noise=noise)
    scores: list[float] = []
    for held in _folds(objective.traces):
        at = _without(objective, refined.surface, held)
        for residual, rows in zip(scored.residuals(scored.simulate(at)), held, strict=True):
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
