"""How far the grids of layers' tables are off at points that they have not seen.

``python -m tests.studies.validation.layer_profiles``. One point in five by a hash, none at an end, of each shape of
each table under VTWIN_DATA.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from calibrate.predictor.training import held_out
from tests.studies.validation.layer_tables import grid_times, read_layer_tables

GPUS = ("H100", "B200", "H200")
MOST_SHAPES, FEWEST_POINTS = 150, 15


def errors_of(path: Path) -> np.ndarray:
    """Return absolute relative errors at held-out points, of at most MOST_SHAPES shapes drawn at random."""
    tables = [each.table for each in read_layer_tables(path) if len(each.table.points) >= FEWEST_POINTS]
    drawn = np.random.default_rng(0).permutation(len(tables))[:MOST_SHAPES]
    found = [np.zeros(0)]
    for table in (tables[number] for number in drawn):
        unseen = held_out(table.points)
        if unseen.any():
            told = grid_times(table.points[~unseen], table.time_us[~unseen], table.points[unseen])
            found.append(np.abs(told / table.time_us[unseen] - 1))
    return np.concatenate(found)


def main() -> None:
    """Print the table of the page on latency models."""
    root = Path(os.environ["VTWIN_DATA"]) / "aiconfigurator_ops"
    places = [
        *((root / "b200_sxm").glob("*/vllm/0.24.0/*.parquet")),
        *((root / "b200_sxm").glob("kda/vllm/*/*.parquet")),
    ]
    print(f"| table | {' | '.join(GPUS)} |\n|---|--:|--:|--:|")
    for place in sorted(places):
        cells = []
        for gpu in GPUS:
            off = errors_of(root / f"{gpu.lower()}_sxm" / place.relative_to(root / "b200_sxm"))
            cells.append(
                f"{100 * np.median(off):.1f} / {100 * np.quantile(off, 0.9):.0f}" if len(off) else "-"
            )
        print(
            f"| {place.parents[2].name}, {place.stem.removesuffix('_perf')} | {' | '.join(cells)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
