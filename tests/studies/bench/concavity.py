"""Which form the cost of more sequences in a step has: ``python -m tests.studies.bench.concavity [DATA]``.

On AIConfigurator's silicon points, TPOT over the number of users. Per server, the step's overhead and the cost of a
decode token are fitted to the points with few users, and those with more are predicted.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from replay.model import find_gpu
from replay.model.expectations import expected_coefficients
from tests.studies.validation.silicon import MODEL_CLASSES, Point, read_points, shape_of

Floats = NDArray[np.float64]

DATA = Path(__file__).parents[3] / ".." / "shared" / "data" / "aiconfigurator_silicon"
LEAST_POINTS = 5
SHORTEST = 0.9
"""Mean length as a share of the nominal one (``tests.studies.validation.silicon``)."""
NOISE = 0.03
STEP_US, DECODE_US = 1500.0, 50.0
"""vLLM's own time per step and per decode token to start from; held loosely."""
FORMS = {
    "D": lambda d: np.stack([np.ones_like(d), d], 1),
    "D^0.8": lambda d: np.stack([np.ones_like(d), d**0.8], 1),
    "D^0.5": lambda d: np.stack([np.ones_like(d), d**0.5], 1),
    "log(1 + D/32)": lambda d: np.stack([np.ones_like(d), np.log1p(d / 32)], 1),
    "1 - exp(-D/64)": lambda d: np.stack([np.ones_like(d), 1 - np.exp(-d / 64)], 1),
    "D/(1 + D/64)": lambda d: np.stack([np.ones_like(d), d / (1 + d / 64)], 1),
    "D and root of D": lambda d: np.stack([np.ones_like(d), d, d**0.5], 1),
}

Key = tuple[str, str, bool, int, int, int]


def series(points: list[Point]) -> dict[Key, list[Point]]:
    """Return the points by server and lengths, in order of users; those that contradict their neighbours left out."""
    found: dict[Key, dict[int, list[Point]]] = defaultdict(dict)
    for point in points:
        key = (point.model, point.gpu, point.fp8, point.tp, point.isl, point.osl)
        found[key].setdefault(point.concurrency, []).append(point)
    kept = {}
    for key, by_users in found.items():
        rows = [each[0] for _, each in sorted(by_users.items())]
        times = [np.mean([each.tpot_ms for each in by_users[row.concurrency]]) for row in rows]
        if len(rows) >= LEAST_POINTS and (np.diff(times) > 0).all() and "8B" not in key[0]:
            kept[key] = rows
    return kept


def kind_of(point: Point) -> str:
    """Return whether a model has experts."""
    return MODEL_CLASSES[point.model].split(",")[0]


def extrapolated(rows: list[list[Point]], concavity: float, share: float) -> Floats:
    """Return the relative errors of a server's points beyond a ``share`` of its most users, fitted below."""
    first = rows[0][0]
    known = expected_coefficients(shape_of(first), find_gpu(first.gpu), tp=first.tp)
    priors = [known[name] for name in ("floor", "beta1", "beta3")]
    centre = np.log([*(each.value for each in priors), STEP_US, DECODE_US])
    width = np.array([*(each.relative_width for each in priors), 1.5, 2.0])
    low = [each for line in rows for each in line if each.concurrency <= share * line[-1].concurrency]
    high = [each for line in rows for each in line if each.concurrency > share * line[-1].concurrency]
    if len(low) < LEAST_POINTS - 1:
        return np.zeros(0)

    def off(x: Floats, points: list[Point]) -> Floats:
        floor, beta1, beta3, beta0, beta2 = np.exp(x)
        users = np.array([each.concurrency for each in points], np.float64)
        prompts, answers = (
            SHORTEST * np.array([getattr(each, name) for each in points], np.float64)
            for name in ("isl", "osl")
        )
        tokens, context = users * (1 + prompts / answers), users * (prompts + answers / 2)
        step = beta0 + np.hypot(floor, beta1 * tokens) + beta2 * users ** (1 - concavity) + beta3 * context
        return np.asarray(step / (1e3 * np.array([each.tpot_ms for each in points])))

    found = least_squares(
        lambda x: np.concatenate([np.log(off(x, low)) / NOISE, (x - centre) / width]), centre, loss="soft_l1"
    )
    return off(found.x, high) - 1


def alone(rows: list[Point], form: str, left: int) -> float:
    """Return the relative error of a series' last point, the form alone fitted to all but the last ``left``."""
    users = np.array([each.concurrency for each in rows], np.float64)
    times = np.array([each.tpot_ms for each in rows])
    columns = FORMS[form]
    x, _ = nnls(columns(users[:-left]) / times[:-left, None], np.ones(len(rows) - left))
    return float((columns(users[-1:]) @ x)[0] / times[-1] - 1)


def main() -> None:
    """Print both tables."""
    points, _ = read_points((Path(sys.argv[1]) if sys.argv[1:] else DATA) / "vllm_agg.csv")
    found = series(points)
    servers: dict[tuple[object, ...], list[list[Point]]] = defaultdict(list)
    for key, rows in found.items():
        servers[key[:4]].append(rows)
    print("| kind | concavity | n | mean abs. error % | median error % |\n|---|---|---|---|---|")
    for kind in ("dense", "MoE"):
        for concavity in (0.0, 0.1, 0.3, 0.5, 0.7):
            off = np.concatenate(
                [
                    extrapolated(rows, concavity, 0.25)
                    for rows in servers.values()
                    if kind_of(rows[0][0]) == kind
                ]
            )
            print(
                f"| {kind} | {concavity} | {len(off)} | {100 * np.abs(off).mean():.1f} | {100 * np.median(off):+.1f} |"
            )
    print("\n| kind | form alone | n | mean abs. error % | mean error % |\n|---|---|---|---|---|")
    for kind in ("dense", "MoE"):
        chosen = [rows for rows in found.values() if kind_of(rows[0]) == kind and rows[0].isl <= rows[0].osl]
        for form in FORMS:
            off = np.array([alone(rows, form, 2) for rows in chosen])
            print(
                f"| {kind} | {form} | {len(off)} | {100 * np.abs(off).mean():.1f} | {100 * off.mean():+.1f} |"
            )


if __name__ == "__main__":
    main()
