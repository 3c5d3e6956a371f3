"""What the run leaves on disk, readable at every moment: a trace that grows row by row as requests end.

While the run goes on, ``STEM.csv`` and ``STEM.itl.csv`` are appended to (a row first, its events after it),
beside a header that says ``finished: false``. At the end the files are rewritten in the plan's order, by the
trace's own writer. Whatever kills the client, what had finished until then is a trace.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from observe.plan.load_plan import SendPlan
from observe.response.timeline import Reading
from observe.senders.exchange import Exchange, Failure
from observe.settings import NO_WARM_UP, WarmUp
from traces import TraceError, read_trace, write_trace
from traces.header import Header, header_yaml
from traces.schema import EVENT_FIELDS, FIELDS
from traces.tables.paths import beside, stem_of

if TYPE_CHECKING:
    from traces import Trace

Cell: TypeAlias = str | int | float | bool | None

_LONGEST_PIECE = 64 << 20
"""Bytes from the end of a table within which its last whole line ends: more than one write ever holds."""

WORKLOAD_COLUMNS = (
    *("request_id", "client_id", "tenant_id", "slo_class", "vllm_priority", "session_id", "round_index"),
    *("prefix_group", "prefix_length", "input_tokens", "text_tokens", "image_tokens", "audio_tokens"),
    *("video_tokens", "reason_ratio", "model", "deadline_us", "slo_target_us", "arrival_time_us", "adapter"),
    *("think_time_us", "prefix_hashes", "new_input_tokens"),
)
"""What a request was to be: taken from the plan's trace as it stands."""

OUTCOME_COLUMNS = (
    *("streaming", "output_tokens", "server_input_tokens", "send_time_us", "first_chunk_time_us"),
    *("last_chunk_time_us", "num_chunks", "status", "error_message", "finish_reason", "x_request_id"),
    *("content_first_time_us", "last_token_time_us", "num_token_chunks", "cached_input_tokens"),
    *("server_queue_us", "server_prefill_us", "server_decode_us", "max_tokens", "dispatch_lag_us"),
    *("connection_wait_us", "first_byte_time_us", "phase", "attempt"),
)
"""What became of it."""


def outcome(exchange: Exchange, reading: Reading, *, plan: SendPlan, start_ns: int) -> dict[str, Cell]:
    """Return the outcome columns of one request, times in µs from ``start_ns``."""

    def since_start(stamp: int | None) -> int | None:
        return None if stamp is None else max(stamp - start_ns, 0) // 1000

    failure = judge(exchange, reading)
    stamps = reading.event_stamps
    lag_ns = None if exchange.dispatched_ns is None else exchange.dispatched_ns - exchange.due_ns
    return {
        "streaming": reading.streamed,
        "output_tokens": _output_tokens(reading, failed=failure is not None),
        "server_input_tokens": reading.server_input_tokens,
        "send_time_us": since_start(exchange.dispatched_ns),
        "first_chunk_time_us": since_start(stamps[0] if stamps and reading.streamed else None),
        "last_chunk_time_us": since_start(stamps[-1] if stamps else None),
        "num_chunks": len(stamps),
        "status": "ok" if failure is None else failure.status,
        "error_message": None if failure is None else failure.message,
        "finish_reason": reading.finish_reason,
        "x_request_id": exchange.x_request_id,
        "content_first_time_us": since_start(reading.content_first),
        "last_token_time_us": since_start(reading.last_token),
        "num_token_chunks": reading.num_token_chunks,
        "cached_input_tokens": reading.cached_input_tokens,
        "server_queue_us": _micros(reading.timings.queue_ms),
        "server_prefill_us": _micros(reading.timings.prefill_ms),
        "server_decode_us": _micros(reading.timings.decode_ms),
        "max_tokens": plan.max_tokens[exchange.index],
        "dispatch_lag_us": None if lag_ns is None else lag_ns // 1000,
        "connection_wait_us": None if exchange.dispatched_ns is None else exchange.connection_wait_ns // 1000,
        "first_byte_time_us": since_start(exchange.first_byte_ns),
        "attempt": exchange.num_attempts if exchange.num_attempts > 1 else None,
        **_of_session(exchange, reading, plan=plan, start_ns=start_ns),
    }


