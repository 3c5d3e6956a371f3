"""``python -m tests.studies.validation.learn_way_in``: what a request takes before its queue, beside tables of kernels.

By class of models, alpha0 and alpha1 of ``profiled`` (``ways_in`` of physics.yaml): the pair of a grid that explains
the points of the third that may be tuned on best, by the loss and priors of ``learn_by_class``. Then again, from points
of all thirds, without a family of models or a GPU; ``--save`` keeps these (``HELD_OUT``), by which ``make scoreboard``
judges what nobody has seen. Some minutes of CPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.studies.validation.learn_by_class import (
    HELD_OUT,
    NOISE,
    PER_GROUP,
    PRIORS,
    certain,
    class_of,
    drawn,
    splits,
)
from tests.studies.validation.scoreboard.points import all_points, default_data
from tests.studies.validation.silicon import Prepared, prepare
from tests.studies.validation.silicon_profiled import Tables, errors

GRID = {
    "alpha0": (6000, 8000, 10_000, 12_000, 15_000, 18_000, 22_000, 27_000, 33_000),
    "alpha1": (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0),
}
"""µs, and µs per prompt token; all exact in binary."""
PAIRS = list(itertools.product(*GRID.values()))


MIDDLE = (15_000, 4.0)
"""The pair with which points are simulated."""


def of_pairs(points: Sequence[Prepared], tables: Tables) -> np.ndarray:
    """Return log(simulated / measured) for each pair of the grid, [pair, point, TTFT or TPOT].

    A point is simulated once. Another pair moves its TTFT by what it adds: some ms of each request's seconds hardly
    change what the engine has to do meanwhile.
    """
    found = errors(points, tables, **dict(zip(GRID, MIDDLE, strict=True)))
    measured = np.array([ready.point.ttft_ms for ready in points]) * 1e3
    prompts = np.array([ready.requests.prompt_tokens.mean() for ready in points])
    added = np.stack([first - MIDDLE[0] + (each - MIDDLE[1]) * prompts for first, each in PAIRS])
    ttft = np.log((measured * np.exp(found[:, 0]) + added) / measured)
    return np.stack([ttft, np.broadcast_to(found[:, 1], ttft.shape)], axis=-1)


def learn(kind: str, points: Sequence[Prepared], found: np.ndarray) -> dict[str, float]:
    """Return the pair whose errors, ``found`` by ``of_pairs``, are least."""
    groups = [(ready.point.model, ready.point.gpu) for ready in points]
    weight = np.array([(PER_GROUP / Counter(groups)[group]) ** 0.5 for group in groups])
    expected, width = np.array([PRIORS[kind][name] for name in GRID]).T
    apart = np.log(np.array(PAIRS) / expected) / width
    off = np.clip(found, -3, 3) / NOISE * weight[:, None]
    losses = [np.sqrt(1 + each**2).sum(axis=tuple(range(1, each.ndim))) for each in (off, apart)]
    return dict(zip(GRID, PAIRS[int(np.argmin(losses[0] + losses[1]))], strict=True))


def main() -> None:
    """Print the alphas of each class, and those without each family and GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    measured, tables = all_points(options.data), Tables(options.data)
    kept: dict[str, dict[str, float]] = {}
    for kind in PRIORS:
        reached = [point for point in measured if class_of(point) == kind and tables.of(point)]
        ours = certain(prepare(drawn([point for point in reached if point.is_ours_to_tune])), measured)
        print(kind, len(ours), learn(kind, ours, of_pairs(ours, tables)), flush=True)
        sure = certain(prepare(drawn(reached)), measured)
        found = of_pairs(sure, tables)
        for name, is_out in splits(kind).items():
            used = [not is_out(ready.point) for ready in sure]
            alphas = learn(kind, list(itertools.compress(sure, used)), found[:, used])
            kept[f"profiled, {kind}: {name}"] = alphas
            print(name, sum(used), alphas, flush=True)
    if options.save:
        HELD_OUT.write_text(json.dumps(json.loads(HELD_OUT.read_text()) | kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
