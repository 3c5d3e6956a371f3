"""Azure's LLM inference traces of 2023 to 2025: a wall-clock time and two lengths.

Source of the format: github.com/Azure/AzurePublicDataset, AzureLLMInferenceDataset2023.md, …2024.md and
AzureLMMInferenceDataset2025.md: a CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens, that of 2025 with
NumImages. Times have up to seven fractional digits, those of 2024 an offset. Columns are found by name, in any order:
copies that went through pandas have an index column in front, and ISO times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from traces.errors import TraceError
from traces.header import Header, Source
from traces.importers.noted import left_out
from traces.schema import Field
from traces.strict.limits import MOST_S
from traces.tables.csv_parquet import read_table
from traces.tables.frames import to_frame
from traces.trace import Trace, make_trace

_NS_PER_S: Final = 1_000_000_000
_PATTERN: Final = (
    r"^(\d{4}-\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?\s?(?:([Zz]|UTC)|([+-])(\d{2}):?(\d{2}))?$"
)
_EXPECTED: Final = "expected YYYY-MM-DD HH:MM:SS with up to nine fractional digits, and Z or an offset if any"


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
    seconds, ns = _times(frame["TIMESTAMP"], file=path.name)
    for name in ("ContextTokens", "GeneratedTokens"):
        _check_counts(frame[name], file=path.name)
    answered = (frame["GeneratedTokens"] > 0).to_numpy(dtype=bool)
    kept = np.flatnonzero(answered & (frame["ContextTokens"] > 0).to_numpy(dtype=bool))
    if not len(kept):
        raise TraceError(
            f"{path.name}: got no request with tokens in and out, expected one request a row ({path})"
        )
    start_unix_us, arrival = _arrivals(seconds[kept], ns[kept], file=path.name)
    failed, empty = int((~answered).sum()), int(answered.sum()) - len(kept)
    source = Source(
        format="azure",
        file=path.name,
        left_out=left_out(failed=failed, empty=empty),
        notes=_notes(list(frame.columns)),
    )
    return make_trace(
        Header(mode="generated", start_unix_us=start_unix_us, source=source),
        {
            "request_id": [str(row) for row in kept.tolist()],
            "streaming": True,
            "input_tokens": frame["ContextTokens"].iloc[kept].reset_index(drop=True),
            "output_tokens": frame["GeneratedTokens"].iloc[kept].reset_index(drop=True),
            "arrival_time_us": arrival,
        },
    )


def _notes(columns: list[str]) -> tuple[str, ...]:
    notes = ["a TIMESTAMP without an offset is taken as UTC; times count from the earliest row"]
    if "NumImages" in columns:
        notes.append("NumImages is not read: the tokens of images are not in the file")
    return tuple(notes)


def _times(stamps: pd.Series[Any], *, file: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return whole seconds since 1970, UTC, and the rest of each in ns. Raises TraceError, with the line."""
    parts = stamps.str.strip().str.extract(_PATTERN)
    moments = pd.to_datetime(parts[0] + " " + parts[1], format="%Y-%m-%d %H:%M:%S", errors="coerce")
    bad = np.flatnonzero(moments.isna().to_numpy())
    if len(bad):
        raise TraceError(f"{file}:{bad[0] + 2}: TIMESTAMP: got {stamps[bad[0]]!r}, {_EXPECTED}")
    digits = parts[2].fillna("0").str.pad(9, side="right", fillchar="0").astype(np.int64)
    whole: NDArray[np.int64] = moments.to_numpy().astype("datetime64[s]").astype(np.int64)
    hours, minutes = (parts[place].fillna("0").astype(np.int64).to_numpy() for place in (5, 6))
    ahead = np.where((parts[4].fillna("+") == "-").to_numpy(dtype=bool), -1, 1) * (
        hours * 3600 + minutes * 60
    )
    utc: NDArray[np.int64] = np.subtract(whole, ahead, dtype=np.int64)
    return utc, np.asarray(digits, dtype=np.int64)


def _arrivals(
    seconds: NDArray[np.int64], ns: NDArray[np.int64], *, file: str
) -> tuple[int, NDArray[np.int64]]:
    """Return the Unix time of the earliest row in µs, and each row's time since then, halves to even."""
    origin_s = int(seconds.min())
    if int(seconds.max()) - origin_s > MOST_S:
        raise TraceError(f"{file}: TIMESTAMP: got times centuries apart, expected one recording")
    since = (seconds - origin_s) * _NS_PER_S + ns
    first = int(since.min())
    arrival: NDArray[np.int64] = np.rint((since - first) / 1000).astype(np.int64)
    return (origin_s * _NS_PER_S + first) // 1000, arrival


def _check_counts(counts: pd.Series[Any], *, file: str) -> None:
    bad = np.flatnonzero((counts.isna() | (counts < 0).fillna(True)).to_numpy(dtype=bool))
    if len(bad):
        got = "an empty cell" if pd.isna(counts[bad[0]]) else counts[bad[0]]
        raise TraceError(f"{file}:{bad[0] + 2}: {counts.name}: got {got}, expected an integer >= 0")
