"""The coefficients of physics for a class of models.

``python -m tests.studies.validation.learn_by_class dense`` (or ``MoE``).

Mixtures of experts are those whose experts' time was measured. From at most ten points of each model and GPU, of the
third that may be tuned on, those that take long left out. Robust least squares on the logs of mean TTFT and TPOT, the
simulator in the loop, priors around what is plausible. Then again, from points of all thirds, without a family of
models or a GPU, which is judged. A few minutes of CPU. ``--save`` keeps the coefficients of each (``HELD_OUT``), with
which ``make scoreboard`` judges what nobody has seen.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from replay.twin.latency import physics_sets
from sim import LatencyModel, PeakTimes, Physics
from tests.studies.validation.scoreboard.points import all_points, broken, default_data
from tests.studies.validation.silicon import MODEL_CLASSES, Point, Prepared, log_errors, prepare

# name: (expected, how far off it may well be, as a standard deviation of the log)
OF_ALL = {
    "alpha0": (18_000.0, 0.6),
    "alpha1": (3.0, 0.4),
    "prefill_compute": (1.5, 0.3),
    "prefill_attention": (2.07, 0.4),
    "weights": (1.15, 0.12),
    "decode_kv": (1.3, 0.12),
    "layer_us": (25.0, 0.8),
    "all_reduce_us": (12.0, 0.6),
    "request_us": (13.5, 0.8),
    "step_us": (300.0, 0.8),
    "tensor_parallel": (1.86, 0.5),
    "activation": (0.7, 0.7),
}
OF_MIXTURES = {"moe_layer_us": (5.0, 1.2), "block_us": (10.0, 1.0), "latent_us": (15.0, 0.8)}
PRIORS: Mapping[str, Mapping[str, tuple[float, float]]] = {"dense": OF_ALL, "MoE": OF_ALL | OF_MIXTURES}
NOISE = np.array([0.12, 0.08])
"""How far TTFT and TPOT of a point may be off where nothing is wrong."""
MOST_TOKENS, PER_GROUP = 48 * 1024, 10
"""Users times output tokens of a point that is used; and points of a model on a GPU."""
DOUBTFUL = {"nvidia/Llama-3.1-8B-Instruct-FP8": 0, "Qwen/Qwen3-235B-A22B-FP8": 0, "openai/gpt-oss-120b": 512}
"""Models whose points of so many users, and more, contradict the others' (docs/validation.md): nothing is learned."""
HELD_OUT = Path(__file__).parent / "scoreboard" / "held_out.json"
"""By class and what was left out, the coefficients that were learned without it."""
SHIPPED = {"dense": "dense-2026", "MoE": "experts-2026"}
"""The sets of physics.yaml by class."""
STEP = 0.05
"""Change of a coefficient's log that slopes are taken over."""

Floats = np.ndarray


def class_of(point: Point) -> str:
    """Return which of the classes a point's model is of."""
    return MODEL_CLASSES[point.model].split(",")[0]


def certain(points: Sequence[Prepared], measured: Sequence[Point]) -> list[Prepared]:
    """Return the points that something is learned from: neither broken by a rule nor of a doubtful set."""
    bad = broken(points, measured)
    return [
        each
        for each in points
        if each.point.id not in bad and each.point.concurrency < DOUBTFUL.get(each.point.model, 1 << 30)
    ]


def drawn(points: Sequence[Point]) -> list[Point]:
    """Return at most ten points of each model and GPU, drawn among those that are simulated fast."""
    groups: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        if point.concurrency * point.osl <= MOST_TOKENS:
            groups[point.model, point.gpu].append(point)
    rng = np.random.default_rng(11)
    return [
        group[number]
        for _, group in sorted(groups.items())
        for number in rng.permutation(len(group))[:PER_GROUP]
    ]


def coefficients(kind: str, x: Floats) -> dict[str, float]:
    """Return physics' coefficients from the logs of those that are learned; the others are tied to them or held."""
    learned = dict(zip(PRIORS[kind], np.exp(x).tolist(), strict=True))
    tied = {
        "decode_compute": learned["prefill_compute"],
        "decode_attention": learned["prefill_attention"],
        "head": learned["weights"],
        "prefill_kv": learned["decode_kv"],
        "norm_us": learned["all_reduce_us"],
    }
    return physics_sets()["silicon-2026"] | learned | tied


def shipped(kind: str) -> Floats:
    """Return the logs of the coefficients that ship: a search for all of them goes on from there."""
    values = physics_sets()[SHIPPED[kind]]
    return np.log([float(values[name]) for name in PRIORS[kind]])


