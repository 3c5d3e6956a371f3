"""The files of a trace, found from any one of them."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from pathlib import Path

from traces.errors import ConfigError, TraceError
from traces.strict.swapped import check_no_twin

_SUFFIXES = (".itl.csv", ".itl.parquet", ".yaml", ".csv", ".parquet")

_FILES = (".yaml", ".csv", ".parquet", ".json", ".jsonl", ".gz")
"""Endings of a path that names a file rather than a stem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFiles:
    """The files of one trace; ``events`` is None where no event was recorded."""

    header: Path
    table: Path
    events: Path | None


def stem_of(path: str | Path) -> Path:
    """Return the path without the suffix of a trace's file; a stem may have dots of its own."""
    path = Path(path)
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix) and path.name != suffix:
            return path.with_name(path.name.removesuffix(suffix))
    return path


def check_is_place(stem: Path) -> None:
    """Raise ConfigError for ``-``, which elsewhere means stdout: a trace has several files."""
    if stem.name == "-":
        raise ConfigError(
            "--output: got -, expected a place for several files (--json prints the result on stdout)"
        )


def companion_file(stem: Path, suffix: str) -> Path:
    """Return the file ``STEM + suffix``. Raises ConfigError for a stem without a name, as ``.`` has none."""
    if stem.name in ("", ".."):
        raise ConfigError(f"--output: got {stem}, expected a trace's name")
    return stem.with_name(stem.name + suffix)


def locate(path: str | Path) -> TraceFiles:
    """Return the files of the trace that ``path`` names by its stem, its header, its table or its events.

    Raises TraceError where a named file, header or table is missing, or where two tables could be meant.
    """
    stem = stem_of(path)
    header = companion_file(stem, ".yaml")
    table = _table(Path(path), stem)
    if table is None and Path(path).suffix in _FILES and not Path(path).is_file():
        raise TraceError(
            f"{path}: no such file, expected a trace's stem, header or table, or a file of requests"
        )
    if table is None and not header.is_file():
        there = "a folder" if Path(path).is_dir() else "a file that is no trace"
        got = there if Path(path).exists() else "no such trace"
        raise TraceError(f"{path}: got {got}, expected {header.name} and {stem.name}.csv (or .parquet)")
    if table is None:
        check_no_twin(header)
        raise TraceError(
            f"{stem}: got a header without a table, expected {stem.name}.csv or .parquet next to it"
        )
    if not header.is_file():
        raise TraceError(f"{table}: got a table without a header, expected {header.name} next to it")
    return TraceFiles(header=header, table=table, events=_events(stem, table))


def _table(named: Path, stem: Path) -> Path | None:
    csv, parquet = companion_file(stem, ".csv"), companion_file(stem, ".parquet")
    if named in (csv, parquet):
        return named if named.is_file() else None
    found = [table for table in (csv, parquet) if table.is_file()]
    if len(found) > 1:
        raise TraceError(
            f"{stem}: got two tables, {csv.name} and {parquet.name}, expected one; name the one meant"
        )
    return found[0] if found else None


def _events(stem: Path, table: Path) -> Path | None:
    for suffix in (".itl" + table.suffix, ".itl.csv", ".itl.parquet"):
        if companion_file(stem, suffix).is_file():
            return companion_file(stem, suffix)
    return None
