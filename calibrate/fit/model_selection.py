"""Model selection: which of the extended model's terms a fit has, or another model; compared on held-out requests.

Candidates that the traces cannot distinguish within their range differ beyond it. Blackbox has one line for short and
long prompts, few and many sequences; each term that a GPU is known to have bends it the right way. So among candidates
whose held-out E2E is within one per cent of the best's, the one that extrapolates most safely is chosen, not the
simplest. The order is fixed (``PREFERRED``), not fitted. A slowdown with load comes last, and only if the traces show
one: it acts most where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from lazy_dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibrate.fit.gauss_newton import steps_without
from calibrate.fit.objective.fit_trace import LOSS_METRICS, FitTrace
from calibrate.fit.objective.many_runs import latencies_around
from calibrate.fit.objective.objective import log_ratio, robust
from calibrate.fit.refinement import Refined
from traces.statistics.bootstrap import Floats

Asked = Literal["auto", "blackbox", "extended"]
"""What a free fit may be asked for."""

FLOOR, TILES, SLOWDOWN = "attention, floor", "attention, floor, tiles", "attention, floor, slowdown"
SLOWING = ("kappa", "u0", "tau_s")
"""What those with a floor have besides on a GPU that is known to slow down; no candidate has it alone then."""
TERMS: dict[str, tuple[str, ...]] = {
    "blackbox": (),
    "attention": ("beta3", "beta4"),
    FLOOR: ("beta3", "beta4", "floor", "concavity"),
    TILES: ("beta3", "beta4", "floor", "concavity"),
    SLOWDOWN: ("beta3", "beta4", "floor", "concavity", *SLOWING),
}
"""The candidates, the simplest first. Tiles vary nothing more: their factors are those of measured products, where
model and GPU are known. The slowdown has them, too, where they predict better."""
PHYSICS, PROFILED = "physics", "profiled"
"""The candidates beside them: where model and GPU are known, and where the twin has a profile's tables."""
PREFERRED = (TILES, FLOOR, PHYSICS, PROFILED, "attention", "blackbox", SLOWDOWN)
"""The order of choice among candidates that the traces cannot distinguish: the safest extrapolation first. Another
configured model stands where a profile does."""
TOLERANCE = 0.01
"""Candidates whose held-out E2E is off by this much more than the best's, at most, count as equal: a server's pace
differs by half of it from one run to the next."""
MIN_TRACES = 3
"""From this many traces on, each is held out in turn; with fewer, leaving one out changes the experiment."""
NUM_SPANS = 4
"""Spans of time that fewer traces are cut into."""
BLOCKS = 5
"""Spans per held-out part whose mean scores are assumed independent."""
E2E, DONE = LOSS_METRICS.index("e2e_us"), LOSS_METRICS.index("done_us")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedModel:
    """One model that was compared on held-out requests.

    ``e2e_off``: how far their mean E2E is off by blocks, root mean square, a fraction. ``loss``: mean robust loss, in
    units of their noise. ``is_shown``: False of a slowdown that the traces do not show; it is not chosen.
    """

    name: str
    terms: tuple[str, ...]
    e2e_off: float
    loss: float
    is_shown: bool
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The mean robust ``loss`` of each block of requests that was held out, and how far its mean ``pace`` is off.

    ``pace``: mean log(simulated / observed) of E2E, of an overloaded trace of when its answers were done.
    """

    loss: Floats
    pace: Floats

    def off(self) -> float:
        """Return the root mean square of the paces, a fraction."""
        return float(np.sqrt(np.mean(self.pace**2)))


def preferred(scores: Mapping[str, Scores], *, hidden: Collection[str] = ()) -> str:
    """Return the chosen candidate: of those whose E2E is near the best's, the first in the order.

    ``hidden``: candidates that are not chosen, since the traces do not show their term.
    """
    shown = {name: each.off() for name, each in scores.items() if name not in hidden}
    least = min(shown.values())
    near = (name for name, off in shown.items() if off <= least + TOLERANCE)
    return min(near, key=lambda name: PREFERRED.index(name if name in PREFERRED else PROFILED))


def candidates_of(
    scores: Mapping[str, Scores], *, chosen: str, hidden: Collection[str], is_slowing: bool
) -> tuple[ComparedModel, ...]:
    """Return the candidates as they are reported; ``is_slowing``: the GPU is known to slow down."""
    return tuple(
        ComparedModel(
            name=name,
            terms=terms_of(name, is_slowing=is_slowing),
            e2e_off=each.off(),
            loss=float(each.loss.mean()),
            is_shown=name not in hidden,
            chosen=name == chosen,
        )
        for name, each in scores.items()
    )


def terms_of(name: str, *, is_slowing: bool) -> tuple[str, ...]:
    """Return a candidate's terms beside blackbox's; ``is_slowing``: the GPU is known to slow down."""
    terms = TERMS.get(name, ())
    return (*terms, *SLOWING) if is_slowing and name in (FLOOR, TILES) else terms


Held = Sequence[NDArray[np.bool_]]
"""Which requests of each trace are left out."""
Predictor = Callable[[Sequence[Held]], list[list[Floats]]]
"""From folds to every trace's latencies [4, n], by fold, as a fit without its requests has them."""


def predictor_of(refined: Refined) -> Predictor:
    """Return a predictor of left-out requests: the fit without them, a step from the fit of all."""

    def predict(folds: Sequence[Held]) -> list[list[Floats]]:
        objective = refined.objective
        ends = steps_without(objective, refined.found(), folds)
        return [latencies_around(objective, end) for end in ends]

    return predict


def held_out_scores(traces: Sequence[FitTrace], predict: Predictor, noise: Floats) -> Scores:
    """Return each block's scores, each block's fold left out of the fit that predicts it."""
    losses: list[float] = []
    paces: list[float] = []
    folds = _folds(traces)
    for held, predicted in zip(folds, predict(folds), strict=True):
        for trace, latencies, rows in zip(traces, predicted, held, strict=True):
            ratio = np.where(rows, log_ratio(latencies, trace.observed_us), np.nan)
            known = np.isfinite(ratio)
            counts = known.sum(axis=0)
            robust_loss = np.where(known, robust(np.nan_to_num(ratio / noise[:, None])), 0.0).sum(axis=0)
            seen = np.flatnonzero(counts > 0)
            paced = DONE if len(trace.done_rows) else E2E
            for block in np.array_split(seen, BLOCKS):
                if len(block):
                    losses.append(float((robust_loss[block] / counts[block]).mean()))
                if known[paced, block].any():
                    paces.append(float(np.nanmean(ratio[paced, block])))
    return Scores(loss=np.array(losses), pace=np.array(paces))


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
