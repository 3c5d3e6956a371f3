"""The rules of the table of events beyond its types, and the request of each event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from traces.schema import EVENT_FIELDS
from traces.tables.frames import cells_of
from traces.tables.problems import Finding, finding
from traces.tables.rules import field_findings

if TYPE_CHECKING:
    from numpy.typing import NDArray


def event_findings(events: pd.DataFrame, requests: pd.DataFrame, *, file: str) -> list[Finding]:
    """Return broken rules in the table of events: fields, unknown requests, order within a request."""
    names = events["request_id"]
    found = finding(
        file,
        "request_id",
        bad=names.isna().to_numpy(),
        message=lambda _: "got an empty cell, expected text",
    )
    numbers = [field for field in EVENT_FIELDS if field.dtype == "int" and field.name in events.columns]
    cells = {field.name: cells_of(events[field.name], field.dtype) for field in numbers}
    found += field_findings(cells, numbers, file=file)
    codes = request_codes(events, requests)
    found += finding(
        file,
        "request_id",
        bad=(codes < 0) & names.notna().to_numpy(),
        message=lambda row: f"got {names[row]!r}, expected a request_id of the trace",
    )
    index = int_values(events["chunk_index"])
    order = np.lexsort((index, codes)) if not _is_sorted(codes, index) else np.arange(len(codes))
    same = (np.diff(codes[order]) == 0) & (codes[order][1:] >= 0)
    repeated = _rows_where(order, same & (np.diff(index[order]) == 0))
    found += finding(
        file,
        "chunk_index",
        bad=repeated,
        message=lambda row: f"got {index[row]} twice for request {names[row]!r}, expected each index once",
    )
    time = int_values(events["timestamp_us"])
    backwards = _rows_where(order, same & (np.diff(time[order]) < 0))
    return found + finding(
        file,
        "timestamp_us",
        bad=backwards,
        message=lambda row: f"got {time[row]}, expected no time before that of the request's previous event",
    )


def request_codes(events: pd.DataFrame, requests: pd.DataFrame) -> NDArray[np.int64]:
    """Return, for each event, its request's row number, the first of several, -1 where there is none."""
    codes, names = pd.factorize(events["request_id"])
    known = requests["request_id"]
    rows = np.flatnonzero(~known.duplicated().to_numpy())
    found = pd.Index(known.iloc[rows]).get_indexer(pd.Index(names))
    row_of_name = np.append(rows, -1)[found]
    return np.append(row_of_name, -1)[codes]  # factorize gives an empty name -1: the last element


def int_values(column: pd.Series[Any]) -> NDArray[np.int64]:
    """Return the column as int64, 0 where empty."""
    return column.to_numpy(dtype=np.int64, na_value=0)


def _is_sorted(codes: NDArray[np.int64], index: NDArray[np.int64]) -> bool:
    step = np.diff(codes)
    return bool(np.all((step > 0) | ((step == 0) & (np.diff(index) >= 0))))


def _rows_where(order: NDArray[np.int64], second_is_bad: NDArray[np.bool_]) -> NDArray[np.bool_]:
    bad = np.zeros(len(order), dtype=np.bool_)
    bad[order[1:][second_is_bad]] = True
    return bad
