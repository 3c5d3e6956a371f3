"""The table of a sweep: a row a run, kept as they come, so that an interrupted sweep goes on where it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from replay.plan.sweep.grid import Run
from replay.plan.sweep.one_run import Row
from traces.atomic import atomic_file, make_folder
from traces.errors import ConfigError


def parts_folder(table: Path) -> Path:
    """Return the folder that rows wait in until the table is written."""
    return table.with_name(f"{table.name}.parts")


def known_rows(table: Path, runs: Sequence[Run]) -> dict[str, Row]:
    """Return the rows of these runs that are on disk already, by digest: of the table, or of a sweep cut short.

    A run that ended in an error is none: it is tried again. Raises ConfigError on a file that is no such table.
    """
    wanted, found = {run.digest for run in runs}, {}
    if table.exists():
        try:
            frame = pd.read_parquet(table)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"--output: got {table}, expected a new file or the table of a sweep ({error})"
            ) from error
        if "run" not in frame.columns:
            raise ConfigError(
                f"--output: got {table}, a table without the column run, expected one of a sweep"
            )
        for row in frame.to_dict("records"):
            found[str(row["run"])] = {str(key): _plain(value) for key, value in row.items()}
    for part in sorted(parts_folder(table).glob("*.json")):
        row = json.loads(part.read_text())
        found[row["run"]] = row
    return {digest: row for digest, row in found.items() if digest in wanted and row.get("error") is None}


def _plain(value: object) -> str | int | float | bool | None:
    """Return a cell as plain Python; what is missing as None."""
    if pd.isna(value):  # type: ignore[call-overload]  # a cell is a scalar
        return None
    plain = value.item() if hasattr(value, "item") else value
    assert isinstance(plain, str | int | float | bool)  # noqa: S101 - as the table was written
    return plain


def keep(table: Path, row: Mapping[str, object]) -> None:
    """Write a row beside the table, as a whole or not at all. Raises ConfigError."""
    folder = parts_folder(table)
    make_folder(folder, option="--output")
    with atomic_file(folder / f"{row['run']}.json", option="--output") as part:
        part.write_text(json.dumps(row, allow_nan=False))


def write_table(table: Path, runs: Sequence[Run], rows: Mapping[str, Row]) -> pd.DataFrame:
    """Write the table, in the grid's order, and take the waiting rows away; return it. Raises ConfigError."""
    frame = pd.DataFrame([rows[run.digest] for run in runs])
    for name in frame.columns:
        kinds = {type(row.get(str(name))) for row in rows.values()} - {type(None)}
        if kinds == {int}:
            frame[name] = frame[name].astype("Int64")  # whole numbers stay whole where some are missing
        elif len(kinds) > 1 and not kinds <= {int, float}:
            frame[name] = frame[name].map(lambda value: None if pd.isna(value) else str(value))
    with atomic_file(table, option="--output") as file:
        frame.to_parquet(file, index=False)
    shutil.rmtree(parts_folder(table), ignore_errors=True)
    return frame
