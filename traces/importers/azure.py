"""Azure's LLM inference traces of 2023: a wall-clock time with seven fractional digits, and two lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.header import Header, Source
from traces.schema import Field
from traces.tables.csv_parquet import read_table
from traces.tables.frames import to_frame
from traces.trace import Trace, make_trace

_TICKS_PER_US: Final = 10  # the seventh digit is 100 ns
_PATTERN: Final = r"^(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(?:\.(\d{1,7}))?(?:\+00:00)?$"


def _column(name: str, dtype: str) -> Field:
    return Field(
        name=name,
        dtype="int" if dtype == "int" else "string",
        unit="",
        origin="base",
        meaning="",
        required=True,
        minimum=0 if dtype == "int" else None,
    )


_FIELDS: Final = {
    "TIMESTAMP": _column("TIMESTAMP", "string"),
    "ContextTokens": _column("ContextTokens", "int"),
    "GeneratedTokens": _column("GeneratedTokens", "int"),
}


def read_azure(path: Path) -> Trace:
    """Return the trace in this CSV; arrivals in µs from the earliest row, halves rounded to even.

    The header keeps the Unix time of that row. Raises TraceError that names file and line.
    """
    if not path.is_file():
        raise TraceError(f"{path}: got no such file, expected a CSV of Azure's LLM inference trace")
    table, problems = read_table(path, _FIELDS)
    frame = to_frame(table)
    if problems:
        first = problems[0]
        raise TraceError(f"{path.name}:{(first.row or 0) + 1}: {first.column or 'row'}: {first.message}")
    if frame.empty:
        raise TraceError(f"{path.name}: got no rows, expected one request a row ({path})")
    ticks = _ticks(frame["TIMESTAMP"], file=path.name)
    for name in ("ContextTokens", "GeneratedTokens"):
        _check_counts(frame[name], file=path.name)
    origin = int(ticks.min())
    arrival = np.rint((ticks - origin) / _TICKS_PER_US).astype(np.int64)
    header = Header(
        mode="generated",
        start_unix_us=origin // _TICKS_PER_US,
        source=Source(
            format="azure",
            file=path.name,
            notes=("TIMESTAMP taken as UTC, counted from the earliest row",),
        ),
    )
    return make_trace(
        header,
        {
            "request_id": [str(row) for row in range(len(frame))],
            "streaming": True,
            "input_tokens": frame["ContextTokens"],
            "output_tokens": frame["GeneratedTokens"],
            "arrival_time_us": arrival,
        },
    )


def _ticks(stamps: pd.Series[Any], *, file: str) -> NDArray[np.int64]:
    """Return the times in units of 100 ns since 1970."""
    parts = stamps.str.extract(_PATTERN)
    seconds = pd.to_datetime(parts[0], format="%Y-%m-%d %H:%M:%S", errors="coerce")
    bad = np.flatnonzero(seconds.isna().to_numpy())
    if len(bad):
        raise TraceError(
            f"{file}:{bad[0] + 2}: TIMESTAMP: got {stamps[bad[0]]!r}, "
            "expected YYYY-MM-DD HH:MM:SS with up to seven fractional digits"
        )
    digits = parts[1].fillna("0").str.pad(7, side="right", fillchar="0").astype(np.int64)
    whole = seconds.to_numpy().astype("datetime64[s]").astype(np.int64)
    return whole * (1_000_000 * _TICKS_PER_US) + digits.to_numpy(dtype=np.int64)


def _check_counts(counts: pd.Series[Any], *, file: str) -> None:
    bad = np.flatnonzero((counts.isna() | (counts < 0).fillna(True)).to_numpy(dtype=bool))
    if len(bad):
        got = "an empty cell" if pd.isna(counts[bad[0]]) else counts[bad[0]]
        raise TraceError(f"{file}:{bad[0] + 2}: {counts.name}: got {got}, expected an integer >= 0")
