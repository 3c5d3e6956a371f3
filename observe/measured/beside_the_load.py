"""What was recorded beside a run, and its pictures over time: probes."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces import TraceError, companion_file, pages, stem_of
from traces.pages.request_figures import dots_picture

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideTheLoad:
    """Probes of a run: ``probe_sent_us``, and ``probe_latency_us``, NaN of those that had no whole answer."""

    probe_sent_us: Floats
    probe_latency_us: Floats

    def pictures(self, span_us: float) -> list[pages.Markup]:
        """Return a picture of each that there is, over ``span_us`` from the run's start."""
        if not np.isfinite(self.probe_latency_us).any():
            return []
        title = "Probes, one token each way"
        return [dots_picture(self.probe_sent_us, self.probe_latency_us, title, span_us, None)]


def read_beside(trace: Path) -> BesideTheLoad:
    """Return what lies beside a trace. Raises TraceError for a file that cannot be read as what it is."""
    rows = _rows(companion_file(stem_of(trace), ".probes.csv"), ("sent_us", "last_us", "status"))
    sent = np.array([_number(row["sent_us"]) for row in rows], np.float64)
    last = np.array(
        [_number(row["last_us"]) if row["status"] == "ok" else np.nan for row in rows], np.float64
    )
    return BesideTheLoad(probe_sent_us=sent, probe_latency_us=last - sent)


def _rows(file: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a table, none where there is no file."""
    if not file.is_file():
        return []
    try:
        with file.open(encoding="utf-8", newline="") as lines:
            table = csv.DictReader(lines, strict=True)
            rows = list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        raise TraceError(f"{file}: {fault}; expected a table with {', '.join(columns)}") from fault
    if not set(columns) <= set(table.fieldnames or ()):
        raise TraceError(f"{file}: got no such columns, expected {', '.join(columns)}")
    return rows


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")
