"""Which requests of a trace are warm-up, and the trace without them, as for every latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from traces.metrics import sent_or_due
from traces.tables.cells import cells_where
from traces.trace import select_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from traces.trace import Trace

MOMENTS: Final = (
    *("arrival_time_us", "deadline_us", "send_time_us", "first_chunk_time_us", "last_chunk_time_us"),
    *("content_first_time_us", "last_token_time_us", "first_byte_time_us", "scheduled_time_us"),
    *("cancel_time_us", "prefill_end_time_us", "kv_transfer_start_time_us", "kv_transfer_end_time_us"),
)
"""Columns that are points in time, from the run's start."""


def is_warmup(trace: Trace) -> NDArray[np.bool_]:
    """Return which rows are warm-up: those with that ``phase``, and the header's first ``warm_up_requests``.

    vtwin marks the rows, BLIS counts them in the header; if a trace does both, the union counts.
    """
    marked = trace.cells("phase").values == "warmup"
    return np.asarray(marked | (np.arange(len(trace)) < (trace.header.warm_up_requests or 0)))


def without_warmup(trace: Trace) -> Trace:
    """Return the trace without its warm-up rows and without the header's count of them; itself where it has none."""
    warmup = is_warmup(trace)
    return select_rows(trace, ~warmup).with_header(warm_up_requests=None) if warmup.any() else trace


def load_alone(trace: Trace) -> Trace:
    """Return the trace without a warm-up that was over when the load began, its times from the load's first request.

    Over: every request of it was sent before all others. A warm-up among the load, or one that it follows without a
    pause longer than the longest gap of the load itself, stays: its requests still ran.
    """
    warmup = is_warmup(trace)
    if not warmup.any() or warmup.all():
        return trace
    times = sent_or_due(trace)
    if not times.is_known[warmup].all() or times.is_known[~warmup].sum() < 2:
        return trace
    before, load = times.values[warmup], np.sort(times.values[~warmup & times.is_known])
    pause, usual = int(load[0] - before.max()), int(np.diff(load).max(initial=0))
    return from_first_request(without_warmup(trace)) if pause > usual else trace


def from_first_request(trace: Trace) -> Trace:
    """Return the trace with its times counted from its first request."""
    known = sent_or_due(trace).known()
    arrivals = trace.cells("arrival_time_us").known()
    shift = min(
        int(known.min(initial=np.iinfo(np.int64).max)), int(arrivals.min(initial=np.iinfo(np.int64).max))
    )
    if not len(known) or shift == 0:
        return trace
    moved = {
        name: cells_where(trace.cells(name).values - shift, trace.cells(name).is_known)
        for name in MOMENTS
        if name in trace.table
    }
    start = trace.header.start_unix_us
    events = trace.events
    if events is not None:
        events = events.assign(timestamp_us=events["timestamp_us"] - shift)
    return (
        trace.with_columns(**moved)
        .with_events(events)
        .with_header(start_unix_us=None if start is None else start + shift)
    )
