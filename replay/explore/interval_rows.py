"""The rows of the page's table that say how well a run's requests know their medians and 99th percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from traces import interval_text

if TYPE_CHECKING:
    from replay.trace.simulation_summary import SimulationSummary

METRICS = {"TTFT": "ttft_us", "TPOT": "tpot_us", "E2E": "e2e_us"}
"""By the name that a row of the table begins with."""


def with_intervals(column: Mapping[str, str], summary: SimulationSummary) -> dict[str, str]:
    """Return a column of the table with an interval below each median and 99th percentile that has one.

    They are those of ``p99_precision`` in the document of the run.
    """
    found: dict[str, str] = {}
    for name, text in column.items():
        found[name] = text
        metric, _, percent = name.partition(" ")
        if percent in ("p50", "p99") and metric in METRICS:
            found[f"  {percent} within, {metric}"] = _cell(summary, METRICS[metric], percent)
    return found


def _cell(summary: SimulationSummary, metric: str, percent: str) -> str:
    """Return an interval in words, "-" where so few requests show none."""
    known, median = summary["p99_precision"].get(metric), summary[metric]["p50"]  # type: ignore[literal-required] # one of METRICS
    if known is None:
        return "-"
    low, high = (known["low"], known["high"]) if percent == "p99" else (known["p50_low"], known["p50_high"])
    return "-" if low is None else interval_text(low, high, median)
