"""BurstGPT's traces of a campus's use of ChatGPT and GPT-4: seconds, model, two lengths, kind of log.

Source of the format: github.com/HPMLL/BurstGPT, README: a CSV with the columns Timestamp, Model, Request tokens,
Response tokens, Total tokens, Log Type; a response of 0 tokens is a failed request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from traces.errors import TraceError
from traces.header import Header, Source
from traces.importers.micros import micros
from traces.schema import Field
from traces.tables.csv_parquet import read_table
from traces.tables.frames import to_frame
from traces.trace import Trace, make_trace

_US_PER_S: Final = 1_000_000


def _column(name: str, dtype: str) -> Field:
    kind = {"int": "int", "float": "float"}.get(dtype, "string")
    return Field(
        name=name,
        dtype=kind,  # type: ignore[arg-type]
        unit="",
        origin="base",
        meaning="",
        required=True,
        minimum=None if kind == "string" else 0,
    )


_FIELDS: Final = {
    "Timestamp": _column("Timestamp", "float"),
    "Model": _column("Model", "string"),
    "Request tokens": _column("Request tokens", "int"),
    "Response tokens": _column("Response tokens", "int"),
}


def read_burstgpt(path: Path) -> Trace:
    """Return the workload in this CSV; arrivals in µs from the earliest row, failed requests left out.

    The model's name stands in ``client_id``: no server of one's own serves it. Raises TraceError that names file
    and line.
    """
    if not path.is_file():
        raise TraceError(f"{path}: got no such file, expected a CSV of BurstGPT")
    table, problems = read_table(path, _FIELDS)
    frame = to_frame(table)
    if problems:
        first = problems[0]
        raise TraceError(f"{path.name}:{(first.row or 0) + 1}: {first.column or 'row'}: {first.message}")
    empty = np.flatnonzero(frame[["Timestamp", "Request tokens", "Response tokens"]].isna().any(axis=1))
    if len(empty):
        raise TraceError(f"{path.name}:{empty[0] + 2}: got an empty cell, expected a number")
    answered = frame[frame["Response tokens"] > 0].sort_values("Timestamp", kind="stable")
    if answered.empty:
        raise TraceError(f"{path.name}: got no request with a response, expected one request a row ({path})")
    seconds = answered["Timestamp"].to_numpy(dtype=np.float64)
    notes = (
        "Model is kept as client_id",
        f"{len(frame) - len(answered)} requests without a response left out",
    )
    return make_trace(
        Header(mode="generated", source=Source(format="burstgpt", file=path.name, notes=notes)),
        {
            "request_id": [str(row) for row in answered.index],
            "client_id": answered["Model"].to_numpy(),
            "streaming": True,
            "input_tokens": answered["Request tokens"].to_numpy(),
            "output_tokens": answered["Response tokens"].to_numpy(),
            "arrival_time_us": micros(seconds - seconds.min(), _US_PER_S, what=f"{path.name}: Timestamp"),
        },
    )