def maker(kind: str, x: Floats) -> Callable[[PeakTimes], LatencyModel]:
    """Return what makes physics of these logs."""
    values = coefficients(kind, x)
    return lambda peak: Physics(peak=peak, **values)  # type: ignore[arg-type]


def learn(
    kind: str, points: Sequence[Prepared], *, start: Floats | None = None, evaluations: int = 6
) -> Floats:
    """Return the logs of the coefficients that explain the points best, each model and GPU as much as its root.

    ``start``: where the search begins; None: at what is expected.
    """
    expected = np.log([value for value, _ in PRIORS[kind].values()])
    width = np.array([spread for _, spread in PRIORS[kind].values()])
    sizes = Counter((each.point.model, each.point.gpu) for each in points)
    weight = np.array([(PER_GROUP / sizes[each.point.model, each.point.gpu]) ** 0.5 for each in points])

    def residuals(x: Floats) -> Floats:
        errors = np.clip(log_errors(points, maker(kind, x)), -3, 3) / NOISE * weight[:, None]
        return np.concatenate([errors.ravel(), (x - expected) / width])

    def slopes(x: Floats) -> Floats:
        here = residuals(x)
        return np.stack([residuals(x + row) - here for row in STEP * np.eye(len(x))], axis=1) / STEP

    found = least_squares(
        residuals,
        expected if start is None else start,
        jac=slopes,
        loss="soft_l1",
        max_nfev=evaluations,
        x_scale=width,
    )
    return np.asarray(found.x)


GPU_SPLITS: Mapping[str, tuple[str, ...]] = {
    "B200 and B300 left out": ("B200", "B300"),
    "H200 left out": ("H200",),
    "H100 left out": ("H100",),
}


def splits(kind: str) -> dict[str, Callable[[Point], bool]]:
    """Return what is left out, by its name: a generation, a GPU, a family of models of the class."""
    of_gpus = {name: lambda point, gpus=gpus: point.gpu in gpus for name, gpus in GPU_SPLITS.items()}
    families = [model for model, its in MODEL_CLASSES.items() if its.split(",")[0] == kind]
    return of_gpus | {
        f"{model.split('/')[1]} left out": lambda point, model=model: point.model == model  # type: ignore[misc]
        for model in families
    }


def line(name: str, errors: Floats) -> str:
    """Return a row: medians of the absolute errors, and of the errors."""
    ttft, tpot = np.expm1(errors).T * 100
    figures = [f"{np.median(abs(each)):.1f} | {np.median(each):+.1f}" for each in (tpot, ttft)]
    return f"| {name} | {len(errors)} | {' | '.join(figures)} |"


def main() -> None:
    """Print the coefficients as lines of physics.yaml, and the errors with families and GPUs left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=PRIORS)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    kind: str = options.kind
    measured = all_points(options.data)
    points = [point for point in measured if class_of(point) == kind]
    tuned = prepare(drawn([point for point in points if point.is_ours_to_tune]))
    x = learn(kind, certain(tuned, measured), start=shipped(kind))
    for name, value in coefficients(kind, x).items():
        print(f"      {name}: {float(f'{value:.5g}')}", flush=True)
    ready = prepare(drawn(points))
    sure, bad = certain(ready, measured), broken(ready, measured)
    kept: dict[str, dict[str, float]] = {}
    found: dict[str, list[Floats]] = {"families, each left out": [], "GPUs, each left out": []}
    for name, is_out in splits(kind).items():
        held = [each for each in ready if is_out(each.point) and each.point.id not in bad]
        if not held:
            continue
        learned = learn(kind, [each for each in sure if not is_out(each.point)])
        errors = log_errors(held, maker(kind, learned))
        kept[f"{kind}: {name}"] = {
            key: float(f"{value:.5g}") for key, value in coefficients(kind, learned).items()
        }
        print(line(name, errors), flush=True)
        found["GPUs, each left out" if name in GPU_SPLITS else "families, each left out"].append(errors)
        for group in sorted({(each.point.model, each.point.gpu) for each in held}):
            own = [n for n, each in enumerate(held) if (each.point.model, each.point.gpu) == group]
            print(line(f"- {group[0].split('/')[1]}, {group[1]}", errors[own]))
    for name, each in found.items():
        print(line(name, np.concatenate(each)))
    if options.save:
        others = {
            name: each
            for name, each in json.loads(HELD_OUT.read_text()).items()
            if kind != name.split(":")[0]
        }
        HELD_OUT.write_text(json.dumps(others | kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
