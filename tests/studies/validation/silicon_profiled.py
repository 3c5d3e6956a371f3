"""The silicon points again, with tables of measured vLLM kernels in place of a roofline.

A table is trained for every model, GPU and number of GPUs that the operator tables have shapes of; nothing is fitted
to a point but one number for all, the time between steps, on the same third as the others' numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calibrate.predictor.build import train
from calibrate.predictor.cache import default_cache
from calibrate.predictor.measured import ProfileError, ProfileQuery
from replay.model import find_gpu
from replay.twin.profiled_table import StepTableFile, model_of
from sim import Profiled
from tests.studies.validation.silicon import (
    GPUS,
    MODEL_CLASSES,
    MODELS,
    Point,
    Prepared,
    log_errors,
    prepare,
    read_points,
    shape_of,
    times_ms,
)

KERNELS = "aiconfigurator_ops"
STAND_INS = {"B300": "B200"}
"""GPUs without tables here, and the one of their generation, of the same bandwidth, whose tables are taken."""


class Tables:
    """Tables by model, precision, GPU and number of GPUs, each trained once."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.made: dict[tuple[object, ...], StepTableFile | None] = {}
        self.reasons: list[str] = []

    def of(self, point: Point) -> StepTableFile | None:
        """Return the table of a point's server; None, and the reason noted, where the operator tables lack a part."""
        key = (point.model, point.gpu, point.fp8, point.fp4, point.tp, point.has_whole_experts)
        if key not in self.made:
            self.made[key] = self._train(point)
        return self.made[key]

    def _train(self, point: Point) -> StepTableFile | None:
        measured = STAND_INS.get(point.gpu, point.gpu)
        wanted = ProfileQuery(
            shape=shape_of(point), gpu=measured, tp=point.tp, has_whole_experts=point.has_whole_experts
        )
        folder = self.data / KERNELS / f"{measured.lower()}_sxm"
        try:
            return train([folder], wanted, find_gpu(point.gpu), cache=default_cache(), strict=True)[0]
        except ProfileError as error:
            reason = str(error).replace(str(self.data), "")
            self.reasons.append(f"{point.model}, {point.gpu}, TP{point.tp}: {reason}")
            return None


def simulated(ready: Prepared, model: Profiled) -> tuple[float, float]:
    """Return the mean TTFT and TPOT in ms."""
    ttft, tpot, _ = times_ms(ready, model).mean(axis=1).tolist()
    return ttft, tpot


def errors(prepared: Sequence[Prepared], tables: Tables, **given: float) -> np.ndarray:
    """Return log(simulated / measured) of TTFT and TPOT, [n, 2]."""
    rows = []
    for ready in prepared:
        file = tables.of(ready.point)
        assert file is not None
        ttft, tpot = simulated(ready, model_of(file, **given))
        rows.append((np.log(ttft / ready.point.ttft_ms), np.log(tpot / ready.point.tpot_ms)))
    return np.array(rows)


def table(data: Path) -> str:
    """Return errors on the points that are judged and that tables reach, roofline and physics beside."""
    points, _ = read_points(data / "aiconfigurator_silicon" / "vllm_agg.csv", gpus=GPUS.values())
    tables = Tables(data)
    judged = prepare(point for point in points if not point.is_ours_to_tune and tables.of(point) is not None)
    found = {"profiled": errors(judged, tables)}
    found |= {name: log_errors(judged, MODELS[name]) for name in ("physics", "roofline")}
    groups: dict[str, list[int]] = {}
    for number, ready in enumerate(judged):
        point, kind = ready.point, MODEL_CLASSES[ready.point.model]
        for group in (kind, f"{kind}, {point.gpu}", f"{point.model}, {point.gpu}"):
            groups.setdefault(group, []).append(number)
    lines = [
        "| points | n | model | TPOT median % | p90 % | TTFT median % | p90 % |",
        "|---|---|---|---|---|---|---|",
    ]
    for group in sorted(groups, key=lambda name: (name.count("/"), name)):
        for name, all_errors in found.items():
            ttft, tpot = np.abs(np.expm1(all_errors[groups[group]])).T * 100
            figures = [np.median(tpot), np.quantile(tpot, 0.9), np.median(ttft), np.quantile(ttft, 0.9)]
            shown = " | ".join(f"{figure:.1f}" for figure in figures)
            lines.append(f"| {group} | {len(groups[group])} | {name} | {shown} |")
    reached = sum(tables.of(point) is not None for point in points)
    coverage = f"Tables reach {reached} of {len(points)} points; not: " + "; ".join(tables.reasons)
    return "\n".join([*lines, "", coverage])
