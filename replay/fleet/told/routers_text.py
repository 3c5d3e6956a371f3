"""Routers side by side as lines and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from replay.fleet.plans.router_comparison import Routed, Seen
from traces import counted, shown_time
from traces.facts import AlignedRows, AnswerPart, frac


def routed_parts(found: Sequence[Routed]) -> list[AnswerPart]:
    """Return a row per router and simulation."""
    rows = [
        _row(each.router, how, seen)
        for each in found
        for how, seen in (("seats", each.by_slots), ("engines", each.by_engines))
        if seen is not None
    ]
    head = ("router", "simulated", "to short pool", "TTFT p50", "TTFT p99", "short p99", "long p99")
    short, long = found[0].engines
    return [
        f"{counted(short, 'engine')} for short and {long} for long requests, by formula for the router length",
        AlignedRows([head, *rows], (-14, -11, 14, 12, 22, 12, 12)),
        "seats: a request holds one of an engine's seats; engines: token by token. short, long p99: TTFT "
        "of the requests that a pool had",
    ]


def _row(router: str, how: str, seen: Seen) -> tuple[str, ...]:
    half = "" if np.isnan(seen.ttft_p99_half_s) else f" ± {_shown(seen.ttft_p99_half_s)}"
    others = (_shown(seen.short_ttft_p99_s), _shown(seen.long_ttft_p99_s))
    p50, p99 = _shown(seen.ttft_p50_s), _shown(seen.ttft_p99_s) + half
    return (router, how, frac(seen.short_frac), p50, p99, *others)


def _shown(seconds: float) -> str:
    return "-" if np.isnan(seconds) else shown_time(seconds * 1e6)


def routed_document(found: Sequence[Routed]) -> dict[str, object]:
    """Return the JSON document."""
    return {"schema_version": 1, "method": "simulated", "routers": [asdict(each) for each in found]}
