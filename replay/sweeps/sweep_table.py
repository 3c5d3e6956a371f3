"""The table of a sweep: a row per run, stored as it ends, so that an interrupted sweep can continue."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Hashable, Mapping, Sequence
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pandas as pd

from replay.sweeps.grid import SweepRun
from replay.sweeps.one_run import Row
from traces import ConfigError, atomic_file, cut, make_folder
from traces.strict.json_text import parse_value

DIGEST: Final = "row_digest"
"""The column, and the key of a waiting row, that says whether the row is as it was written."""
OF_A_TABLE: Final = ("run", "error", DIGEST)
"""Columns that every sweep's table has."""
NOT_DIGESTED: Final = (DIGEST, "engine_cpu_s")
"""Not of a row's digest: the digest itself, and what is of this machine at this hour."""
MOST_BYTES: Final = 1 << 20
"""The largest row that may wait; a row has a few kB."""
MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A sweep's rows on disk, by their run's digest, and a text for each damaged row."""

    rows: dict[str, Row] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)

    def note(self) -> str | None:
        """Return the line about what is damaged; None where nothing is."""
        if not self.damaged:
            return None
        more = f", and {len(self.damaged) - MOST_NAMED:,} more" if len(self.damaged) > MOST_NAMED else ""
        count = f"{len(self.damaged):,} row{'s' * (len(self.damaged) > 1)} kept before"
        return f"{count}, damaged or altered, simulated again: {'; '.join(self.damaged[:MOST_NAMED])}{more}"


class DamagedRowError(ValueError):
    """A row that is not as it was written; its text says why."""


def parts_folder(table: Path) -> Path:
    """Return the folder that rows wait in until the table is written."""
    return table.with_name(f"{table.name}.parts")


def digest_of(row: Mapping[str, object]) -> str:
    """Return the sha256 of a row's figures, the same before and after they were in a table.

    In a table 4 may be 4.0, and missing values are left out of the digest.
    """
    figures = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in row.items()
        if value is not None and name not in NOT_DIGESTED
    }
    return hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()


def known_rows(table: Path, runs: Sequence[SweepRun], *, option: str = "--output") -> Known:
    """Return the rows of these runs that are on disk already: of the table, or of a sweep cut short.

    Not those of runs that ended in an error, nor damaged rows: these runs are repeated. ``option``: which names the
    table. Raises ConfigError on a file that is not a sweep's table.
    """
    wanted, known = {run.digest: run for run in runs}, Known()
    found = _rows_of_table(table, wanted, known.damaged, option=option)
    folder = parts_folder(table)
    for name in sorted(wanted.keys() & {part.stem for part in folder.glob("*.json")}):
        try:
            found[name] = _read_part(folder / f"{name}.json", name)
        except (DamagedRowError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            known.damaged.append(f"{folder.name}/{name}.json ({why})")
    for digest, row in found.items():
        if row["error"] is None:
            known.rows[digest] = {**row, **wanted[digest].columns()}  # its paths may be of another folder
    return known


def _rows_of_table(
    table: Path, wanted: Mapping[str, SweepRun], damaged: list[str], *, option: str
) -> dict[str, Row]:
    """Return the table's rows of these runs; adds to ``damaged`` those that are not as they were written."""
    found: dict[str, Row] = {}
    if not table.exists():
        return found
    for number, cells in enumerate(_records(_frame_of(table, option=option)), start=1):
        if cells is None:
            damaged.append(f"row {number:,} of {table.name} (text that is not UTF-8)")
            continue
        digest = cells["run"]
        if not isinstance(digest, str) or digest not in wanted:
            continue
        try:
            row = {str(key): _plain(value) for key, value in cells.items()}
            _check_digest(row, row.pop(DIGEST, None))
        except DamagedRowError as error:
            damaged.append(f"row {number:,} of {table.name} ({error})")
            continue
        found[digest] = row
    return found


