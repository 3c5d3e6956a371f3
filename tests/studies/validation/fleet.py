"""What minutes of arithmetic cost in accuracy: the analytic profile beside the engine, against measured servers.

The same points and the same latency model (physics, unfitted) as in ``tests.studies.validation.silicon``. Output
tokens per second of a closed loop: measured from TTFT and TPOT by Little's law, simulated by the engine, and by
formula from a profile of the model at the point's lengths; "computed": the same from a profile that the tables of
models and GPUs give (roofline, as ``vtwin fleet profile --model``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from replay.fleet.inputs.profiles import from_twin
from replay.twin.twin_config import TwinConfig
from sim import LatencyModel, PeakTimes, Roofline
from sim.fleet import Lengths
from tests.studies.validation import silicon


def by_formula(ready: silicon.Prepared, make: Callable[[PeakTimes], LatencyModel] | None = None) -> float:
    """Return output tokens per second of as many requests at once as the point has; ``make`` None: physics."""
    point = ready.point
    lengths = Lengths(
        input_tokens=ready.requests.prompt_tokens.astype(np.float64),
        output_tokens=ready.requests.output_tokens.astype(np.float64),
    )
    twin = cast(
        "TwinConfig",
        SimpleNamespace(
            engine=ready.engine,
            latency=(make or silicon.physics())(ready.peak),
            num_gpus={},
            kv_bytes_per_token=None,
        ),
    )
    profile = from_twin(twin, lengths, context=point.isl + point.osl, name="point").profile
    busy = profile.busy(lengths)
    there = min(point.concurrency, profile.slots_for(lengths, point.isl + point.osl))
    rate = there / (busy.mean_iterations * busy.iteration_s(there))
    return rate * float(lengths.output_tokens.mean())


def of_loop(point: silicon.Point, ttft_ms: float, tpot_ms: float) -> float:
    """Return output tokens per second of a closed loop with these means."""
    return point.concurrency * point.osl / (ttft_ms + tpot_ms * (point.osl - 1)) * 1e3


def table(data: Path) -> str:
    """Return the Markdown table: error of throughput per class of model, by formula and by the engine."""
    points, _ = silicon.read_points(data / "vllm_agg.csv")
    judged = silicon.prepare(point for point in points if not point.is_ours_to_tune)
    ways: dict[str, Callable[[silicon.Prepared], float]] = {
        "formula": by_formula,
        "computed": lambda ready: by_formula(ready, lambda peak: Roofline(peak=peak)),
        "engine": lambda ready: of_loop(ready.point, *silicon.simulated(ready, silicon.physics())),
    }
    measured = np.array([of_loop(each.point, each.point.ttft_ms, each.point.tpot_ms) for each in judged])
    off = {name: np.array([way(each) for each in judged]) / measured - 1 for name, way in ways.items()}
    kinds = [silicon.MODEL_CLASSES[each.point.model] for each in judged]
    gap = (1 + off["formula"]) / (1 + off["engine"]) - 1
    lines = [
        "| points | n | by | mean error % | median of the absolute % | p90 % |",
        "|---|---|---|---|---|---|",
    ]
    for kind in sorted(set(kinds)):
        chosen = np.array([each == kind for each in kinds])
        for name, errors in {**off, "formula against engine": gap}.items():
            values = errors[chosen] * 100
            lines.append(
                f"| {kind} | {chosen.sum()} | {name} | {values.mean():+.1f} | {np.median(np.abs(values)):.1f} | "
                f"{np.quantile(np.abs(values), 0.9):.1f} |"
            )
    return "\n".join(lines)
