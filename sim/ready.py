"""Getting the engine ready: compiled on this machine, or loaded from the cache."""

from __future__ import annotations

import numpy as np

from sim.config import EngineConfig
from sim.latency import Blackbox
from sim.requests import Requests
from sim.simulation import simulate


def compile_engine() -> None:
    """Have every function of the engine compiled and loaded: half a minute of CPU time the first time."""
    one, none = np.ones(1, np.int64), np.zeros(0, np.int64)
    single = Requests(
        arrival_us=one,
        prompt_tokens=one,
        output_tokens=one,
        priority=one,
        hash_offsets=np.zeros(2, np.int64),
        hash_ids=none,
    )
    simulate(single, EngineConfig(), Blackbox(beta0=1), record="spans").inter_token_latencies()
