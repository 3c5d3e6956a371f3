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
from typing import TYPE_CHECKING, Any

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
    from traces.problems import Problem
    from traces.read import read_trace
    from traces.trace import Trace, make_trace, select_rows
    from traces.write import write_trace

_HOME = {
    "ClientInfo": "header",
    "ClosedLoop": "header",
    "CounterReading": "header",
    "Header": "header",
    "Network": "header",
    "Problem": "problems",
    "SLOTarget": "header",
    "ServerInfo": "header",
    "Source": "header",
    "Trace": "trace",
    "make_trace": "trace",
    "read_trace": "read",
    "select_rows": "trace",
    "write_trace": "write",
}

__all__ = [
    "ClientInfo",
    "ClosedLoop",
    "ConfigError",
    "CounterReading",
    "Header",
    "Network",
    "Problem",
    "SLOTarget",
    "ServerError",
    "ServerInfo",
    "Source",
    "Trace",
    "TraceError",
    "VtwinError",
    "make_trace",
    "read_trace",
    "select_rows",
    "write_trace",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'traces' has no attribute {name!r}")
    value = getattr(import_module(f"traces.{_HOME[name]}"), name)
    globals()[name] = value
    return value
