"""Goodput: the requests that met every latency limit, ``--slo ttft=500ms,tpot=30ms``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from traces import request_metrics
from traces.slo import meets_slo

if TYPE_CHECKING:
    from traces import Trace


class Goodput(TypedDict):
    """Requests that met all of ``slo_us``, as a number, a share of all requests, and per second."""

    slo_us: dict[str, float]
    num_good: int
    good_frac: float | None
    good_per_s: float | None


def goodput(trace: Trace, slo_us: Mapping[str, float], *, duration_us: int) -> Goodput:
    """Return how many requests of ``trace`` met every limit; one that failed met none."""
    ok = (trace.column("status") == "ok").fillna(False).to_numpy(dtype=bool)
    good = ok & meets_slo(request_metrics(trace), slo_us)
    count = int(good.sum())
    return Goodput(
        slo_us=dict(slo_us),
        num_good=count,
        good_frac=count / len(good) if len(good) else None,
        good_per_s=count / (duration_us / 1e6) if duration_us else None,
    )
