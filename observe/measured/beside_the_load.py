"""What was recorded beside a run, and its pictures over time: probes, power and use of the GPUs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from lazy_dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from observe.beside.power import POWER, UTILIZATION, gpu_series
from observe.beside.scrape import GaugeRow
from traces import TraceError, companion_file, pages, stem_of
from traces.pages.request_figures import dots_picture
from traces.pages.time_axis import time_axis

Floats = NDArray[np.float64]

GAUGES = (
    (POWER, "Power, {} GPUs together", "W", lambda each: each.sum(axis=0)),
    (UTILIZATION, "Time in which a kernel ran, mean of {} GPUs", "%", lambda each: each.mean(axis=0)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideTheLoad:
    """Probes of a run: ``probe_sent_us``, and ``probe_latency_us``, NaN of those that had no whole answer.

    ``gauges``: what was scraped.
    """

    probe_sent_us: Floats
    probe_latency_us: Floats
    gauges: Sequence[GaugeRow]

    def pictures(self, span_us: float) -> list[pages.Markup]:
        """Return a picture of each that there is, over ``span_us`` from the run's start."""
        found = []
        if np.isfinite(self.probe_latency_us).any():
            title = "Probes, one token each way"
            shown = dots_picture(self.probe_sent_us, self.probe_latency_us, title, span_us, None)
            found.append(shown.svg())
        for name, title, unit, over_gpus in GAUGES:
            series = gpu_series(self.gauges, name)
            if any(times[0] <= span_us for times, _ in series.values()):
                said = title.format(len(series))
                found.append(_over_time(list(series.values()), over_gpus, said, unit=unit, span_us=span_us))
        return found


def _over_time(
    series: Sequence[tuple[Floats, Floats]],
    over_gpus: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    title: str,
    *,
    unit: str,
    span_us: float,
) -> pages.Markup:
    """Return one line of all GPUs' readings, each GPU's between its own."""
    at = np.unique(np.concatenate([times for times, _ in series]))
    at = at[at <= span_us]
    values = over_gpus(np.array([np.interp(at, times, values) for times, values in series]))
    time = time_axis(span_us)
    y = pages.linear(0.0, 1.1 * float(values.max(initial=1.0)), label=unit)
    return pages.chart(
        title=title, x=time.scale, y=y, marks=[pages.Line(x=time.of(at), y=values, name="simulated")]
    )


def read_beside(trace: Path) -> BesideTheLoad:
    """Return what lies beside a trace. Raises TraceError for a file that cannot be read as what it is."""
    rows = _rows(companion_file(stem_of(trace), ".probes.csv"), ("sent_us", "last_us", "status"))
    sent = np.array([_number(row["sent_us"]) for row in rows], np.float64)
    last = np.array(
        [_number(row["last_us"]) if row["status"] == "ok" else np.nan for row in rows], np.float64
    )
    gauges = _rows(companion_file(stem_of(trace), ".gauges.csv"), ("time_us", "gauge", "value"))
    return BesideTheLoad(
        probe_sent_us=sent,
        probe_latency_us=last - sent,
        gauges=[
            (int(_number(row["time_us"])), row["gauge"], _number(row["value"]))
            for row in gauges
            if row["gauge"].startswith("DCGM_") and np.isfinite(_number(row["time_us"]))
        ],
    )


def _rows(file: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a table, none where there is no file."""
    if not file.is_file():
        return []
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            table = csv.DictReader(lines, strict=True, restval="")
            names, rows = set(table.fieldnames or ()), list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise TraceError(f"{file}: {fault}; expected a table with {', '.join(columns)}") from fault
    if not set(columns) <= names:
        raise TraceError(f"{file}: got no such columns, expected {', '.join(columns)}")
    return rows


def _number(text: str | None) -> float:
    try:
        number = float(text or "nan")
    except ValueError:
        return float("nan")
    return number if np.isfinite(number) else float("nan")
