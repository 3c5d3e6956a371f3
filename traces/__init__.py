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
    from traces.conversion import convert
    from traces.files.check import check_trace
    from traces.files.read import read_header, read_trace
    from traces.files.write import write_trace
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
        cut_short_note,
        finished_ok,
        is_from_start,
        mean_rate_per_s,
        metric_notes,
        pooled_itl_us,
        prompt_tokens,
        request_latencies,
        request_metrics,
        send_or_arrival_us,
        token_gaps,
    )
    from traces.tables.problems import Problem
    from traces.trace import Trace, make_trace, select_rows
    from traces.trace_summary import Quantity, Summary, prefix_hit_ceiling_frac, summarize_trace
    from traces.warm_up import is_warmup, without_warmup

_HOME = {
    "ClientInfo": "header",
    "ClosedLoop": "header",
    "CounterReading": "header",
    "Header": "header",
    "METRIC_COLUMNS": "metrics",
    "MetricNotes": "metrics",
    "Network": "header",
    "Problem": "tables.problems",
    "Quantity": "trace_summary",
    "SLOTarget": "header",
    "ServerInfo": "header",
    "Source": "header",
    "Summary": "trace_summary",
    "TokenGaps": "metrics",
    "Trace": "trace",
    "check_trace": "files.check",
    "convert": "conversion",
    "cut_short_note": "metrics",
    "finished_ok": "metrics",
    "is_warmup": "warm_up",
    "make_trace": "trace",
    "is_from_start": "metrics",
    "mean_rate_per_s": "metrics",
    "metric_notes": "metrics",
    "pooled_itl_us": "metrics",
    "prefix_hit_ceiling_frac": "trace_summary",
    "prompt_tokens": "metrics",
    "read_header": "files.read",
    "read_trace": "files.read",
    "request_latencies": "metrics",
    "request_metrics": "metrics",
    "select_rows": "trace",
    "send_or_arrival_us": "metrics",
    "summarize_trace": "trace_summary",
    "token_gaps": "metrics",
    "without_warmup": "warm_up",
    "write_trace": "files.write",
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
    "Quantity",
    "SLOTarget",
    "ServerError",
    "ServerInfo",
    "Source",
    "Summary",
    "TokenGaps",
    "Trace",
    "TraceError",
    "VtwinError",
    "check_trace",
    "convert",
    "cut_short_note",
    "finished_ok",
    "is_from_start",
    "is_warmup",
    "make_trace",
    "mean_rate_per_s",
    "metric_notes",
    "pooled_itl_us",
    "prefix_hit_ceiling_frac",
    "prompt_tokens",
    "read_header",
    "read_trace",
    "request_latencies",
    "request_metrics",
    "select_rows",
    "send_or_arrival_us",
    "summarize_trace",
    "token_gaps",
    "without_warmup",
    "write_trace",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'traces' has no attribute {name!r}")
    value: object = getattr(import_module(f"traces.{_HOME[name]}"), name)
    globals()[name] = value
    return value
