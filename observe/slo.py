"""Goodput: the share of requests that kept every promise, ``--slo ttft=500ms,tpot=30ms``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypedDict

import numpy as np

from traces import ConfigError, request_metrics

if TYPE_CHECKING:
    from traces import Trace

METRICS: Final = {
    "ttft": "ttft_us",
    "ttft_from_due": "ttft_from_due_us",
    "tpot": "tpot_us",
    "itl": "itl_mean_us",
    "e2e": "e2e_us",
}
"""What may be promised: the mean ITL of a request, the others as they are defined."""


class Goodput(TypedDict):
    """Requests that kept all of ``slo_us``, as a number, a share of all requests, and per second."""

    slo_us: dict[str, float]
    num_good: int
    good_frac: float | None
    good_per_s: float | None


def parse_slo(text: str) -> dict[str, float]:
    """Return the promises of ``ttft=500ms,tpot=30ms`` in µs, by metric. Raises ConfigError."""
    from typer import BadParameter

    from traces.workload.options import parse_seconds

    promises: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in METRICS:
            raise ConfigError(
                f"--slo: got {name!r}, expected one of {', '.join(METRICS)} (ttft=500ms,tpot=30ms)"
            )
        try:
            seconds = parse_seconds(value)
        except BadParameter as error:
            raise ConfigError(f"--slo {name}: {error.message}") from error
        if not seconds > 0:
            raise ConfigError(f"--slo {name}: got {value!r}, expected a time > 0")
        promises[name] = seconds * 1e6
    return promises


def goodput(trace: Trace, slo_us: Mapping[str, float], *, duration_us: int) -> Goodput:
    """Return how many requests of ``trace`` kept every promise; one that failed kept none.

    A metric that a request does not have (TPOT of a single token) cannot break its promise.
    """
    metrics = request_metrics(trace)
    good = (trace.column("status") == "ok").fillna(False).to_numpy(dtype=bool)
    for name, most_us in slo_us.items():
        values = metrics[METRICS[name]].to_numpy(dtype=np.float64)
        good &= np.isnan(values) | (values <= most_us)
    count = int(good.sum())
    return Goodput(
        slo_us=dict(slo_us),
        num_good=count,
        good_frac=count / len(good) if len(good) else None,
        good_per_s=count / (duration_us / 1e6) if duration_us else None,
    )
