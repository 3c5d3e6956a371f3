"""BurstGPT's traces of a campus's use of ChatGPT and GPT-4: seconds, model, two lengths, kind of log.

Source of the format: github.com/HPMLL/BurstGPT, README: a CSV with the columns Timestamp, Model, Request tokens,
Response tokens, Total tokens, Log Type; a response of 0 tokens is a failed request. Newer files have Session ID and
Elapsed time, too. Columns are found by name, in any order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from traces.errors import TraceError
from traces.header import Header, Source
from traces.importers.csvfile import read_columns, whole
from traces.importers.micros import micros
from traces.importers.noted import counted_kinds, grown, left_out, name_of
from traces.schema import DType
from traces.tables.csv_text import csv_names
from traces.trace import Trace, make_trace

_US_PER_S: Final = 1_000_000
_NUMBERS: Final = ("Timestamp", "Request tokens", "Response tokens")
_SESSION: Final = ("Session ID", "SessionID")
_TEXTS: Final = ("Model", "Log Type", *_SESSION)


def read_burstgpt(path: Path) -> Trace:
    """Return the workload in this CSV; arrivals in µs from the earliest row, failed requests left out.

    The model's name stands in ``client_id``: no server of one's own serves it. With session ids the rows of one are
    rounds, in the order of their times. Raises TraceError that names file and line.
    """
    if not path.is_file():
        raise TraceError(f"{path}: got no such file, expected a CSV of BurstGPT")
    names = csv_names(path)
    kinds: dict[str, DType] = dict.fromkeys(_NUMBERS, "float")
    kinds |= {name: "string" for name in _TEXTS if name in names}
    frame = read_columns(path, kinds)
    _check_times(frame, file=path.name)
    prompt = whole(frame["Request tokens"], file=path.name, empty=True)
    output = whole(frame["Response tokens"], file=path.name, empty=True)
    has_answer = (output > 0).fillna(value=False).to_numpy(dtype=bool)
    has_prompt = (prompt > 0).fillna(value=False).to_numpy(dtype=bool)
    rows = frame.assign(prompt=prompt, output=output)[has_answer & has_prompt]
    rows = rows.sort_values("Timestamp", kind="stable")
    if rows.empty:
        raise TraceError(f"{path.name}: got no request with a response, expected one request a row ({path})")
    gone = left_out(failed=int((~has_answer).sum()), empty=int((has_answer & ~has_prompt).sum()))
    sessions = _sessions(rows)
    seconds = rows["Timestamp"].to_numpy(dtype=np.float64)
    named = sessions or [None] * len(rows)
    added, shared = grown(named, rows["prompt"].tolist(), rows["output"].tolist())
    source = Source(format="burstgpt", file=path.name, left_out=gone, notes=(*_notes(rows, names), *shared))
    growth = None if added is None else "accumulate"
    return make_trace(
        Header(mode="generated", session_context_growth=growth, source=source),
        {
            "request_id": [str(row) for row in rows.index],
            "client_id": [name_of(name) for name in rows["Model"]] if "Model" in rows else None,
            "session_id": sessions,
            "round_index": None if sessions is None else _rounds(sessions),
            "streaming": True,
            "input_tokens": rows["prompt"].to_numpy(),
            "new_input_tokens": added,
            "output_tokens": rows["output"].to_numpy(),
            "arrival_time_us": micros(seconds - seconds.min(), _US_PER_S, what=f"{path.name}: Timestamp"),
        },
    )


def _check_times(frame: pd.DataFrame, *, file: str) -> None:
    times = frame["Timestamp"].to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.flatnonzero(~(times >= 0))
    if len(bad):
        got = "an empty cell" if np.isnan(times[bad[0]]) else f"{times[bad[0]]:g}"
        raise TraceError(f"{file}:{bad[0] + 2}: Timestamp: got {got}, expected a number of seconds >= 0")


def _sessions(rows: pd.DataFrame) -> list[str | None] | None:
    """Return each row's session; None where the file has no session ids."""
    column = next((name for name in _SESSION if name in rows), None)
    if column is None:
        return None
    found = [name_of(name.strip()) if isinstance(name, str) else None for name in rows[column]]
    return found if any(found) else None


def _rounds(sessions: list[str | None]) -> list[int | None]:
    """Return each row's place in its session, from 0; the rows are in order."""
    seen: dict[str, int] = {}
    rounds: list[int | None] = []
    for name in sessions:
        rounds.append(None if name is None else seen.get(name, 0))
        if name is not None:
            seen[name] = seen.get(name, 0) + 1
    return rounds


def _notes(rows: pd.DataFrame, names: list[str]) -> tuple[str, ...]:
    notes = ["Model is kept as client_id"] if "Model" in rows else []
    if "Log Type" in rows:
        notes.append(f"Log Type: {counted_kinds(rows['Log Type'].dropna())}")
    if "Elapsed time" in names:
        notes.append("Elapsed time is not read: other servers answered these requests")
    return tuple(notes)
