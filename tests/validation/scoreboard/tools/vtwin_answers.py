"""vtwin: its roofline, its physics, and physics learned again without a point's family or GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sim import LatencyModel, PeakTimes, Physics, Roofline
from tests.validation.learn_experts import HELD_OUT
from tests.validation.scoreboard.tools.recorded import Answers
from tests.validation.silicon import MODEL_CLASSES, Point, Prepared, physics, simulated

Make = Callable[[PeakTimes], LatencyModel]


def roofline(points: Sequence[Prepared]) -> Answers:
    """Return roofline's answers: nothing of it was learned from a family or a GPU."""
    return {ready.point.id: simulated(ready, lambda peak: Roofline(peak=peak)) for ready in points}


def learned(points: Sequence[Prepared]) -> Answers:
    """Return physics' answers with the coefficients that ship."""
    return {ready.point.id: simulated(ready, physics()) for ready in points}


def family_unseen(points: Sequence[Prepared]) -> Answers:
    """Return physics' answers where the model's family was left out of the learning: mixtures of experts."""
    return _held_out(points, lambda point: f"{point.model.split('/')[1]} left out")


def gpu_unseen(points: Sequence[Prepared]) -> Answers:
    """Return physics' answers where the GPU was left out: mixtures, and dense models on B200."""
    unseen = _held_out(
        points,
        lambda point: "B200 and B300 left out" if point.gpu in ("B200", "B300") else f"{point.gpu} left out",
    )
    dense = [ready for ready in points if is_dense(ready.point) and ready.point.gpu == "B200"]
    return unseen | learned(dense)


def is_dense(point: Point) -> bool:
    """Return whether a model has no experts."""
    return MODEL_CLASSES[point.model] == "dense"


def _held_out(points: Sequence[Prepared], left_out: Callable[[Point], str]) -> Answers:
    sets = json.loads(HELD_OUT.read_text()) if HELD_OUT.exists() else {}
    return {
        ready.point.id: simulated(ready, _of(sets[left_out(ready.point)]))
        for ready in points
        if not is_dense(ready.point) and left_out(ready.point) in sets
    }


def _of(coefficients: dict[str, float]) -> Make:
    return lambda peak: Physics(peak=peak, **coefficients)  # type: ignore[arg-type]
