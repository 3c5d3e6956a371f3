"""What a table must obey beyond its types, each rule over whole columns at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from traces.header import Header
from traces.schema import EVENT_FIELDS, REQUEST_FIELDS, Field
from traces.strict.limits import MOST_TOKENS
from traces.tables.problems import Finding, finding

if TYPE_CHECKING:
    from numpy.typing import NDArray

# (later, earlier): the first never comes before the second in one row.
TIME_ORDER: Final = (
    ("deadline_us", "arrival_time_us"),
    ("first_byte_time_us", "send_time_us"),
    ("first_chunk_time_us", "send_time_us"),
    ("content_first_time_us", "send_time_us"),
    ("content_first_time_us", "first_chunk_time_us"),
    ("last_chunk_time_us", "first_chunk_time_us"),
    ("last_token_time_us", "content_first_time_us"),
    ("last_chunk_time_us", "last_token_time_us"),
    ("scheduled_time_us", "send_time_us"),
)


def request_findings(requests: pd.DataFrame, header: Header, *, file: str) -> list[Finding]:
    """Return what breaks a rule in the table of requests."""
    found = _field_findings(requests, REQUEST_FIELDS, file=file)
    found += _repeated_ids(requests["request_id"], file=file)
    found += _missing_arrivals(requests, header, file=file)
    for later, earlier in TIME_ORDER:
        if later in requests.columns and earlier in requests.columns:
            found += _out_of_order(requests, later, earlier=earlier, file=file)
    return found + _too_many_hashes(requests, header, file=file)


def event_findings(events: pd.DataFrame, requests: pd.DataFrame, *, file: str) -> list[Finding]:
    """Return what breaks a rule in the table of events: fields, unknown requests, order within a request."""
    found = _field_findings(events, EVENT_FIELDS, file=file)
    codes = request_codes(events, requests)
    names = events["request_id"]
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


def _field_findings(frame: pd.DataFrame, fields: Sequence[Field], *, file: str) -> list[Finding]:
    found: list[Finding] = []
    for field in fields:
        if field.name not in frame.columns:
            continue
        column = frame[field.name]
        bad = _outside(column, field)
        if not field.nullable:
            bad = bad | column.isna().to_numpy()
        found += finding(file, field.name, bad=bad, message=_got(column, field))
    return found


def _got(column: pd.Series[Any], field: Field) -> Callable[[int], str]:
    def message(row: int) -> str:
        value = column.iloc[row]
        got = "an empty cell" if value is pd.NA else repr(value) if field.dtype == "string" else str(value)
        if field.maximum is None and field.limit is not None and value is not pd.NA and value > field.limit:
            return f"got {got}, expected at most {field.limit}"
        return f"got {got}, expected {field.expected}"

    return message


def _outside(column: pd.Series[Any], field: Field) -> NDArray[np.bool_]:
    bad = np.zeros(len(column), dtype=np.bool_)
    if field.choices:
        bad |= (column.notna() & ~column.isin(list(field.choices))).to_numpy(dtype=bool)
    if field.dtype == "float":
        values = column.to_numpy(dtype=np.float64, na_value=0.0)
        bad |= ~np.isfinite(values)
    elif field.dtype == "int":
        values = column.to_numpy(dtype=np.int64, na_value=max(field.minimum or 0, 0))
    else:
        return bad
    if field.minimum is not None:
        bad |= values < field.minimum
    if field.limit is not None:
        bad |= values > field.limit
    return bad


def _repeated_ids(names: pd.Series[Any], *, file: str) -> list[Finding]:
    bad = (names.duplicated() & names.notna()).to_numpy()
    return finding(
        file,
        "request_id",
        bad=bad,
        message=lambda row: f"got {names[row]!r} a second time, expected each request_id once",
    )


def _missing_arrivals(requests: pd.DataFrame, header: Header, *, file: str) -> list[Finding]:
    if header.closed_loop is not None:
        return []
    return finding(
        file,
        "arrival_time_us",
        bad=(requests["arrival_time_us"].isna() & ~_is_later_round(requests)).to_numpy(dtype=bool),
        message=lambda _: (
            "got an empty cell, expected an integer >= 0 (only a closed_loop's, or a session's "
            "after its first round, may be empty)"
        ),
    )


def _is_later_round(requests: pd.DataFrame) -> pd.Series[bool]:
    """Return which requests wait for the answer to their session's previous round."""
    if not {"session_id", "round_index"} <= set(requests.columns):
        return pd.Series(False, index=requests.index)
    return requests["session_id"].notna() & (requests["round_index"] > 0).fillna(False)


def _out_of_order(requests: pd.DataFrame, later: str, *, earlier: str, file: str) -> list[Finding]:
    last, first = requests[later], requests[earlier]
    bad = (last < first).fillna(False).to_numpy(dtype=bool)
    return finding(
        file,
        later,
        bad=bad,
        message=lambda row: f"got {last[row]}, expected a time >= {earlier} ({first[row]})",
    )


def _too_many_hashes(requests: pd.DataFrame, header: Header, *, file: str) -> list[Finding]:
    if "prefix_hashes" not in requests.columns:
        return []
    hashes = requests["prefix_hashes"]
    num = hashes.str.count(r"\S+").to_numpy(dtype=np.int64, na_value=0)
    block = header.hash_block_size
    if block is None:
        return finding(
            file,
            "prefix_hashes",
            bad=num > 0,
            message=lambda _: "got hashes, expected the header's hash_block_size with them",
        )
    prompt = int_values(requests["input_tokens"]) + int_values(requests["prefix_length"])
    block = min(block, MOST_TOKENS + 1)  # a larger one holds as much of any prompt: all of it
    return finding(
        file,
        "prefix_hashes",
        bad=num > -(-prompt // block),
        message=lambda row: (
            f"got {num[row]} hashes, expected at most {-(-prompt[row] // block)} "
            f"for {prompt[row]} tokens in blocks of {block}"
        ),
    )
