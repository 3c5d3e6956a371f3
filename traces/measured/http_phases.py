"""How long each phase of a request's HTTP took, as HTTP Archive (HAR 1.2, ``timings``) and k6 divide it.

A new connection has ``dns``, ``connect`` and ``tls``, each where it was needed; every request has ``send``. ``wait`` is
from the last byte sent to the first one received, ``receive`` from there to the last event. From ``send`` on they add
up to the time from ``send_time_us`` to ``last_chunk_time_us``; what comes before is no part of a latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from traces.statistics.quantities import Quantity, quantity

if TYPE_CHECKING:
    from traces.trace import Trace

Float64s = NDArray[np.float64]

RECORDED: Final = ("dns", "connect", "tls", "send")
"""Phases that have a column, ``http_PHASE_us``."""
SLOW_US: Final = 1_000.0
"""A 99th percentile above it is shown: less is no part of any latency that people ask for."""


def http_phases_us(trace: Trace) -> dict[str, Float64s]:
    """Return each phase that any request with status ``ok`` had, µs by request, NaN where one had it not.

    Nothing of a trace that recorded no ``http_send_us``: ``wait`` would contain the sending.
    """
    found = {name: trace.cells(f"http_{name}_us").floats() for name in RECORDED}
    sent, first, last = (
        trace.cells(name).floats() for name in ("send_time_us", "first_byte_time_us", "last_chunk_time_us")
    )
    found["wait"] = np.maximum(
        first - sent - found["send"], 0.0
    )  # a refusal may come while the request is sent
    found["receive"] = np.where(np.isnan(found["send"]), np.nan, last - first)
    is_ok = trace.cells("status").values == "ok"
    counted = {name: np.where(is_ok, values, np.nan) for name, values in found.items()}
    return {name: values for name, values in counted.items() if np.isfinite(values).any()}


PHASE_NAMES: Final = {
    "dns": "name look-up",
    "connect": "TCP connect",
    "tls": "TLS handshake",
    "send": "sending a request",
}


def phase_quantities(trace: Trace) -> dict[str, Quantity]:
    """Return how long each phase of HTTP took over the requests that had it."""
    found = {name: quantity(values) for name, values in http_phases_us(trace).items()}
    return {name: each for name, each in found.items() if each is not None}


def slow_phases(phases: Mapping[str, Quantity]) -> list[tuple[str, Quantity]]:
    """Return those before the server's answer whose 99th percentile is above a millisecond, by their words."""
    return [
        (PHASE_NAMES[name], phases[name])
        for name in RECORDED
        if name in phases and phases[name].p99 > SLOW_US
    ]
