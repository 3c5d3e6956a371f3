"""The pictures of a run: distributions of latencies, latencies over time, throughput over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.pages import Chart, Dots, Line, Mark, Rule, Scale, chart, linear, scale_of
from replay.units import shown_time

if TYPE_CHECKING:
    from traces import Trace

Floats = NDArray[np.float64]

METRICS = {
    "ttft": ("ttft_us", "TTFT, time to first token"),
    "tpot": ("tpot_us", "TPOT, time per output token"),
    "e2e": ("e2e_us", "E2E, whole answer"),
}
"""By limit: the column of ``traces.request_metrics``, and the metric in words."""
BINS = 60
CDF_POINTS = 300


def distribution_picture(values: Floats, title: str, limit_us: float | None) -> str:
    """Return the share of requests up to each time, µs, with the limit as a dashed line."""
    at = np.linspace(0.0, 0.999, CDF_POINTS)
    curve = np.quantile(values, at) if len(values) else np.zeros(0)
    divisor, unit = unit_of(curve)
    ends = curve if limit_us is None else np.append(curve, limit_us)
    x = scale_of(ends / divisor, label=unit)
    y = linear(0.0, 1.0, most=4, text=lambda value: f"{100 * value:.0f} %")
    marks: list[Mark] = [Line(x=curve / divisor, y=at[: len(curve)], name="simulated")]
    if limit_us is not None:
        marks.append(Rule(start=(limit_us / divisor, 0.0), end=(limit_us / divisor, 1.0), name="limit"))
    return chart(Chart(title=title, x=x, y=y, marks=marks))


def dots_picture(sent: Floats, values: Floats, title: str, span_us: float, limit_us: float | None) -> str:
    """Return a dot per request: its latency, µs, over when it was sent, µs."""
    known = values[np.isfinite(values)]
    divisor, unit = unit_of(known)
    ends = known if limit_us is None else np.append(known, limit_us)
    y = scale_of(ends / divisor, label=unit)
    x = seconds(span_us)
    marks: list[Mark] = [Dots(x=sent / 1e6, y=values / divisor, name="requests")]
    if limit_us is not None:
        marks.append(Rule(start=(x.low, limit_us / divisor), end=(x.high, limit_us / divisor), name="limit"))
    return chart(Chart(title=title, x=x, y=y, marks=marks))


def throughput_picture(trace: Trace, span_us: float) -> str:
    """Return the output tokens per second over time, counted at the end of their answer."""
    ends = trace.column("last_token_time_us").to_numpy(np.float64, na_value=np.nan)
    tokens = trace.column("output_tokens").to_numpy(np.float64, na_value=0.0)
    done = np.isfinite(ends)
    edges = np.linspace(0.0, span_us, BINS + 1)
    counted = np.histogram(ends[done], edges, weights=tokens[done])[0] / (span_us / BINS / 1e6)
    middles = (edges[:-1] + edges[1:]) / 2e6
    y = linear(0.0, 1.1 * float(counted.max(initial=1.0)), label="tokens/s")
    line = Line(x=middles, y=np.asarray(counted, np.float64), name="simulated", steps=True)
    return chart(Chart(title="Output tokens per second", x=seconds(span_us), y=y, marks=[line]))


def seconds(span_us: float) -> Scale:
    """Return the axis of the run's time."""
    return linear(0.0, span_us / 1e6, label="s")


def unit_of(values: Floats) -> tuple[float, str]:
    """Return what to divide µs by, and the unit's name, for values of this size."""
    typical = float(np.quantile(values, 0.9)) if len(values) else 0.0
    if typical >= 2e6:
        return 1e6, "s"
    return (1e3, "ms") if typical >= 2e3 else (1.0, "µs")


def time_text(value: float | None) -> str:
    """Return a time, µs, in the unit in which people read it."""
    return "-" if value is None else shown_time(value)


def number_text(value: float | None) -> str:
    """Return a number with four digits, thousands set apart."""
    return "-" if value is None else (f"{value:,.0f}" if value >= 1000 else f"{value:.4g}")
