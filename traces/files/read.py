"""Reading a trace: from any of its files to a ``Trace``, or to one clear error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from traces.errors import TraceError
from traces.header import Header, parse_header
from traces.schema import EVENT_FIELDS, FIELDS
from traces.strict.arguments import PATH, takes
from traces.tables.arrow import to_cells
from traces.tables.cells import Cells, no_cells
from traces.tables.csv_parquet import read_table
from traces.tables.paths import TraceFiles, locate, stem_of
from traces.tables.problems import Finding, Problem, refuse
from traces.tables.rules import request_findings
from traces.tables.table import Table
from traces.trace import Trace

if TYPE_CHECKING:
    import pandas as pd


@takes(path=PATH)
def read_trace(path: str | Path, *, events: bool = True) -> Trace:
    """Return the trace that ``path`` names by stem, header or table; ``events=False`` leaves its .itl unread.

    A file of BLIS's is translated (``traces.tables.blis_conventions``). Columns that TraceV2 does not know are kept,
    as text. Raises TraceError: a file missing or unreadable, an unknown header key, or the first broken rule and how
    many more there are.
    """
    trace, problems, findings = examine(path, events=events)
    refuse(problems, findings, hint=f", listed by `vtwin trace check {stem_of(path)}`")
    return trace


def examine(path: str | Path, *, events: bool = True) -> tuple[Trace, list[Problem], list[Finding]]:
    """Return the readable part of a trace, the cells that could not be read, and the rules that it breaks.

    Raises TraceError if there is no trace: a missing file, a bad header, no table.
    """
    files = locate(path)
    header = read_header(files.header)
    table, problems = read_table(files.table, FIELDS)
    requests = Table(_with_prefix_length(to_cells(table), num_rows=table.num_rows))
    event_frame = None
    if events and files.events is not None:
        event_frame, event_problems = _read_events(files.events)
        problems += event_problems
    if header.is_blis:
        from traces.tables.blis_conventions import from_blis

        header, frame, event_frame = from_blis(header, requests.frame, event_frame)
        requests = Table(frame)
    findings = request_findings(requests, header, file=files.table.name)
    if event_frame is not None:
        from traces.tables.event_rules import event_findings

        event_frame = _with_num_tokens(event_frame)
        findings += event_findings(event_frame, requests.frame, file=_name(files))
    findings = _without_nulled(findings, problems)
    return Trace(header=header, table=requests, events=event_frame), problems, findings


@takes(path=PATH)
def read_header(path: Path) -> Header:
    """Return the header in this file. Raises TraceError."""
    try:
        return parse_header(path.read_text(encoding="utf-8-sig"), path)
    except UnicodeDecodeError as error:
        raise TraceError(
            f"{path.name}: got bytes that are no text, expected YAML in UTF-8 ({path})"
        ) from error
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}, expected a readable file") from error


def _name(files: TraceFiles) -> str:
    assert files.events is not None  # noqa: S101  the caller has read it
    return files.events.name


def _read_events(path: Path) -> tuple[pd.DataFrame, list[Problem]]:
    from traces.tables.frames import to_frame

    table, problems = read_table(path, {field.name: field for field in EVENT_FIELDS})
    return to_frame(table), problems


def _with_prefix_length(columns: dict[str, Cells], *, num_rows: int) -> dict[str, Cells]:
    """Return the columns with a full ``prefix_length``: a prefix that was not declared has no tokens."""
    declared = columns.get("prefix_length", no_cells("int", num_rows))
    return columns | {"prefix_length": Cells(declared.values, np.ones(num_rows, dtype=np.bool_))}


def _with_num_tokens(events: pd.DataFrame) -> pd.DataFrame:
    """Return the events with ``num_tokens``, which is unknown where there is no such column."""
    if "num_tokens" in events.columns:
        return events
    from traces.tables.frames import array_of

    return events.assign(num_tokens=array_of(no_cells("int", len(events))))


def _without_nulled(findings: list[Finding], problems: list[Problem]) -> list[Finding]:
    """Drop the error that a cell is empty if it is empty only because it could not be read."""
    if not problems:
        return findings
    unread = {(p.file, p.column, p.row) for p in problems}
    kept = []
    for found in findings:
        cells = (
            (row, {(found.file, column, int(row) + 1) for column in (found.column, None)})
            for row in found.rows
        )
        rows = [row for row, names in cells if not names & unread]
        if rows:
            kept.append(replace(found, rows=np.asarray(rows, dtype=np.int64)))
    return kept