def first_due(trace: Trace, number: int) -> frozenset[int]:
    """Return the rows that are due first, those that wait for an answer last."""
    due = trace.column("arrival_time_us").to_numpy(dtype=np.float64, na_value=np.inf)
    return frozenset(np.argsort(due, kind="stable")[:number].tolist())


def _of_session(exchange: Exchange, reading: Reading, *, plan: SendPlan, start_ns: int) -> dict[str, Cell]:
    """Return what only the run knows of a session's later round: when it was due, and how long its prompt was."""
    if exchange.is_paced or (plan.closed_loop is not None and exchange.index not in plan.grows_from):
        return {}
    cells: dict[str, Cell] = {}
    if plan.closed_loop is None:
        cells["arrival_time_us"] = max(exchange.due_ns - start_ns, 0) // 1000
    sent = exchange.input_tokens if exchange.input_tokens is not None else reading.server_input_tokens
    if sent is not None and exchange.index in plan.grows_from:
        cells["input_tokens"] = max(sent - plan.prefix_tokens(exchange.index), 0)
    return cells


def judge(exchange: Exchange, reading: Reading) -> Failure | None:
    """Return why the request has no whole answer: what the wire said first, else what the stream said."""
    if exchange.failure is not None:
        return exchange.failure
    if reading.fault is not None:
        return Failure(status="error", message=reading.fault)
    return None


def _output_tokens(reading: Reading, *, failed: bool) -> int | None:
    """Return the tokens that came: the server's count, 0 of a failure without any text, else unknown."""
    if reading.output_tokens is None and failed and reading.num_token_chunks == 0:
        return 0
    return reading.output_tokens


def _micros(milliseconds: float | None) -> int | None:
    return None if milliseconds is None else round(milliseconds * 1000)


