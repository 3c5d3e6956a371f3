"""The pictures of a run: distributions of latencies, latencies over time, throughput over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from traces.pages import (
    Dots,
    Line,
    Mark,
    Note,
    Picture,
    Rule,
    Scale,
    linear,
    scale_of,
)
from traces.pages.spread import spread
from traces.pages.time_axis import time_axis
from traces.units import shown_time

if TYPE_CHECKING:
    from traces import Trace

Floats = NDArray[np.float64]

METRICS = {
    "ttft": ("ttft_us", "TTFT, time to first token"),
    "tpot": ("tpot_us", "TPOT, time per output token"),
    "e2e": ("e2e_us", "E2E, whole answer"),
}
"""The column of ``traces.request_metrics`` and the metric in words, by limit."""
BINS = 60
CDF_POINTS = 300


def distribution_picture(values: Floats, title: str, limit_us: float | None) -> Picture:
    """Return the share of requests up to each time, µs, with the limit as a dashed line."""
    return cdf_of([("simulated", values)], title, limit_us)


def cdf_of(named: Sequence[tuple[str, Floats]], title: str, limit_us: float | None) -> Picture:
    """Return the share of requests up to each time, µs, a line for each (CSS class, values), and the limit."""
    at = np.linspace(0.0, 0.999, CDF_POINTS)
    curves = [(name, np.quantile(values, at)) for name, values in named if len(values)]
    drawn = np.concatenate([np.zeros(0), *(curve for _, curve in curves)])
    divisor, unit = unit_of(drawn)
    x = scale_of(drawn / divisor, label=unit, limit=None if limit_us is None else limit_us / divisor)
    y = linear(0.0, 1.0, most=4, text=lambda value: f"{100 * value:.0f} %")
    marks: list[Mark] = [Line(x=curve / divisor, y=at, name=name) for name, curve in curves]
    if limit_us is not None:
        at_limit, said = limit_us / divisor, f"limit {shown_time(limit_us)}"
        if x.holds(at_limit):
            marks.append(Rule(start=(at_limit, 0.0), end=(at_limit, 1.0), name="limit", label=said))
        else:
            marks.append(Note(text=f"{said}: off the chart", at="bottom"))
    return Picture(title=title, x=x, y=y, marks=marks)


def dots_picture(sent: Floats, values: Floats, title: str, span_us: float, limit_us: float | None) -> Picture:
    """Return a dot per request: its latency, µs, over when it was sent, µs."""
    known = values[np.isfinite(values)]
    divisor, unit = unit_of(known)
    y = scale_of(known / divisor, label=unit, limit=None if limit_us is None else limit_us / divisor)
    time = time_axis(span_us)
    marks: list[Mark] = [Dots(x=sent / time.divisor, y=values / divisor, name="requests")]
    marks += limit_across(time.scale, y, limit_us, divisor=divisor)
    return Picture(title=title, x=time.scale, y=y, marks=marks)


def limit_across(x: Scale, y: Scale, limit_us: float | None, *, divisor: float) -> list[Mark]:
    """Return the limit as a labelled line from left to right, or a note that ``y`` ends before it."""
    if limit_us is None:
        return []
    at, said = limit_us / divisor, f"limit {shown_time(limit_us)}"
    if not y.holds(at):
        return [Note(text=f"{said}: off the chart")]
    return [Rule(start=(x.low, at), end=(x.high, at), name="limit", label=said)]


def throughput_picture(trace: Trace, span_us: float) -> Picture:
    """Return the output tokens per second over time."""
    time = time_axis(span_us)
    edges = np.linspace(0.0, span_us, BINS + 1)
    counted = tokens_in(trace, edges) / (span_us / BINS / 1e6)
    y = linear(0.0, 1.1 * float(counted.max(initial=1.0)), label="tokens/s")
    values = np.append(counted, counted[-1])  # each holds for the stretch that it begins
    line = Line(x=edges / time.divisor, y=values, name="simulated", steps=True)
    return Picture(title="Output tokens per second", x=time.scale, y=y, marks=[line])


def throughput_told(trace: Trace) -> str:
    """Return the sentence on how tokens were placed in time."""
    if trace.events is not None and len(trace.events):
        return "Throughput counts every token when it came."
    return "Throughput assumes that a request's tokens come evenly from its first to its last."


def tokens_in(trace: Trace, edges: Floats) -> Floats:
    """Return how many output tokens came between neighbouring edges, µs ascending from 0: float64 [len(edges) - 1].

    Of requests whose tokens have no times of their own the first comes when it came, the others evenly until the last.
    """
    found, timed = np.zeros(len(edges) - 1), np.zeros(len(trace), np.bool_)
    events = trace.events
    if events is not None and len(events):
        timed = np.isin(trace.column("request_id").to_numpy(object), events["request_id"].unique())
        times = events["timestamp_us"].to_numpy(np.float64)
        weights = events["num_tokens"].to_numpy(np.float64, na_value=1.0)
        found += np.histogram(times, edges, weights=weights)[0]
    first = trace.cells("content_first_time_us").or_else(trace.cells("first_chunk_time_us")).floats()
    last = trace.cells("last_token_time_us").or_else(trace.cells("last_chunk_time_us")).floats()
    tokens = trace.cells("output_tokens").floats()
    rows = np.isfinite(first) & np.isfinite(last) & (tokens > 0) & ~timed
    first, last, tokens = first[rows], last[rows], tokens[rows]
    found += np.histogram(first, edges)[0]
    evenly = spread(
        edges[1:],
        first.astype(np.int64),
        last.astype(np.int64),
        tokens - 1.0,
        where=np.zeros(len(first), np.int32),
        num_places=1,
    )
    return np.asarray(found + evenly[:, 0], np.float64)


def unit_of(values: Floats) -> tuple[float, str]:
    """Return what to divide µs by, and the unit's name, for values of this size."""
    typical = float(np.quantile(values, 0.9)) if len(values) else 0.0
    if typical >= 2e6:
        return 1e6, "s"
    return (1e3, "ms") if typical >= 2e3 else (1.0, "µs")


def time_text(value: float | None) -> str:
    """Return a time, µs, in a readable unit."""
    return "-" if value is None else shown_time(value)


def number_text(value: float | None) -> str:
    """Return a number with four digits, thousands set apart."""
    return "-" if value is None else (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
