"""What a request is, on disk and in memory: TraceV2, its checks, its metrics, its importers.

    from traces import read_trace, request_metrics, write_trace

    trace = read_trace("runs/a")              # stem, header or table
    request_metrics(trace)["ttft_us"].mean()
    write_trace(trace, "runs/a.parquet")

A workload is a trace without outcomes. Times are int64 µs from the run's start; missing is NA, never 0.
Names are imported when first used, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from traces.errors import ConfigError, ServerError, TraceError, VtwinError

if TYPE_CHECKING:
    from traces.header import (
        ClientInfo,
        ClosedLoop,
        CounterReading,
        Header,
        Network,
        ServerInfo,
        SLOTarget,
        Source,
    )
    from traces.metrics import (
        METRIC_COLUMNS,
        MetricNotes,
        TokenGaps,
        finished_ok,
        metric_notes,
        pooled_itl_us,
        prompt_tokens,
        request_metrics,
        send_or_arrival_us,
        token_gaps,
    )
    from traces.problems import Problem
    from traces.read import read_trace
    from traces.trace import Trace, make_trace, select_rows
    from traces.write import write_trace

_HOME = {
    "ClientInfo": "header",
    "ClosedLoop": "header",
    "CounterReading": "header",
    "Header": "header",
    "METRIC_COLUMNS": "metrics",
    "MetricNotes": "metrics",
    "Network": "header",
    "Problem": "problems",
    "SLOTarget": "header",
    "ServerInfo": "header",
    "Source": "header",
    "TokenGaps": "metrics",
    "Trace": "trace",
    "finished_ok": "metrics",
    "make_trace": "trace",
    "metric_notes": "metrics",
    "pooled_itl_us": "metrics",
    "prompt_tokens": "metrics",
    "read_trace": "read",
    "request_metrics": "metrics",
    "select_rows": "trace",
    "send_or_arrival_us": "metrics",
    "token_gaps": "metrics",
    "write_trace": "write",
}

__all__ = [
    "METRIC_COLUMNS",
    "ClientInfo",
    "ClosedLoop",
    "ConfigError",
    "CounterReading",
    "Header",
    "MetricNotes",
    "Network",
    "Problem",
    "SLOTarget",
    "ServerError",
    "ServerInfo",
    "Source",
    "TokenGaps",
    "Trace",
    "TraceError",
    "VtwinError",
    "finished_ok",
    "make_trace",
    "metric_notes",
    "pooled_itl_us",
    "prompt_tokens",
    "read_trace",
    "request_metrics",
    "select_rows",
    "send_or_arrival_us",
    "token_gaps",
    "write_trace",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'traces' has no attribute {name!r}")
    value: object = getattr(import_module(f"traces.{_HOME[name]}"), name)
    globals()[name] = value
    return value
