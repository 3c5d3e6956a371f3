"""The coefficients of physics from the third of the silicon points for tuning.

``python -m tests.studies.validation.learn``.

Robust least squares on the logs of mean TTFT and TPOT, the simulator in the loop, and wide priors on the logs of the
coefficients, so that what the points do not tell stays plausible. A minute or two of CPU.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from sim import LatencyModel, PeakTimes, Physics
from tests.studies.validation.silicon import (
    MODEL_CLASSES,
    Prepared,
    log_errors,
    prepare,
    read_points,
    simulated,
    without_measured,
)

# name: (expected, how far off it may well be, as a standard deviation of the log)
PRIORS = {
    "alpha0": (15_000.0, 0.4),
    "prefill_compute": (1.4, 0.3),
    "expert_compute": (2.0, 0.7),
    "prefill_attention": (2.0, 0.4),
    "decode_kv": (1.25, 0.3),
    "weights": (1.2, 0.15),
    "expert_weights": (1.3, 0.3),
    "activation": (1.5, 0.7),
    "tensor_parallel": (1.0, 0.4),
    "layer_us": (12.0, 0.7),
    "moe_layer_us": (20.0, 0.7),
    "all_reduce_us": (12.0, 0.6),
    "request_us": (8.0, 0.8),
    "step_us": (400.0, 0.8),
    "expert_tile": (32.0, 0.7),
}
NOISE = np.array([0.20, 0.10])
"""How far TTFT and TPOT of a point may be off where nothing is wrong."""
WEIGHTS = {"dense": 1.3, "MoE": 0.8, "MoE, MLA": 0.8}
CHEAPEST = 0.85
"""Share of the points that are used: the others, long and crowded, take most of the time."""

STEP = 0.08
"""Change of a coefficient's log that slopes are taken over."""

Floats = np.ndarray


def coefficients(x: Floats) -> dict[str, float]:
    """Return physics' coefficients from the logs of those that are learned; the others are tied to them or held."""
    learned = dict(zip(PRIORS, np.exp(x).tolist(), strict=True))
    tied = {
        "decode_compute": learned["prefill_compute"],
        "decode_attention": learned["prefill_attention"],
        "head": learned["weights"],
        "prefill_kv": learned["decode_kv"],
    }
    return learned | tied


def maker(x: Floats) -> Callable[[PeakTimes], LatencyModel]:
    """Return what makes physics of these logs."""
    values = coefficients(x)
    return lambda peak: Physics(peak=without_measured(peak), **values)  # type: ignore[arg-type]


def cheap(prepared: list[Prepared], x: Floats) -> list[Prepared]:
    """Return the points that take the least time to simulate."""
    seconds = []
    for ready in prepared:
        started = time.process_time()
        simulated(ready, maker(x))
        seconds.append(time.process_time() - started)
    order = np.argsort(seconds)[: int(CHEAPEST * len(prepared))]
    return [prepared[number] for number in sorted(order)]


def learn(prepared: list[Prepared], *, evaluations: int) -> dict[str, float]:
    """Return the coefficients that explain the points best."""
    expected = np.log([value for value, _ in PRIORS.values()])
    width = np.array([spread for _, spread in PRIORS.values()])
    points = cheap(prepared, expected)
    weight = np.array([WEIGHTS[MODEL_CLASSES[ready.point.model]] for ready in points])[:, None]

    def residuals(x: Floats) -> Floats:
        errors = np.clip(log_errors(points, maker(x)), -3, 3) / NOISE * weight
        return np.concatenate([errors.ravel(), (x - expected) / width])

    def slopes(x: Floats) -> Floats:
        here = residuals(x)
        return np.stack([(residuals(x + row) - here) for row in STEP * np.eye(len(x))], axis=1) / STEP

    found = least_squares(
        residuals, expected, jac=slopes, loss="soft_l1", max_nfev=evaluations, verbose=2, x_scale=width
    )
    return coefficients(found.x)


def main() -> None:
    """Print the coefficients as lines of physics.yaml."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("VTWIN_DATA", "../shared/data")))
    parser.add_argument("--evaluations", type=int, default=10)
    options = parser.parse_args()
    points, _ = read_points(options.data / "aiconfigurator_silicon" / "vllm_agg.csv")
    prepared = prepare(point for point in points if point.is_ours_to_tune)
    for name, value in learn(prepared, evaluations=options.evaluations).items():
        print(f"      {name}: {float(f'{value:.5g}')}")


if __name__ == "__main__":
    main()
