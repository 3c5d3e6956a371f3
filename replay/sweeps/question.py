"""The table of many runs, as a function; ``vtwin sweep`` computes the same, stores each row, and shows the front."""

from __future__ import annotations

import os
from collections.abc import Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

import pandas as pd

from replay.console.ready import load_engine
from replay.numbers.argument_ranges import JOBS
from replay.sweeps.backends import rows_of
from replay.sweeps.front import NOT_SETTINGS, Front, front_of
from replay.sweeps.grid import SweepRun, doubts_of_configs, read_grid
from replay.sweeps.one_run import check_any_starts
from replay.sweeps.show import front_document, front_parts
from traces.facts import terminal_lines
from traces.strict.arguments import PATH, TEXT, takes


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepFront:
    """The settings of a sweep that no other beats in two figures. ``warnings``: why not to trust some twins."""

    front: Front
    warnings: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        """Return what ``vtwin sweep --json`` prints, in the units of the table."""
        return {**front_document(self.front), "warnings": list(self.warnings)}

    def __str__(self) -> str:
        """Return what the terminal shows."""
        return "\n".join(terminal_lines(front_parts(self.front), width=None))


@takes(grid=PATH, x=TEXT, y=TEXT)
def find_front(
    grid: Path | str, table: pd.DataFrame, *, x: str | None = None, y: str | None = None
) -> SweepFront:
    """Return the Pareto front of the runs of GRID.yaml; ``table``: theirs, of which some have a result.

    ``x``, ``y``: figures of the table; None: throughput, or its price where there is one, and E2E p99. Raises
    ConfigError on a wrong grid, or a figure that the table lacks.
    """
    return front_of_runs(read_grid(Path(grid)).runs, table, x=x, y=y)


def front_of_runs(
    runs: Sequence[SweepRun], table: pd.DataFrame, *, x: str | None, y: str | None
) -> SweepFront:
    """Return the front of runs with their table."""
    names = dict.fromkeys(name for run in runs for name in run.columns() if name not in NOT_SETTINGS)
    return SweepFront(front=front_of(table, tuple(names), x=x, y=y), warnings=tuple(doubts_of_configs(runs)))


@takes(grid=PATH, jobs=JOBS)
def sweep(grid: Path | str, *, jobs: int | None = None) -> pd.DataFrame:
    """Return the table of GRID.yaml's runs, a row each in the order of the grid; ``error`` says why a run has none.

    ``jobs``: processes, None: one for each core. Nothing is kept on disk. Raises ConfigError on a wrong grid, and
    where none of its twins, or of its loads, can be read.
    """
    runs = read_grid(Path(grid)).runs
    check_any_starts(runs)
    load_engine()  # once, before several processes would compile it side by side
    rows = {
        str(row["run"]): row for row in rows_of(runs, backend="processes", jobs=jobs or os.cpu_count() or 1)
    }
    return pd.DataFrame([rows[run.digest] for run in runs])
