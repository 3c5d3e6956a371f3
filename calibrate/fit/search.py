"""The search: from the most promising starts to the region of the lowest loss, with the simulator in the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from calibrate.fit.gauss_newton import GaussNewtonEnd, gauss_newton
from calibrate.fit.objective.objective import FitObjective
from traces.statistics.bootstrap import Floats

FOLLOWED = 4
"""Starts that the search continues from: those with the lowest loss."""
FIRST_STEPS = 3
"""Steps from each of them; the refinement continues from the best one's end."""

Report = Callable[[str, float], None]
"""Called with the stage and the best loss so far."""


def search(objective: FitObjective, starts: Sequence[Floats], *, report: Report) -> Floats:
    """Return the coefficients with the lowest loss from the most promising starts, before refinement."""
    limited = [np.clip(start, 0.0, objective.most()) for start in starts]
    ranked = sorted(limited, key=objective.evaluate)[:FOLLOWED]
    found: list[GaussNewtonEnd] = []
    for number, start in enumerate(ranked):
        stage = f"start {number + 1} of {len(ranked)}"

        def tell(loss: float, stage: str = stage) -> None:
            report(stage, min([loss, *(each.loss for each in found)]))

        found.append(gauss_newton(objective, start, max_steps=FIRST_STEPS, report=tell))
    best = min(found, key=lambda each: each.loss)
    return in_order_of_arrival(objective, best.theta)


def in_order_of_arrival(objective: FitObjective, theta: Floats) -> Floats:
    """Return ``theta`` with alpha1 0 where that fits better, else as it is.

    With alpha1 above 0 a short prompt overtakes a long one on its way into the queue. If seats run out, their order
    changes latencies by seconds, however small alpha1 is: no slope leads to 0, so 0 has to be tried.
    """
    if "alpha1" not in objective.names:
        return theta
    prompts = np.concatenate([trace.requests.prompt_tokens for trace in objective.traces])
    number = objective.names.index("alpha1")
    flat = theta.copy()
    flat[number] = 0.0
    if "alpha0" in objective.names:  # the usual prompt's way in keeps its length
        flat[objective.names.index("alpha0")] += theta[number] * float(prompts.mean())
    return min((theta, flat), key=objective.evaluate)
