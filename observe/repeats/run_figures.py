"""The figures of a run that are averaged over its repeats, by their names in ``observe --json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from observe.result.json_document import ObservedSummary

LATENCIES: Final = ("ttft_us", "tpot_us", "itl_us", "e2e_us", "queue_us")
STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")
GOODPUT: Final = "goodput.good_per_s"
GOOD_SHARE: Final = "goodput.good_frac"
RATES: Final = ("request_throughput", "output_token_throughput", GOODPUT)


def run_figures(summary: ObservedSummary) -> dict[str, float]:
    """Return the figures of a run that are known: latencies in µs, rates per s, the good requests' share."""
    found: dict[str, float | None] = {}
    told: Mapping[str, object] = summary
    for latency in LATENCIES:
        of_requests = told[latency]
        assert isinstance(of_requests, Mapping)  # noqa: S101  a distribution
        found |= {f"{latency}.{statistic}": of_requests[statistic] for statistic in STATISTICS}
    found |= {name: summary[name] for name in RATES[:2]}
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
