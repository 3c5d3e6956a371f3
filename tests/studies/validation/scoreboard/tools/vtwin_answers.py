"""vtwin: its roofline, its physics, and physics learned again without a point's family or GPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from sim import LatencyModel, PeakTimes, Physics, Roofline
from tests.studies.validation.learn_by_class import GPU_SPLITS, HELD_OUT, class_of
from tests.studies.validation.scoreboard.tools.recorded import Answers
from tests.studies.validation.silicon import Point, Prepared, physics, simulated

Make = Callable[[PeakTimes], LatencyModel]


def roofline(points: Sequence[Prepared]) -> Answers:
    """Return roofline's answers: nothing of it was learned from a family or a GPU."""
    return {ready.point.id: simulated(ready, lambda peak: Roofline(peak=peak)) for ready in points}


def learned(points: Sequence[Prepared]) -> Answers:
    """Return physics' answers with the coefficients that ship."""
    return {ready.point.id: simulated(ready, physics()) for ready in points}


def family_unseen(points: Sequence[Prepared]) -> Answers:
    """Return physics' answers where the model's family was left out of the learning."""
    return _held_out(points, without_family)


def gpu_unseen(points: Sequence[Prepared]) -> Answers:
    """Return physics' answers where the GPU, with others of its generation of Blackwell, was left out."""
    return _held_out(points, without_gpu)


def without_family(point: Point) -> str:
    """Return the name of what was learned without a point's family of models."""
    return f"{class_of(point)}: {point.model.split('/')[1]} left out"


def without_gpu(point: Point) -> str:
    """Return the name of what was learned without a point's GPU."""
    return f"{class_of(point)}: {next(name for name, gpus in GPU_SPLITS.items() if point.gpu in gpus)}"


def _held_out(points: Sequence[Prepared], name_of: Callable[[Point], str]) -> Answers:
    sets = json.loads(HELD_OUT.read_text())
    named = {ready.point.id: name_of(ready.point) for ready in points}
    return {
        ready.point.id: simulated(ready, _of(sets[named[ready.point.id]]))
        for ready in points
        if named[ready.point.id] in sets
    }


def _of(coefficients: dict[str, float]) -> Make:
    return lambda peak: Physics(peak=peak, **coefficients)  # type: ignore[arg-type]
