"""The trace in memory: a header, one row per request, and, where recorded, one row per event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from traces.header import Header
from traces.schema import EVENT_FIELDS, FIELDS, PANDAS_DTYPE, REQUEST_FIELDS, REQUIRED_IN_MEMORY

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A workload, or a run: the two differ only in whether the outcome columns are filled.

    ``requests``: one row per request, TraceV2's column names, dtypes Int64, Float64, string, boolean; the columns
    of ``REQUIRED_IN_MEMORY`` are always there, another one only where the trace has it. ``events``: request_id,
    chunk_index, timestamp_us, num_tokens, or None. Every time counts from the run's start, in µs.
    Treat the frames as read-only: a trace is shared.
    """

    header: Header
    requests: pd.DataFrame
    events: pd.DataFrame | None = None

    def __post_init__(self) -> None:
        """Assert that the columns that every caller relies on are there."""
        missing = [name for name in REQUIRED_IN_MEMORY if name not in self.requests.columns]
        assert not missing, f"requests lack {missing}"  # noqa: S101  our own fault, never the user's

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.requests)

    def column(self, name: str) -> pd.Series[Any]:
        """Return the column, or one that is all NA, of the right dtype, where the trace lacks it.

        Raises KeyError for a name that TraceV2 does not know and the trace does not have.
        """
        if name in self.requests.columns:
            return self.requests[name]
        dtype = PANDAS_DTYPE[FIELDS[name].dtype]
        return pd.Series(pd.NA, index=self.requests.index, dtype=dtype, name=name)

    def with_columns(self, **columns: object) -> Trace:
        """Return a copy whose table has these columns, in TraceV2's dtypes, instead of or beside its own."""
        requests = self.requests.assign(**{name: typed(name, values) for name, values in columns.items()})
        return replace(self, requests=requests)

    def with_header(self, **keys: object) -> Trace:
        """Return a copy whose header has these keys changed."""
        return replace(self, header=replace(self.header, **keys))  # type: ignore[arg-type]


def make_trace(
    header: Header, columns: Mapping[str, object] | pd.DataFrame, *, events: pd.DataFrame | None = None
) -> Trace:
    """Return a trace of these columns (arrays, lists or series of one length), brought to TraceV2's dtypes and order.

    An absent ``prefix_length`` is 0. Raises ValueError for a value that does not fit its column's dtype.
    """
    given = {str(name): columns[name] for name in columns}
    given.setdefault("prefix_length", np.zeros(len(pd.Series(given["request_id"])), dtype=np.int64))
    order = [field.name for field in REQUEST_FIELDS if field.name in given]
    order += [name for name in given if name not in FIELDS]
    requests = pd.DataFrame({name: typed(name, given[name]) for name in order})
    if events is not None:
        events = pd.DataFrame(
            {
                field.name: _array(events[field.name], PANDAS_DTYPE[field.dtype])
                for field in EVENT_FIELDS
                if field.name in events.columns
            }
        )
    return Trace(header=header, requests=requests, events=events)


def typed(name: str, values: object) -> Any:
    """Return ``values`` as a pandas array of the dtype that TraceV2 gives ``name`` (text for a foreign column)."""
    return _array(values, PANDAS_DTYPE[FIELDS[name].dtype] if name in FIELDS else "string")


def _array(values: Any, dtype: str) -> Any:
    if getattr(values, "dtype", None) == dtype:
        return values.array if isinstance(values, pd.Series) else values
    return pd.array(values, dtype=dtype)


def select_rows(trace: Trace, keep: NDArray[np.bool_]) -> Trace:
    """Return the trace of the rows where ``keep`` (one bool per request) is true, and of their events."""
    requests = trace.requests.loc[keep].reset_index(drop=True)
    events = trace.events
    if events is not None:
        events = events.loc[events["request_id"].isin(requests["request_id"])].reset_index(drop=True)
    return replace(trace, requests=requests, events=events)
