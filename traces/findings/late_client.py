"""What a client that was late may have added to the first token's times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from traces.trace import Trace

_QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def early_us(trace: Trace) -> NDArray[np.float64]:
    """Return by how much each first token may have come earlier than recorded, µs; 0 where the client kept up.

    A read that brings several events has the time of its last byte (``SO_TIMESTAMPNS``); the first of them came after
    the client's loop had last looked. Where the loop is on time this bound says little, and is not used.
    """
    client = trace.header.client
    if client is None or not (client.late or client.limited):
        return np.zeros(len(trace))
    return np.nan_to_num(trace.cells("first_token_early_us").floats(), nan=0.0)


def ttft_too_long_us(trace: Trace) -> dict[str, float]:
    """Return quantiles (p50, p90, p99, max) of what TTFT may be too long by, µs; empty where that is nothing."""
    from traces.metrics import finished_ok

    early = early_us(trace)[finished_ok(trace)]
    if not early.any():
        return {}
    return {name: float(np.quantile(early, q)) for name, q in _QUANTILES.items()}
