"""CSV in, Arrow's columns out, and back.

A file is first read the fast way, all columns converted at once; only when that fails are the cells read as text and
searched for what does not fit. A module of its own: Arrow's functions of columns take long to import, and Parquet
needs none of them.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from traces.errors import TraceError
from traces.schema import DType, Field
from traces.strict.whole_file import MOST_BYTES
from traces.tables.arrow import ARROW_TYPE, arrow_type, first_line, text_scalar
from traces.tables.problems import Problem

_TRUE: Final = ["true", "True", "TRUE", "1"]
_FALSE: Final = ["false", "False", "FALSE", "0"]
_LOOKS_RIGHT: Final[dict[DType, str]] = {
    "int": r"^\s*-?[0-9]+\s*$",
    "float": r"^\s*-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$",
    "bool": "^(" + "|".join(_TRUE + _FALSE) + ")$",
}
_ROWS_PER_WRITE: Final = 65_536
_BLOCK_BYTES: Final = 1 << 20
"""Read at a time. A row that is longer (a prompt of a million tokens lists its blocks) needs the file in one piece."""
_NOTHING: Final = text_scalar("")
_COMMA: Final = text_scalar(",")
_QUOTE: Final = text_scalar('"')
_LINE_END: Final = text_scalar("\n")


def write_csv(table: pa.Table, path: Path) -> None:
    """Write the table as CSV: a header line, LF, quotes only where a cell needs them, empty for null."""
    with path.open("wb") as file:
        file.write((",".join(table.column_names) + "\n").encode())
        for start in range(0, table.num_rows, _ROWS_PER_WRITE):
            chunk = table.slice(start, _ROWS_PER_WRITE).combine_chunks()
            cells = [_cells(column) for column in chunk.columns]
            lines = pc.binary_join_element_wise(*cells, _COMMA)
            text = pa.chunked_array([lines]) if isinstance(lines, pa.Array) else lines
            for part in text.chunks:
                file.write(_joined_lines(part))


def _joined_lines(lines: pa.Array) -> memoryview | bytes:
    """Return the strings, each ended by LF, as one run of bytes (their Arrow buffer, once LF is appended)."""
    ended = pc.binary_join_element_wise(lines, _NOTHING, _LINE_END)
    offsets = np.frombuffer(ended.buffers()[1], dtype=np.int32)[ended.offset : ended.offset + len(ended) + 1]
    return memoryview(ended.buffers()[2])[int(offsets[0]) : int(offsets[-1])]


def _cells(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_string(column.type):
        text = _quoted(column)
    elif pa.types.is_floating(column.type):
        text = _plain_decimals(column)
    else:
        text = column.cast(pa.string())
    return pc.fill_null(text, _NOTHING)


def _quoted(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Quote the cells that hold a comma, a quote or a line break (RFC 4180)."""
    special = pc.match_substring_regex(column, '[",\r\n]')
    if not pc.any(special).as_py():
        return column
    quoted = pc.binary_join_element_wise(_QUOTE, pc.replace_substring(column, '"', '""'), _QUOTE, _NOTHING)
    return pc.if_else(special, quoted, column)


