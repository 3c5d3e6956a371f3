"""``python -m tests.validation.learn_way_in``: what a request takes before its queue, beside tables of kernels.

By class of models, alpha0 and alpha1 of ``profiled`` (``ways_in`` of physics.yaml), learned as coefficients of physics
are (``learn_by_class``): from points of the third that may be tuned on. Then again, from points of all thirds, without
a family of models or a GPU; ``--save`` keeps these (``HELD_OUT``), by which ``make scoreboard`` judges what nobody has
seen. Some minutes of CPU, most of them for tables that are trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.validation.learn_by_class import HELD_OUT, PRIORS, certain, class_of, drawn, fitted, splits
from tests.validation.scoreboard.points import all_points, default_data
from tests.validation.silicon import Prepared, prepare
from tests.validation.silicon_profiled import Tables, errors

NAMES = ("alpha0", "alpha1")


def rounded(values: Sequence[float]) -> dict[str, float]:
    """Return alpha0 in whole µs and alpha1 in eighths, which are exact in binary."""
    return {"alpha0": round(values[0]), "alpha1": round(8 * values[1]) / 8}


def learn(kind: str, points: Sequence[Prepared], tables: Tables) -> dict[str, float]:
    """Return the alphas that explain the points best."""
    x = fitted(
        points,
        lambda x: errors(points, tables, **dict(zip(NAMES, np.exp(x).tolist(), strict=True))),
        [PRIORS[kind][name] for name in NAMES],
        evaluations=6,
    )
    return rounded(np.exp(x).tolist())


def main() -> None:
    """Print the alphas of each class, and those without each family and GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    measured, tables = all_points(options.data), Tables(options.data)
    kept: dict[str, dict[str, float]] = {}
    for kind in PRIORS:
        points = drawn([point for point in measured if class_of(point) == kind and tables.of(point)])
        sure = certain(prepare(points), measured)
        print(kind, learn(kind, [each for each in sure if each.point.is_ours_to_tune], tables), flush=True)
        for name, is_out in splits(kind).items():
            if any(is_out(point) for point in points):
                alphas = learn(kind, [each for each in sure if not is_out(each.point)], tables)
                kept[f"profiled, {kind}: {name}"] = alphas
                print(name, alphas, flush=True)
    if options.save:
        HELD_OUT.write_text(json.dumps(json.loads(HELD_OUT.read_text()) | kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
