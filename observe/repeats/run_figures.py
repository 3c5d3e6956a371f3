"""The figures of a run that are averaged over its repeats, by their names in ``observe --json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

LATENCIES: Final = ("ttft_us", "tpot_us", "itl_us", "e2e_us", "queue_us")
STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")
GOODPUT: Final = "goodput.good_per_s"
GOOD_SHARE: Final = "goodput.good_frac"
RATES: Final = ("request_throughput", "output_token_throughput")

SHOWN: Final = (
    *(f"{name}.{statistic}" for name in LATENCIES for statistic in ("mean", "p50", "p99")),
    *(*RATES, GOODPUT, GOOD_SHARE),
)
"""The figures of one load's table, in its order;"""
FEW: Final = (
    *("ttft_us.mean", "ttft_us.p99", "tpot_us.mean", "e2e_us.mean"),
    *("output_token_throughput", GOOD_SHARE),
)
"""of several loads."""


def run_figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a run that are known: latencies in µs, rates per s, the good requests' share.

    ``summary``: a JSON document's mappings, of `observe` or of `trace info` with its goodput.
    """
    found: dict[str, float | None] = {}
    for latency in LATENCIES:
        of_requests = summary[latency] or {}
        found |= {f"{latency}.{statistic}": of_requests.get(statistic) for statistic in STATISTICS}
    found |= {name: summary[name] for name in RATES}
    if (good := summary["goodput"]) is not None:
        found |= {GOODPUT: good["good_per_s"], GOOD_SHARE: good["good_frac"]}
    return {name: value for name, value in found.items() if value is not None}


def name_of(figure: str) -> str:
    """Return a figure's name for people: TTFT p99."""
    latency, _, statistic = figure.partition(".")
    if latency in LATENCIES:
        shown = latency.removesuffix("_us")
        return f"{shown.upper() if latency != 'queue_us' else shown} {statistic}"
    return _NAMES[figure]


_NAMES: Final = {
    "request_throughput": "requests/s",
    "output_token_throughput": "tokens/s",
    GOODPUT: "goodput/s",
    GOOD_SHARE: "within SLO",
}