def _plain_decimals(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spell floats as the shortest decimal that reads back the same, never with an exponent."""
    text = column.cast(pa.string())
    if not pc.any(pc.match_substring(text, "e")).as_py():
        return text
    spelled = [None if x is None else np.format_float_positional(x, trim="-") for x in column.to_pylist()]
    return pa.chunked_array([pa.array(spelled, pa.string())])


MOST_OF_A_HEAD: Final = 1 << 20
"""The most characters of a line of column names: a thousand times as many as any format has."""


def _lines(file: TextIO, path: Path) -> Iterator[str]:
    """Yield a file's lines. Raises TraceError at one that does not end."""
    while line := file.readline(MOST_OF_A_HEAD):
        if len(line) == MOST_OF_A_HEAD and not line.endswith(("\n", "\r")):
            raise TraceError(f"{path.name}: got a first line without an end, expected column names ({path})")
        yield line


def csv_names(path: Path) -> list[str]:
    """Return a file's column names. Raises TraceError if it is not CSV, or larger than a table in memory may be."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise TraceError(
                f"{path.name}: got {size:,} bytes, expected at most {MOST_BYTES:,} of CSV: cut it, or make it Parquet "
                f"({path})"
            )
        with path.open(newline="", encoding="utf-8-sig") as file:
            names = next(csv.reader(_lines(file, path)), [])
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}, expected a readable file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(
            f"{path.name}: got bytes that are no text, expected CSV in UTF-8 ({path})"
        ) from error
    if not names:
        raise TraceError(f"{path.name}: got an empty file, expected a line of column names ({path})")
    return names


def read_csv(path: Path, names: list[str], fields: Mapping[str, Field]) -> tuple[pa.Table, list[Problem]]:
    """Return the file's columns in the types of ``fields`` (others as text) and what did not fit, nulled.

    Raises TraceError if it is not CSV.
    """
    try:
        return _read_csv(path, {name: arrow_type(name, fields) for name in names}), []
    except pa.ArrowInvalid:
        return _read_csv_cell_by_cell(path, names, fields)


def _read_csv(path: Path, types: Mapping[str, Any], *, bad_rows: list[Any] | None = None) -> pa.Table:
    """Return the file in these types; with ``bad_rows``, leave out and collect rows of the wrong width."""

    def skip(row: pacsv.InvalidRow) -> str:
        assert bad_rows is not None  # noqa: S101  set only in this mode
        bad_rows.append(row)
        return "skip"

    handler = None if bad_rows is None else skip
    with _quiet_handler():
        try:
            return _parsed_csv(path, types, handler)
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise
        if bad_rows is not None:
            bad_rows.clear()
        return _parsed_csv(path, types, handler, block_size=path.stat().st_size + 1)


@contextmanager
def _quiet_handler() -> Iterator[None]:
    """Keep pyarrow from printing its own traceback if a row that it passes to the handler is not text."""
    before = sys.unraisablehook
    sys.unraisablehook = lambda said: None if said.exc_type is UnicodeDecodeError else before(said)
    try:
        yield
    finally:
        sys.unraisablehook = before


def _parsed_csv(
    path: Path,
    types: Mapping[str, Any],
    skip: Callable[[pacsv.InvalidRow], str] | None,
    *,
    block_size: int = _BLOCK_BYTES,
) -> pa.Table:
    return pacsv.read_csv(
        path,
        read_options=pacsv.ReadOptions(use_threads=skip is None, block_size=block_size),
        parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
        convert_options=pacsv.ConvertOptions(
            column_types=dict(types),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            true_values=_TRUE,
            false_values=_FALSE,
        ),
    )


def _read_csv_cell_by_cell(
    path: Path, names: list[str], fields: Mapping[str, Field]
) -> tuple[pa.Table, list[Problem]]:
    bad_rows: list[Any] = []
    try:
        text = _read_csv(path, dict.fromkeys(names, pa.string()), bad_rows=bad_rows)
    except pa.ArrowInvalid as error:
        raise TraceError(f"{path.name}: {first_line(error)}, expected CSV in UTF-8 ({path})") from error
    problems = [
        Problem(
            file=path.name,
            row=bad.number - 1,
            column=None,
            message=f"got {bad.actual_columns} cells, expected {bad.expected_columns}",
        )
        for bad in bad_rows
    ]
    text = _with_empty_rows(text, at=[bad.number - 2 for bad in bad_rows])
    columns = []
    for name in names:
        column = text.column(name)
        if name in fields and fields[name].dtype != "string":
            column, found = _convert(column, fields[name], file=path.name)
            problems += found
        columns.append(column)
    return pa.table(columns, names=names), problems


def _with_empty_rows(table: pa.Table, *, at: list[int]) -> pa.Table:
    """Return the table with rows of nulls at these places, so that the rows after them keep their numbers."""
    places = np.setdiff1d(np.arange(table.num_rows + len(at)), at)
    source = np.full(table.num_rows + len(at), -1, dtype=np.int64)
    source[places] = np.arange(table.num_rows)
    return table.take(pa.array(source, mask=source < 0))


def _convert(column: pa.ChunkedArray, field: Field, *, file: str) -> tuple[pa.ChunkedArray, list[Problem]]:
    """Return the text as the field's type, null where it does not fit, and the problems that this makes."""
    fits = pc.fill_null(pc.match_substring_regex(column, _LOOKS_RIGHT[field.dtype]), True)
    if field.dtype == "int":
        fits = pc.and_(fits, pc.fill_null(_within_int64(column, fits), True))
    bad = np.flatnonzero(~np.asarray(fits, dtype=bool))
    problems = [
        Problem(
            file=file,
            row=int(i) + 1,
            column=field.name,
            message=f"got {column[int(i)].as_py()!r}, expected {field.expected}",
        )
        for i in bad
    ]
    good = pc.utf8_trim_whitespace(pc.if_else(fits, column, None))
    if field.dtype == "bool":
        good = pc.if_else(pc.is_valid(good), pc.is_in(good, pa.array(_TRUE)), None)
    return good.cast(ARROW_TYPE[field.dtype]), problems


def _within_int64(column: pa.ChunkedArray, looks_right: pa.ChunkedArray) -> pa.ChunkedArray:
    number = pc.utf8_trim_whitespace(pc.if_else(looks_right, column, None)).cast(pa.float64())
    return pc.less(pc.abs(number), 2.0**63)
