"""How far vtwin is off where it has seen neither family nor GPU, and whether the bound printed of it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.studies.validation.scoreboard.board import METRICS, class_of, errors_of
from tests.studies.validation.scoreboard.tools.recorded import Answers
from tests.studies.validation.silicon import Point

QUANTILE = 0.9
"""The bound is this quantile of the absolute errors."""


def coverage(answers: Answers, points: Sequence[Point]) -> dict[str, tuple[int, np.ndarray]]:
    """Return by what was left out how many points there are, and the share of TTFT and TPOT within the bound.

    Each family, and each GPU, in turn: the bound is of the class's other points, the share of its own.
    """
    parts = {"families": lambda point: point.model, "GPUs": lambda point: point.gpu}
    found = {}
    for name, part in parts.items():
        inside = []
        for kind in ("dense", "MoE"):
            own = [point for point in points if class_of(point) == kind and point.id in answers]
            for left_out in sorted({part(point) for point in own}):
                others = errors_of(answers, [point for point in own if part(point) != left_out])
                held = errors_of(answers, [point for point in own if part(point) == left_out])
                if len(others) and len(held):
                    bound = np.quantile(np.abs(others), QUANTILE, axis=0)
                    inside.append(np.abs(held) <= bound)
        if inside:
            rows = np.concatenate(inside)
            found[name] = (len(rows), rows.mean(axis=0))
    return found


def markdown(points: Sequence[Point], answers: Mapping[str, Answers]) -> str:
    """Return which share of the points of a family or GPU lies within the bound made of the others."""
    lines = [
        "| bound of nine in ten | left out | n | TTFT within % | TPOT within % |",
        "|---|---|---|---|---|",
    ]
    for tool, given in answers.items():
        for name, (number, share) in coverage(given, points).items():
            values = " | ".join(f"{100 * share[side]:.0f}" for side in range(len(METRICS)))
            lines.append(f"| {tool} | {name} | {number} | {values} |")
    return "\n".join(lines)
