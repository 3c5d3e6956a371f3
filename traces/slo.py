"""Latency limits of a single request, ``--slo ttft=500ms,tpot=30ms``, and which requests meet them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from traces.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

SLO_METRICS: Final = {
    "ttft": "ttft_us",
    "ttft_from_due": "ttft_from_due_us",
    "tpot": "tpot_us",
    "itl": "itl_mean_us",
    "e2e": "e2e_us",
}
"""The latencies that may be limited, with their column of ``request_metrics``; ITL is a request's mean."""


def parse_slo(text: str) -> dict[str, float]:
    """Return the limits of ``ttft=500ms,tpot=30ms`` in µs, by metric. Raises ConfigError, for a bare number too."""
    from typer import BadParameter

    from traces.units import parse_seconds

    limits: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        if name not in SLO_METRICS:
            raise ConfigError(
                f"--slo: got {name!r}, expected one of {', '.join(SLO_METRICS)} (ttft=500ms,tpot=30ms)"
            )
        try:
            seconds = parse_seconds(value)
        except BadParameter as error:
            raise ConfigError(f"--slo {name}: {error.message}") from error
        if not seconds > 0:
            raise ConfigError(f"--slo {name}: got {value!r}, expected a time > 0")
        if not value.strip()[-1].isalpha():  # a bare number is seconds elsewhere; here most people mean ms
            raise ConfigError(
                f"--slo {name}: got {value!r} without a unit, expected {value.strip()}ms or {value.strip()}s"
            )
        limits[name] = seconds * 1e6
    return limits


def meets_slo(latencies: pd.DataFrame, slo_us: Mapping[str, float]) -> NDArray[np.bool_]:
    """Return which rows meet every limit; a metric that a request does not have (TPOT of one token) breaks none."""
    good = np.ones(len(latencies), dtype=bool)
    for name, most_us in slo_us.items():
        values = latencies[SLO_METRICS[name]].to_numpy(dtype=np.float64)
        good &= np.isnan(values) | (values <= most_us)
    return good
