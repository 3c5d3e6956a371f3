"""Failed requests whose answer's length nobody knows: nothing can be simulated or sent in their place."""

from __future__ import annotations

from dataclasses import replace

from traces.header import Source
from traces.metrics import has_failed, served_output
from traces.trace import Trace, select_rows

REASON = "that failed, of unknown output length,"


def with_known_lengths(trace: Trace) -> Trace:
    """Return the trace without its failed requests of unknown length, counted in ``header.source.left_out``."""
    unknown = has_failed(trace) & (served_output(trace).filled(0) < 1)
    number = int(unknown.sum())
    if number == 0:
        return trace
    source = trace.header.source or Source(format="tracev2", file="")
    counted = replace(source, left_out={**source.left_out, REASON: number})
    return select_rows(trace, ~unknown).with_header(source=counted)