class LiveTrace:
    """The trace on disk while the run goes on. Raises TraceError where it cannot be written.

    It is a trace from ``write_header`` on.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        plan: SendPlan,
        events: bool,
        warmup: WarmUp = NO_WARM_UP,
        join: bool = False,
    ) -> None:
        """Begin the files, or with ``join`` write into those that another process has begun."""
        self._path = Path(path)
        self._warmup_s = warmup.seconds if warmup.is_kept else 0.0
        self._warmup_rows = first_due(plan.trace, warmup.num_requests) if warmup.is_kept else frozenset()
        self._keeps_warmup = warmup.is_kept
        self._plan = plan
        self._base = stem_of(path)
        names = [name for name in WORKLOAD_COLUMNS if name in plan.trace.requests.columns]
        self._names = [name for name in FIELDS if name in (*names, *OUTCOME_COLUMNS)]
        self._workload = {name: _cells(plan.trace, name) for name in names}
        self.num_rows = 0
        event_names = [field.name for field in EVENT_FIELDS]
        try:
            self._base.parent.mkdir(parents=True, exist_ok=True)
            open_table = Appender.join if join else Appender.begin
            self._rows = open_table(beside(self._base, ".csv"), self._names)
            self._events = open_table(beside(self._base, ".itl.csv"), event_names) if events else None
            if not join:
                _remove_older(self._base, events=events)
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def write_header(self, header: Header) -> None:
        """Put the header beside the table."""
        try:
            _replace_text(beside(self._base, ".yaml"), header_yaml(header))
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def append(self, exchange: Exchange, reading: Reading, *, start_ns: int) -> None:
        """Add one request and its events; on disk when this returns."""
        row = outcome(exchange, reading, plan=self._plan, start_ns=start_ns)
        row["phase"] = self._phase(exchange, start_ns)
        cells = [row[name] if name in row else self._workload[name][exchange.index] for name in self._names]
        request_id = self._workload["request_id"][exchange.index]
        try:
            self._rows.append([cells])
            self.num_rows += 1
            if self._events is not None and reading.event_stamps:
                self._events.append(_event_rows(request_id, reading, start_ns=start_ns))
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def _phase(self, exchange: Exchange, start_ns: int) -> Cell:
        """Return the phase in a run that keeps its warm-up; nothing where it has none."""
        if not self._keeps_warmup:
            return None
        early = exchange.due_ns < start_ns + self._warmup_s * 1e9
        return "warmup" if early or exchange.index in self._warmup_rows else "main"

    def close(self) -> None:
        """Write no more; the files stay as they are."""
        self._rows.close()
        if self._events is not None:
            self._events.close()

    def finish(self, header: Header) -> Trace:
        """Rewrite the files as one finished trace under ``header``; return it."""
        self.close()
        trace = _in_plan_order(read_trace(self._base), self._plan.trace)
        trace = replace(trace, header=header)
        write_trace(trace, self._path)
        return trace

    def _unwritable(self, fault: OSError) -> TraceError:
        kept = f" after {self.num_rows} requests, which it keeps" if self.num_rows else ""
        return TraceError(f"{self._base}: {fault.strerror}{kept}; expected a place that can be written")


class Appender:
    """A CSV file that grows by whole lines: a line that does not fit is taken back.

    Several processes may append to one file: each holds the file's lock while it writes, and takes back the
    piece of a line that one of them left when it was killed.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def begin(cls, path: Path, names: Sequence[str]) -> Appender:
        """Begin the file with a line of ``names``; it has its name once that line is whole. Raises OSError."""
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        appender = cls(os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_APPEND, 0o666))
        appender.append([names])
        temporary.replace(path)
        return appender

    @classmethod
    def join(cls, path: Path, names: Sequence[str]) -> Appender:
        """Append to a file that was begun with the same ``names``. Raises OSError."""
        appender = cls(os.open(path, os.O_RDWR | os.O_APPEND))
        head = _csv([names])
        assert os.pread(appender._fd, len(head), 0) == head, f"{path} has other columns"  # noqa: S101
        return appender

    def append(self, lines: Sequence[Sequence[Cell]]) -> None:
        """Write ``lines`` in one go. Raises OSError and leaves the file as it was."""
        data = _csv(lines)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            size = self._whole_lines()
            try:
                written = os.write(self._fd, data)
                while written < len(data):
                    written += os.write(self._fd, data[written:])
            except OSError:
                os.ftruncate(self._fd, size)
                raise
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _whole_lines(self) -> int:
        """Return the file's size, the piece of a line at its end taken away."""
        size = os.fstat(self._fd).st_size
        if size == 0 or os.pread(self._fd, 1, size - 1) == b"\n":
            return size
        start = max(size - _LONGEST_PIECE, 0)
        size = start + os.pread(self._fd, size - start, start).rfind(b"\n") + 1
        os.ftruncate(self._fd, size)
        return size

    def close(self) -> None:
        """Release the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _csv(lines: Sequence[Sequence[Cell]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(
        [("true" if cell else "false") if isinstance(cell, bool) else cell for cell in line] for line in lines
    )
    return text.getvalue().encode()


def _event_rows(request_id: Cell, reading: Reading, *, start_ns: int) -> list[list[Cell]]:
    pairs = zip(reading.event_stamps, reading.event_tokens, strict=True)
    return [
        [request_id, number, max(stamp - start_ns, 0) // 1000, tokens]
        for number, (stamp, tokens) in enumerate(pairs)
    ]


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
    return replace(trace, requests=trace.requests.iloc[order].reset_index(drop=True), events=events)


def _remove_older(base: Path, *, events: bool) -> None:
    """Remove what an older trace of this stem would leave beside the new one."""
    for suffix in (
        ".parquet",
        ".itl.parquet",
        ".gauges.csv",
        ".steps.csv",
        *(() if events else (".itl.csv",)),
    ):
        beside(base, suffix).unlink(missing_ok=True)


def _replace_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
