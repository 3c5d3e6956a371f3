"""Writing a trace: its files appear together (``traces.atomic``), the header last."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from traces.atomic import atomic_file, atomic_files
from traces.header import Header, header_yaml, tool_version
from traces.schema import EVENT_FIELDS, FIELDS, REQUEST_FIELDS, Field
from traces.strict.arguments import PATH, TRACE, takes
from traces.tables.arrow import to_arrow
from traces.tables.csv_parquet import write_csv, write_parquet
from traces.tables.paths import check_is_place, companion_file, stem_of
from traces.tables.table import Table
from traces.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Dialect = Literal["vtwin", "blis"]


@takes(trace=TRACE, stem=PATH)
def write_trace(
    trace: Trace, stem: str | Path, *, dialect: Dialect = "vtwin", events: bool = True
) -> tuple[Path, ...]:
    """Write header, table and, where the trace has them, events; return their paths, the header first.

    Parquet where ``stem`` ends in ``.parquet`` (BLIS's dialect has only CSV), else CSV. Files of an older
    trace at this stem are replaced or removed, so that none of them is read with the new ones. The same trace
    gives the same bytes. Raises ConfigError where the place cannot be written.
    """
    parquet = str(stem).endswith(".parquet") and dialect == "vtwin"
    base, suffix = stem_of(stem), ".parquet" if parquet else ".csv"
    check_is_place(base)
    header, requests, event_frame = _spoken(trace, dialect, events=events)
    header_path, table_path = companion_file(base, ".yaml"), companion_file(base, suffix)
    events_path = companion_file(base, ".itl" + suffix)
    with atomic_files(base, option="--output", is_durable=header.mode == "real") as stage:
        base.parent.mkdir(parents=True, exist_ok=True)
        _write_table(_requests_table(requests, dialect), path=stage(table_path), parquet=parquet)
        if event_frame is not None:
            _write_table(_events_table(event_frame), path=stage(events_path), parquet=parquet)
        stage(header_path).write_text(header_yaml(header), encoding="utf-8")
    written = (header_path, table_path) if event_frame is None else (header_path, table_path, events_path)
    _remove_others(base, keep=written)
    return written


def write_header(header: Header, stem: str | Path) -> None:
    """Replace the header of the trace at ``stem``, of vtwin's own dialect. Raises ConfigError where it cannot."""
    path = companion_file(stem_of(stem), ".yaml")
    with atomic_file(path, option="--output", is_durable=header.mode == "real") as temporary:
        temporary.write_text(header_yaml(header), encoding="utf-8")


def _spoken(trace: Trace, dialect: Dialect, *, events: bool) -> tuple[Header, Table, pd.DataFrame | None]:
    event_frame = trace.events if events else None
    header = replace(trace.header, trace_version=3, time_unit="us")
    if dialect == "blis":
        from traces.tables.blis_conventions import to_blis

        header, frame, event_frame = to_blis(header, trace.requests, event_frame)
        return header, Table(frame), event_frame
    header = replace(header, tool="vtwin", tool_version=header.tool_version or tool_version())
    return header, trace.table, event_frame


def _requests_table(requests: Table, dialect: Dialect) -> pa.Table:
    """Return BLIS's base columns, of the others those that hold something, then the unknown ones."""
    known = [
        field
        for field in REQUEST_FIELDS
        if field.origin == "base"
        or (field.name in requests and (dialect == "blis" or bool(requests[field.name].is_known.any())))
    ]
    foreign = [
        Field(name=name, dtype="string", unit="", origin="vtwin", meaning="foreign")
        for name in requests.names
        if name not in FIELDS
    ]
    return to_arrow(requests.columns(), [*known, *foreign], num_rows=len(requests))


def _events_table(events: pd.DataFrame) -> pa.Table:
    from traces.tables.frames import arrow_of_frame

    return arrow_of_frame(events, [field for field in EVENT_FIELDS if field.name in events.columns])


def _write_table(table: pa.Table, *, path: Path, parquet: bool) -> None:
    if parquet:
        write_parquet(table, path)
    else:
        write_csv(table, path)


def _remove_others(base: Path, *, keep: tuple[Path, ...]) -> None:
    for suffix in (".csv", ".parquet", ".itl.csv", ".itl.parquet"):
        if companion_file(base, suffix) not in keep:
            companion_file(base, suffix).unlink(missing_ok=True)
