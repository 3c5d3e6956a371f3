"""The table of many runs, as a function; ``vtwin sweep`` computes the same, stores each row, and shows the front."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from replay.console.ready import load_engine
from replay.numbers.argument_ranges import JOBS
from replay.sweeps.backends import rows_of
from replay.sweeps.grid import read_grid
from traces.strict.arguments import PATH, takes


@takes(grid=PATH, jobs=JOBS)
def sweep(grid: Path | str, *, jobs: int | None = None) -> pd.DataFrame:
    """Return the table of GRID.yaml's runs, a row each in the order of the grid; ``error`` says why a run has none.

    ``jobs``: processes, None: one for each core. Nothing is kept on disk. Raises ConfigError on a wrong grid.
    """
    runs = read_grid(Path(grid)).runs
    load_engine()  # once, before several processes would compile it side by side
    rows = {
        str(row["run"]): row for row in rows_of(runs, backend="processes", jobs=jobs or os.cpu_count() or 1)
    }
    return pd.DataFrame([rows[run.digest] for run in runs])
