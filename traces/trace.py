"""The trace in memory: a header, one row per request, and, where recorded, one row per event."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from traces.header import Header
from traces.schema import FIELDS, REQUEST_FIELDS, REQUIRED_IN_MEMORY
from traces.tables.cells import Cells, no_cells
from traces.tables.hash_chains import without_rows
from traces.tables.session_tree import Lineage, lineage_of
from traces.tables.table import Table, typed

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Trace:
    """A workload, or a run: the two differ only in whether the outcome columns are filled.

    ``table``: one row per request, TraceV2's column names; the columns of ``REQUIRED_IN_MEMORY`` are always there,
    another one only where the trace has it. ``cells`` reads a column as numpy's arrays, ``requests`` and ``column`` as
    pandas has it. ``events``: request_id, chunk_index, timestamp_us, num_tokens, or None. Every time counts from the
    run's start, in µs. Treat arrays and frames as read-only: a trace is shared.
    """

    header: Header
    table: Table
    events: pd.DataFrame | None = None
    _lineage: Lineage | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Assert that the columns that every caller needs exist."""
        missing = [name for name in REQUIRED_IN_MEMORY if name not in self.table]
        assert not missing, f"requests lack {missing}"  # noqa: S101  our own fault, never the user's

    def __repr__(self) -> str:
        """Return the trace in a line; ``requests`` shows its table."""
        return f"<Trace: {len(self):,} requests{', ' * bool(self.header.mode)}{self.header.mode or ''}>"

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.table)

    @property
    def requests(self) -> pd.DataFrame:
        """The table as a frame, dtypes Int64, Float64, string, boolean."""
        return self.table.frame

    @property
    def lineage(self) -> Lineage:
        """How the requests stand in their sessions, sorted once."""
        if self._lineage is None:
            object.__setattr__(self, "_lineage", lineage_of(self.table))
        assert self._lineage is not None  # noqa: S101 - set above
        return self._lineage

    def cells(self, name: str) -> Cells:
        """Return the column, or an empty one of the right dtype if the trace lacks it.

        Raises KeyError for a name that TraceV2 does not know and the trace does not have.
        """
        return self.table[name] if name in self.table else no_cells(FIELDS[name].dtype, len(self))

    def column(self, name: str) -> pd.Series[Any]:
        """Return the column, or one that is all NA, of the right dtype, if the trace lacks it.

        Raises KeyError for a name that TraceV2 does not know and the trace does not have.
        """
        if name in self.table:
            return self.requests[name]
        from traces.tables.frames import frame_of

        empty = frame_of({name: no_cells(FIELDS[name].dtype, len(self))})
        return empty.set_axis(self.requests.index)[name]

    def with_columns(self, **columns: object) -> Trace:
        """Return a copy whose table has these columns, in TraceV2's dtypes, instead of or beside its own."""
        found = {name: typed(name, values) for name, values in columns.items()}
        return replace(self, table=self.table.with_columns(found))

    def without_columns(self, *names: str) -> Trace:
        """Return a copy without these columns, as far as it has them."""
        return replace(self, table=self.table.without(names))

    def with_events(self, events: pd.DataFrame | Mapping[str, object] | None) -> Trace:
        """Return a copy with these events in place of its own: a frame, or columns of one length."""
        return replace(self, events=None if events is None else _typed_events(events))

    def with_header(self, **keys: object) -> Trace:
        """Return a copy whose header has these keys changed."""
        return replace(self, header=replace(self.header, **keys))  # type: ignore[arg-type]


def make_trace(
    header: Header, columns: Mapping[str, object] | pd.DataFrame, *, events: pd.DataFrame | None = None
) -> Trace:
    """Return a trace of these columns, brought to TraceV2's dtypes and order.

    A column is cells, an array, list or series of one length, a scalar for every row, or None where there is none;
    no ``prefix_length`` is 0. Raises UnfitColumn, a ValueError, for a value that does not fit its column.
    """
    given = {str(name): values for name, values in columns.items() if values is not None}
    ids = typed("request_id", given["request_id"])
    given.setdefault("prefix_length", 0)
    order = [field.name for field in REQUEST_FIELDS if field.name in given]
    order += [name for name in given if name not in FIELDS]
    table = Table({name: _full(name, given[name], num_rows=len(ids)) for name in order})
    return Trace(header=header, table=table, events=None if events is None else _typed_events(events))


def _typed_events(events: pd.DataFrame | Mapping[str, object]) -> pd.DataFrame:
    from traces.tables.frames import typed_events

    return typed_events(events)


def _full(name: str, values: object, *, num_rows: int) -> Cells:
    if isinstance(values, str) or not hasattr(values, "__len__"):
        return typed(name, [values]).take(np.zeros(num_rows, dtype=np.int64))
    return typed(name, values)


def select_rows(trace: Trace, keep: NDArray[np.bool_]) -> Trace:
    """Return the trace of the rows where ``keep`` (one bool per request) is true, and of their events."""
    table, events = without_rows(trace.table, keep).take(keep), trace.events
    if events is not None:
        kept = events["request_id"].isin(table["request_id"].known().tolist())
        events = events.loc[kept].reset_index(drop=True)
    return replace(trace, table=table, events=events)
