"""One file of a receiver: a trace that grows by whole rows, readable at every moment, sorted at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from observe.record.csv_appender import CsvAppender, csv_bytes
from observe.record.trace_row import Cell
from traces import (
    ClientInfo,
    Header,
    Source,
    Trace,
    TraceError,
    atomic_file,
    companion_file,
    header_yaml,
    read_trace,
    tool_version,
    write_text,
    write_trace,
)
from traces.importers.otel import COLUMNS, SpanRequest, Tally, arranged, cells_of

_GROWING = ClientInfo(library="OTLP", finished=False)
_FINISHED = ClientInfo(library="OTLP", finished=True)


class WindowFile:
    """The requests that began within one window, each once. Raises TraceError where it cannot be written."""

    def __init__(self, stem: Path, header: Header, rows: CsvAppender, *, seen: set[int]) -> None:
        self._stem = stem
        self._header = header
        self._rows = rows
        self._seen = seen
        self.tally = Tally()

    @classmethod
    def begin(cls, stem: Path, *, origin_us: int, command: str) -> WindowFile:
        """Begin a trace without rows, in place of an existing file; ``origin_us``: the window's start, a Unix time."""
        header = Header(
            trace_version=3,
            time_unit="us",
            mode="real",
            tool="vtwin",
            tool_version=tool_version(),
            command=command,
            start_unix_us=origin_us,
            client=_GROWING,
            source=Source(
                format="otel", file=stem.name, notes=("rows are in the order in which spans came",)
            ),
        )
        for suffix in (".yaml", ".parquet", ".itl.csv", ".itl.parquet"):
            companion_file(stem, suffix).unlink(missing_ok=True)
        return cls._opened(stem, header, [], seen=set())

    @classmethod
    def reopen(cls, stem: Path) -> WindowFile:
        """Continue an existing trace."""
        CsvAppender.mend(companion_file(stem, ".csv"))
        trace = read_trace(stem)
        rows = _rows_of(trace)
        seen = {_number(str(row[0])) for row in rows}
        header = replace(trace.header, client=_GROWING)
        return cls._opened(stem, header, rows, seen=seen)

    @classmethod
    def _opened(
        cls, stem: Path, header: Header, rows: Sequence[Sequence[Cell]], *, seen: set[int]
    ) -> WindowFile:
        table = companion_file(stem, ".csv")
        with atomic_file(table, error=TraceError) as temporary:
            temporary.write_bytes(csv_bytes([COLUMNS, *rows]))
        write_text(companion_file(stem, ".yaml"), header_yaml(header), error=TraceError)
        return cls(stem, header, CsvAppender.join(table, COLUMNS), seen=seen)

    @property
    def num_rows(self) -> int:
        """How many requests it has."""
        return len(self._seen)

    def append(self, requests: Sequence[SpanRequest]) -> int:
        """Write the new requests to disk; return how many. Raises OSError; the same may then be given again."""
        origin_us = self._header.start_unix_us or 0
        new: dict[int, list[Cell]] = {}
        for request in requests:
            number = _number(request.span_id)
            if number in self._seen or number in new:
                self.tally.num_repeated += 1
                continue
            cells = cells_of(request, origin_us=origin_us)
            new[number] = [cells[name] for name in COLUMNS]
        if new:
            self._rows.append(list(new.values()))
            self._seen |= new.keys()
        self._rows.sync()  # earlier ones, too: a sender repeats them after a failed write
        return len(new)

    def finish(self) -> int:
        """Rewrite the trace, sorted and in sessions; return how many requests it has."""
        self._rows.close()
        trace = arranged(read_trace(self._stem), notes=self.tally.notes())
        write_trace(trace.with_header(client=_FINISHED), self._stem)
        return len(trace)


def _rows_of(trace: Trace) -> list[list[Cell]]:
    """Return the rows as lists in the order of ``COLUMNS``."""
    columns = [_cells(trace, name) for name in COLUMNS]
    return [list(row) for row in zip(*columns, strict=True)]


def _cells(trace: Trace, name: str) -> list[Cell]:
    if name not in trace.table:
        return [None] * len(trace)
    cells = trace.table[name]
    return [
        value if is_known else None
        for value, is_known in zip(cells.values.tolist(), cells.is_known.tolist(), strict=True)
    ]


def _number(span_id: str) -> int:
    """Return an id as a number, which takes less memory."""
    return int(span_id, 16)
