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
    from pandas.api.extensions import ExtensionArray


class UnfitColumn(ValueError):  # noqa: N818 - a reader tells it as an error of its file
    """Values that do not fit TraceV2's dtype of their column."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """A workload, or a run: the two differ only in whether the outcome columns are filled.

    ``requests``: one row per request, TraceV2's column names, dtypes Int64, Float64, string, boolean; the
    columns of ``REQUIRED_IN_MEMORY`` are always there, another one only where the trace has it. ``events``:
    request_id, chunk_index, timestamp_us, num_tokens, or None. Every time counts from the run's start, in µs.
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

    def with_events(self, events: pd.DataFrame | None) -> Trace:
        """Return a copy with these events in place of its own."""
        return replace(self, events=None if events is None else _typed_events(events))

    def with_header(self, **keys: object) -> Trace:
        """Return a copy whose header has these keys changed."""
        return replace(self, header=replace(self.header, **keys))  # type: ignore[arg-type]


def make_trace(
    header: Header, columns: Mapping[str, object] | pd.DataFrame, *, events: pd.DataFrame | None = None
) -> Trace:
    """Return a trace of these columns, brought to TraceV2's dtypes and order.

    A column is an array, list or series of one length, a scalar for every row, or None where there is none;
    no ``prefix_length`` is 0. Raises UnfitColumn, a ValueError, for a value that does not fit its column.
    """
    given = {str(name): values for name, values in columns.items() if values is not None}
    num_rows = len(pd.Index(given["request_id"]))  # type: ignore[call-overload]
    given.setdefault("prefix_length", 0)
    order = [field.name for field in REQUEST_FIELDS if field.name in given]
    order += [name for name in given if name not in FIELDS]
    requests = pd.DataFrame({name: typed(name, _repeated(given[name], num_rows)) for name in order})
    if events is not None:
        events = _typed_events(events)
    return Trace(header=header, requests=requests, events=events)


def typed(name: str, values: object) -> ExtensionArray:
    """Return ``values`` as an array of the dtype that TraceV2 gives ``name``, text for a foreign column."""
    return _array(name, values, PANDAS_DTYPE[FIELDS[name].dtype] if name in FIELDS else "string")


def _typed_events(events: pd.DataFrame) -> pd.DataFrame:
    columns = {
        field.name: _array(field.name, events[field.name], PANDAS_DTYPE[field.dtype])
        for field in EVENT_FIELDS
        if field.name in events.columns
    }
    columns.setdefault("num_tokens", _array("num_tokens", [pd.NA] * len(events), "Int64"))
    return pd.DataFrame(columns)


def _repeated(values: object, num_rows: int) -> object:
    return [values] * num_rows if pd.api.types.is_scalar(values) else values


def _array(name: str, values: object, dtype: str) -> ExtensionArray:
    try:
        with np.errstate(invalid="raise"):  # else a number beyond 64 bits becomes another one
            array: ExtensionArray = pd.array(values, dtype=dtype)  # type: ignore[call-overload]
    except (ArithmeticError, TypeError, ValueError) as error:
        raise UnfitColumn(f"column {name}: got {error}, expected {dtype}") from error
    return array


def select_rows(trace: Trace, keep: NDArray[np.bool_]) -> Trace:
    """Return the trace of the rows where ``keep`` (one bool per request) is true, and of their events."""
    requests = trace.requests.loc[keep].reset_index(drop=True)
    events = trace.events
    if events is not None:
        events = events.loc[events["request_id"].isin(requests["request_id"])].reset_index(drop=True)
    return replace(trace, requests=requests, events=events)
