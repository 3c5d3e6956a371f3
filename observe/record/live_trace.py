"""The run's trace on disk, readable at every moment: it grows row by row as requests end.

While the run goes on, ``STEM.csv`` and ``STEM.itl.csv`` are appended to (a row first, its events after it), under a
header that says ``finished: false``. At the end the files are rewritten in the plan's order, by the trace's own
writer. If the client is killed, the requests finished until then are a valid trace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from observe.plan.send_plan import SendPlan
from observe.record.csv_appender import CsvAppender, KeptLines, csv_bytes
from observe.record.trace_row import OUTCOME_COLUMNS, WORKLOAD_COLUMNS, Cell, event_rows, outcome_cells
from observe.record.warm_up_phase import WarmUpPhase
from observe.response.reading import Reading
from observe.run.sent_request import SentRequest
from observe.settings import NO_WARM_UP, WarmUp
from traces import (
    EVENT_FIELDS,
    FIELDS,
    Header,
    TraceError,
    companion_file,
    header_yaml,
    marked,
    read_trace,
    stem_of,
    write_text,
    write_trace,
)

if TYPE_CHECKING:
    from traces import Trace


_OPEN_TABLE: Final[Mapping[str, Callable[[Path, Sequence[str]], CsvAppender | KeptLines]]] = {
    "begin": CsvAppender.begin,
    "join": CsvAppender.join,
    "keep": lambda *_: KeptLines(),
}


class LiveTrace:
    """The trace on disk while the run goes on. Raises TraceError where it cannot be written.

    It is a trace from ``write_header`` on. ``on_row`` is told of each request that ends: its row in the plan and the
    cells of its outcome.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        plan: SendPlan,
        events: bool,
        warmup: WarmUp = NO_WARM_UP,
        writes: Literal["begin", "join", "keep"] = "begin",
    ) -> None:
        """Begin the files, ``join`` those that another process has begun, or ``keep`` lines for ``take_kept``."""
        self.path = Path(path)
        self.on_row: Callable[[int, Mapping[str, Cell]], None] = lambda *_: None
        self._phase = WarmUpPhase(warmup, plan.trace)
        self._plan = plan
        self._base = stem_of(path)
        names = [name for name in WORKLOAD_COLUMNS if name in plan.trace.requests.columns]
        self._names = [name for name in FIELDS if name in (*names, *OUTCOME_COLUMNS)]
        self._workload = {name: _cells(plan.trace, name) for name in names}
        self.num_rows = 0
        self.num_synced = 0
        event_names = [field.name for field in EVENT_FIELDS]
        try:
            if writes == "begin":
                self._base.parent.mkdir(parents=True, exist_ok=True)
            open_table = _OPEN_TABLE[writes]
            self._rows = open_table(companion_file(self._base, ".csv"), self._names)
            self._events = open_table(companion_file(self._base, ".itl.csv"), event_names) if events else None
            if writes == "begin":
                _remove_older(self._base, events=events)
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def write_header(self, header: Header) -> None:
        """Write the header of the growing trace."""
        write_text(companion_file(self._base, ".yaml"), header_yaml(header), error=TraceError)

    def lines_of(self, request: SentRequest, reading: Reading, *, start_ns: int) -> tuple[bytes, bytes]:
        """Return a request's row and its events as they will be in the files, for ``append``."""
        cells = outcome_cells(request, reading, plan=self._plan, start_ns=start_ns)
        cells["phase"] = self._phase.of(request.row, due_ns=request.due_ns - start_ns)
        self.on_row(request.row, cells)
        row = [cells[name] if name in cells else self._workload[name][request.row] for name in self._names]
        if self._events is None or not reading.event_stamps:
            return csv_bytes([row]), b""
        request_id = self._workload["request_id"][request.row]
        return csv_bytes([row]), csv_bytes(event_rows(request_id, reading, start_ns=start_ns))

    def append(self, *lines: tuple[bytes, bytes]) -> None:
        """Add requests and their events: written to the system on return, to the disk after ``sync``."""
        self.append_lines(b"".join(row for row, _ in lines), b"".join(events for _, events in lines))
        self.num_rows += len(lines)

    def append_lines(self, rows: bytes, events: bytes) -> None:
        """Add whole lines, also those that another trace of this plan kept."""
        try:
            self._rows.append_bytes(rows)
            if self._events is not None and events:
                self._events.append_bytes(events)
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def take_kept(self) -> tuple[bytes, bytes]:
        """Return the lines of both tables that were kept since the last call; empty of a trace that has files."""
        rows = self._rows.take() if isinstance(self._rows, KeptLines) else b""
        return rows, self._events.take() if isinstance(self._events, KeptLines) else b""

    def mark_lost(self, rows: Sequence[int], message: str) -> int:
        """Add those of the plan's ``rows`` that are not on record as aborted; return how many they are."""
        known = set(read_trace(self._base, events=False).column("request_id")) if rows else set()
        missing = [row for row in rows if self._workload["request_id"][row] not in known]
        outcome: dict[str, Cell] = {"status": "aborted", "error_message": message}
        for row in missing:
            cells = {**outcome, "max_tokens": self._plan.max_tokens[row]}
            self.on_row(row, cells)
            workload = {name: column[row] for name, column in self._workload.items()}
            line = csv_bytes([[{**workload, **cells}.get(name) for name in self._names]])
            self.append_lines(line, b"")
        return len(missing)

    def sync(self) -> None:
        """Flush all appended rows to the disk, so that they also survive a crash of the machine."""
        num_rows = self.num_rows
        if num_rows == self.num_synced:
            return
        try:
            self._rows.sync()
            if self._events is not None:
                self._events.sync()
        except OSError as fault:
            raise self._unwritable(fault) from fault
        self.num_synced = num_rows

    def close(self) -> None:
        """Write no more; the files stay as they are."""
        self._rows.close()
        if self._events is not None:
            self._events.close()

    def finish(self, header: Header) -> Trace:
        """Rewrite the files as one finished trace under ``header``, with its findings; return it."""
        self.close()
        trace = _in_plan_order(read_trace(self._base), self._plan.trace)
        trace = marked(replace(trace, header=header))
        write_trace(trace, self.path)
        return trace

    def _unwritable(self, fault: OSError) -> TraceError:
        kept = f" after {self.num_rows} requests, which it keeps" if self.num_rows else ""
        return TraceError(f"{self._base}: {fault.strerror}{kept}; expected a place that can be written")


def _cells(trace: Trace, name: str) -> list[Cell]:
    column = trace.column(name)
    return [None if missing else cell for cell, missing in zip(column.tolist(), column.isna(), strict=True)]


def _in_plan_order(trace: Trace, planned: Trace) -> Trace:
    """Return the trace with its rows and events in the order of the plan."""
    places: Mapping[str, int] = {name: place for place, name in enumerate(planned.column("request_id"))}
    order = np.argsort(trace.requests["request_id"].map(places).to_numpy(dtype=np.int64), kind="stable")
    events = trace.events
    if events is not None:
        by_request = events["request_id"].map(places).to_numpy(dtype=np.int64)
        events = events.iloc[np.argsort(by_request, kind="stable")].reset_index(drop=True)
    return replace(trace, table=trace.table.take(order), events=events)


def _remove_older(base: Path, *, events: bool) -> None:
    """Remove what an older trace of this stem would leave beside the new one."""
    for suffix in (
        ".parquet",
        ".itl.parquet",
        ".gauges.csv",
        ".probes.csv",
        ".steps.csv",
        *(() if events else (".itl.csv",)),
    ):
        companion_file(base, suffix).unlink(missing_ok=True)
