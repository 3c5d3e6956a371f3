"""A CSV of requests with columns of any names: ``--columns arrival=arrived_at:s,input=num_prefill_tokens``.

Each part is TRACE_COLUMN=COLUMN[:UNIT]. ``arrival``, ``input`` and ``output`` stand for ``arrival_time_us``,
``input_tokens`` and ``output_tokens``; any other column of TraceV2 goes by its name. A time needs its unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from traces.errors import ConfigError, TraceError
from traces.header import Header, Source
from traces.schema import FIELDS, DType, Field
from traces.strict.yaml_nodes import nearest
from traces.tables.csv_parquet import read_table
from traces.tables.frames import to_frame
from traces.trace import Trace, make_trace

US_PER: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
SHORT: Final = {"arrival": "arrival_time_us", "input": "input_tokens", "output": "output_tokens"}
_EXPECTED: Final = (
    "expected TRACE_COLUMN=COLUMN[:UNIT], separated by commas (arrival=arrived_at:s,input=prompt)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvColumn:
    """A column of the file: its name, and µs per unit where it holds a time."""

    name: str
    us_per_unit: int | None = None


def parse_columns(text: str) -> dict[str, CsvColumn]:
    """Return the columns of ``--columns``, by TraceV2's names. Raises ConfigError."""
    columns: dict[str, CsvColumn] = {}
    for part in text.split(","):
        short, equals, source = part.strip().partition("=")
        if not equals or not short or not source:
            raise ConfigError(f"--columns: got {part.strip()!r}, {_EXPECTED}")
        target = SHORT.get(short, short)
        if target not in FIELDS:
            close = nearest(short, [*SHORT, *FIELDS])
            hint = f"did you mean {close}?" if close else "expected a column of TraceV2"
            raise ConfigError(f"--columns: got {short!r}, {hint}")
        if target in columns:
            raise ConfigError(f"--columns: got {short} twice, expected each once")
        columns[target] = _with_unit(source, target=target, short=short)
    for needed in ("input", "output"):
        if SHORT[needed] not in columns:
            raise ConfigError(f"--columns: got no {needed}, expected {needed}=COLUMN")
    return columns


def _with_unit(source: str, *, target: str, short: str) -> CsvColumn:
    is_time = target.endswith("_us")
    name, colon, unit = source.rpartition(":")
    if not is_time:
        return CsvColumn(name=source)
    if not colon or unit not in US_PER:
        units = ", ".join(f"{short}={name or source}:{each}" for each in US_PER)
        raise ConfigError(f"--columns: got {short}={source}, expected its unit: one of {units}")
    return CsvColumn(name=name, us_per_unit=US_PER[unit])


def read_csv_file(path: Path, columns: Mapping[str, CsvColumn]) -> Trace:
    """Return the requests in this CSV, a row each; times count from the earliest arrival.

    Without an arrival column all arrive at 0, and the load is not known. Raises TraceError that names file, line and
    column for a cell that does not fit.
    """
    frame = read_numbers_and_text(path, columns)
    table: dict[str, object] = {}
    for target, column in columns.items():
        values = frame[column.name]
        if FIELDS[target].dtype == "int":
            values = whole(values, file=path.name, least=FIELDS[target].minimum, times=column.us_per_unit)
        table[target] = values
    notes: list[str] = []
    load_unknown: str | None = None
    arrival = table.get("arrival_time_us")
    if not isinstance(arrival, pd.Series):
        table["arrival_time_us"] = 0
        load_unknown = "no column of arrivals, so when requests are due is not in the file"
    elif (earliest := int(arrival.min())) != 0:
        for target in [name for name in columns if _is_moment(name)]:
            table[target] = table[target] - earliest  # type: ignore[operator]
        notes.append(f"times count from the earliest arrival, {earliest} µs in the file")
    table.setdefault("request_id", [str(row) for row in range(len(frame))])
    source = Source(format="csv", file=path.name, load_unknown=load_unknown, notes=tuple(notes))
    measured = any(_is_moment(name) and name not in ("arrival_time_us", "deadline_us") for name in columns)
    return make_trace(Header(mode="real" if measured else "generated", source=source), table)


def _is_moment(target: str) -> bool:
    """Return whether a column in µs is a point in time, not a duration."""
    return target == "deadline_us" or (target.endswith("_time_us") and target != "think_time_us")


def read_numbers_and_text(path: Path, columns: Mapping[str, CsvColumn]) -> pd.DataFrame:
    """Return the requested columns of the file, numbers as floats. Raises TraceError."""
    return read_columns(path, {it.name: _dtype_in_file(target) for target, it in columns.items()})


def read_columns(path: Path, dtypes: Mapping[str, DType]) -> pd.DataFrame:
    """Return the CSV's columns of these names and kinds. Raises TraceError that names file, line and column."""
    if not path.is_file():
        raise TraceError(f"{path}: got no such file, expected a CSV of requests")
    table, problems = read_table(path, {name: _field(name, dtype) for name, dtype in dtypes.items()})
    if problems:
        first = problems[0]
        raise TraceError(f"{path.name}:{(first.row or 0) + 1}: {first.column or 'row'}: {first.message}")
    frame = to_frame(table)
    if frame.empty:
        raise TraceError(f"{path.name}: got no rows, expected one request a row ({path})")
    return frame


def _dtype_in_file(target: str) -> DType:
    dtype = FIELDS[target].dtype
    return "float" if dtype == "int" else dtype


def _field(name: str, dtype: DType) -> Field:
    return Field(name=name, dtype=dtype, unit="", origin="base", meaning="", required=True)


def whole(
    values: pd.Series[float],
    *,
    file: str,
    least: int | None = 0,
    times: int | None = None,
    empty: bool = False,
) -> pd.Series[int]:
    """Return the numbers as whole ones, times in µs rounded half to even.

    Raises TraceError, with the line, for a count that is not whole, a number below ``least`` and, unless
    ``empty``, an empty cell.
    """
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    scaled = numbers * (times or 1)
    bad = (np.isnan(numbers) & (not empty)) | np.isinf(numbers) | (np.abs(scaled) >= 2.0**63)
    if times is None:
        bad |= ~np.isnan(numbers) & (np.rint(numbers) != numbers)
    if least is not None:
        bad |= numbers < least
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        got = "an empty cell" if np.isnan(numbers[row]) else f"{numbers[row]:.17g}"
        expected = ("an integer" if times is None else "a number") + (
            f" >= {least}" if least is not None else ""
        )
        raise TraceError(f"{file}:{row + 2}: {values.name}: got {got}, expected {expected}")
    rounded = pd.array(np.where(np.isnan(scaled), 0, np.rint(scaled)).astype(np.int64), dtype="Int64")
    result: pd.Series[int] = pd.Series(rounded, name=values.name)
    return result.mask(np.isnan(numbers))