def _frame_of(table: Path, *, option: str) -> pd.DataFrame:
    """Return a table that has a sweep's columns. Raises ConfigError."""
    expected = f"expected {'a new file or ' if option == '--output' else ''}the table of a sweep"
    try:
        frame = pd.read_parquet(table)
    except Exception as error:  # damaged bytes raise whatever the library comes upon
        said = cut(" ".join(str(error).split()))
        raise ConfigError(f"{option}: got {table}, {expected} ({said})") from error
    missing = [name for name in OF_A_TABLE if name not in frame.columns]
    if missing or not frame.columns.is_unique:
        which = f"without the column {missing[0]}" if missing else "with a column twice"
        raise ConfigError(f"{option}: got {table}, a table {which}, {expected}")
    return frame


def _records(frame: pd.DataFrame) -> list[dict[Hashable, object] | None]:
    """Return the cells of each row by column; None for a row whose bytes are no text."""
    try:
        return [dict(each) for each in frame.to_dict("records")]
    except UnicodeDecodeError:  # Parquet promises UTF-8, and Arrow looks at it when a cell is read
        return [_record(frame.iloc[[number]]) for number in range(len(frame))]


def _record(row: pd.DataFrame) -> dict[Hashable, object] | None:
    try:
        return dict(row.to_dict("records")[0])
    except UnicodeDecodeError:
        return None


def _plain(value: object) -> str | int | float | bool | None:
    """Return a cell as plain Python; what is missing as None. Raises DamagedRowError for a cell that no row has."""
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return None
    plain = value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value
    if not isinstance(plain, str | int | float | bool):
        raise DamagedRowError(f"a cell of {type(plain).__name__}")
    return plain


def _read_part(part: Path, digest: str) -> Row:
    """Return the row that waits in a file. Raises DamagedRowError and OSError."""
    if not part.is_file() or part.stat().st_size > MOST_BYTES:
        raise DamagedRowError(f"no file of at most {MOST_BYTES:,} bytes")
    try:
        row = parse_value(part.read_bytes())
    except ValueError as error:
        raise DamagedRowError("no JSON") from error
    if not isinstance(row, dict):
        raise DamagedRowError("no row")
    if not all(value is None or isinstance(value, str | int | float | bool) for value in row.values()):
        raise DamagedRowError("a value that no row has")
    _check_digest(row, row.pop(DIGEST, None))
    if row.get("run") != digest or "error" not in row:
        raise DamagedRowError("the row of another run")
    return row


def _check_digest(row: Mapping[str, object], written: object) -> None:
    if written != digest_of(row):
        raise DamagedRowError(f"its figures are not those of its {DIGEST}")


def keep(table: Path, row: Mapping[str, object]) -> None:
    """Write a row with its digest beside the table, as a whole or not at all. Raises ConfigError."""
    folder = parts_folder(table)
    make_folder(folder, option="--output")
    with atomic_file(folder / f"{row['run']}.json", option="--output") as part:
        part.write_text(json.dumps({**row, DIGEST: digest_of(row)}, allow_nan=False))


def write_table(table: Path, runs: Sequence[SweepRun], rows: Mapping[str, Row]) -> pd.DataFrame:
    """Write the table, in the grid's order, and delete the waiting rows; return it. Raises ConfigError."""
    frame = pd.DataFrame([rows[run.digest] for run in runs])
    for name in frame.columns:
        kinds = {type(row.get(str(name))) for row in rows.values()} - {type(None)}
        if kinds == {int}:
            frame[name] = frame[name].astype("Int64")  # whole numbers stay whole where some are missing
        elif len(kinds) > 1 and not kinds <= {int, float}:
            frame[name] = frame[name].map(lambda value: None if pd.isna(value) else str(value))
    plain = [{str(key): _plain(value) for key, value in row.items()} for row in frame.to_dict("records")]
    frame[DIGEST] = [digest_of(row) for row in plain]
    with atomic_file(table, option="--output") as file:
        frame.to_parquet(file, index=False)
    shutil.rmtree(parts_folder(table), ignore_errors=True)
    return frame
