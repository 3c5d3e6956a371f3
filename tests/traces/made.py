"""Traces made for tests: one by hand, and hypothesis's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

from traces import ClosedLoop, Header, Trace, make_trace
from traces.schema import REQUEST_FIELDS, Field

HERE = Path(__file__).parent
BLIS = HERE / "data"
SAMPLES = HERE.parents[1] / "traces" / "samples"
SHARED = Path(os.environ.get("VTWIN_DATA", HERE.parents[2] / "shared" / "data"))


def shared(*parts: str) -> Path:
    """Return a file of the shared data, or skip the test where it is not at hand."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs the data set {'/'.join(parts)} under $VTWIN_DATA")
    return path


def small_trace(**columns: object) -> Trace:
    """Return three requests, answered, with these columns instead of or beside the usual ones."""
    usual: dict[str, object] = {
        "request_id": ["a", "b", "c"],
        "input_tokens": [10, 20, 30],
        "output_tokens": [5, 1, 4],
        "arrival_time_us": [0, 1000, 2000],
        "send_time_us": [0, 1010, 2000],
        "first_chunk_time_us": [400, 1500, 2600],
        "last_chunk_time_us": [900, 1500, 3000],
        "status": "ok",
    }
    return make_trace(Header(mode="real", start_unix_us=1_795_220_853_214_111), usual | columns)


def events_of(rows: list[tuple[str, int, int, int]]) -> pd.DataFrame:
    """Return a table of events from (request_id, chunk_index, timestamp_us, num_tokens)."""
    return pd.DataFrame(rows, columns=["request_id", "chunk_index", "timestamp_us", "num_tokens"])


# What a cell may hold and come back unchanged: any text but the empty one, which means "missing".
cell_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
INT64_MAX = 2**63 - 1


def _values(field: Field) -> st.SearchStrategy[object]:
    if field.choices:
        return st.sampled_from(field.choices)
    if field.dtype == "string":
        return cell_text
    if field.dtype == "bool":
        return st.booleans()
    if field.dtype == "float":
        return st.floats(field.minimum, field.maximum or 1e12, allow_nan=False)
    return st.integers(field.minimum if field.minimum is not None else -INT64_MAX, field.limit or INT64_MAX)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any columns with any values that obey the field table and each row's order of times."""
    num = draw(st.integers(0, 5))
    columns: dict[str, object] = {
        "request_id": draw(st.lists(cell_text, min_size=num, max_size=num, unique=True)),
    }
    for field in REQUEST_FIELDS[1:]:
        if field.required or draw(st.booleans()):
            cell = _values(field)
            whole = not field.nullable or field.required or field.name == "prefix_length"
            cells = cell if whole else st.none() | cell
            columns[field.name] = draw(st.lists(cells, min_size=num, max_size=num))
    columns |= _times(draw, num)
    for named in ("images", "prefix_hashes", "parent_request_id", "awaited_request_ids", "num_parent_hashes"):
        columns[named] = None
    closed = draw(st.none() | st.integers(1, 9))
    loop = None if closed is None else ClosedLoop(concurrency=closed, think_time_us=0)
    header = Header(mode="real", seed=draw(st.none() | st.integers(0, 9)), closed_loop=loop)
    return make_trace(header, columns, events=_events(draw, columns["request_id"]))


def _times(draw: st.DrawFn, num: int) -> dict[str, object]:
    """Return the columns of times, each row's in the order in which they must come."""
    names = ("arrival_time_us", "send_time_us", "scheduled_time_us", "first_byte_time_us", "cancel_time_us")
    names += ("first_chunk_time_us", "content_first_time_us", "last_token_time_us", "last_chunk_time_us")
    gaps = draw(st.lists(st.lists(st.integers(0, 10**9), min_size=9, max_size=9), min_size=num, max_size=num))
    times = np.cumsum(np.asarray(gaps, dtype=np.int64).reshape(num, 9), axis=1)
    return {name: times[:, place] for place, name in enumerate(names)} | {"deadline_us": times[:, 8]}


def _events(draw: st.DrawFn, names: object) -> pd.DataFrame | None:
    if not names or draw(st.booleans()):
        return None
    rows: list[tuple[str, int, int, int | None]] = []
    for name in draw(st.lists(st.sampled_from(names), unique=True)):
        for index in range(draw(st.integers(1, 4))):
            rows.append((name, index, index * 10**6, draw(st.none() | st.integers(0, 9))))
    frame = pd.DataFrame(
        rows, columns=["request_id", "chunk_index", "timestamp_us", "num_tokens"], dtype=object
    )
    return frame.sample(frac=1, random_state=draw(st.integers(0, 99))).reset_index(drop=True)
