"""One pool of slots from its first request to its last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.fleet import GpuProfile, Lengths
from sim.fleet.slot_simulation import SlotPool, SlotRun


def simulate_slots(
    profile: GpuProfile, lengths: Lengths, arrival_s: NDArray[np.float64], *, context: int, gpus: int
) -> SlotRun:
    """Return what becomes of requests that arrive at these times (ascending, seconds) at a pool of GPUs."""
    pool = SlotPool(profile, lengths, arrival_s, context=context, gpus=gpus)
    for request, now in enumerate(arrival_s):
        pool.advance(float(now))
        pool.accept(request, float(now))
    pool.advance(np.inf)
    return pool.result()
