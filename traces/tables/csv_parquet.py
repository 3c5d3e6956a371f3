"""Tables between disk and memory: CSV and Parquet in, Arrow's columns out, and back.

Only this module and ``csv_text`` call pyarrow; they translate its exceptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from traces.errors import TraceError
from traces.schema import Field
from traces.tables.arrow import arrow_type, first_line
from traces.tables.problems import Problem


def read_table(path: Path, fields: Mapping[str, Field]) -> tuple[pa.Table, list[Problem]]:
    """Return the file's columns in the types of ``fields`` (others as text) and what did not fit, nulled.

    Raises TraceError if the file is not a table, or lacks a required column.
    """
    if path.suffix == ".parquet":
        _check_names(_parquet_names(path), fields, file=path.name)
        return _read_parquet(path, fields)
    from traces.tables import csv_text

    names = csv_text.csv_names(path)
    _check_names(names, fields, file=path.name)
    return csv_text.read_csv(path, names, fields)


def write_csv(table: pa.Table, path: Path) -> None:
    """Write the table as CSV: a header line, LF, quotes only where a cell needs them, empty for null."""
    from traces.tables.csv_text import write_csv as write

    write(table, path)


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write the table as Parquet, compressed with zstd; the same table gives the same bytes."""
    pq.write_table(table, path, compression="zstd")


def _check_names(names: list[str], fields: Mapping[str, Field], *, file: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise TraceError(f"column {name}: got it twice, expected each column once ({file})")
    required = [field.name for field in fields.values() if field.required]
    missing = [name for name in required if name not in names]
    if missing:
        raise TraceError(
            f"column {missing[0]}: got a table without it, expected columns {', '.join(required)} ({file})"
        )


def _parquet_names(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceError(f"{path.name}: {first_line(error)}, expected a Parquet file ({path})") from error


def _read_parquet(path: Path, fields: Mapping[str, Field]) -> tuple[pa.Table, list[Problem]]:
    try:
        # not pq.read_table: it imports pandas, and takes columns from the names of folders
        with pq.ParquetFile(path) as file:
            table = file.read(use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise TraceError(f"{path.name}: {first_line(error)}, expected a Parquet file ({path})") from error
    columns, problems = {}, []
    for name in table.column_names:
        wanted = arrow_type(name, fields)
        try:
            columns[name] = table.column(name).cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if name not in fields:
                continue  # a foreign column that is not text, and is not needed
            message = f"got {table.column(name).type}, expected {wanted}: {first_line(error)}"
            problems.append(Problem(file=path.name, row=None, column=name, message=message))
            columns[name] = pa.nulls(table.num_rows, wanted)
    return pa.table(columns), problems
