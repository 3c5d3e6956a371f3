"""Getting the engine ready: compiled on this machine, or loaded from the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.config import EngineConfig
from sim.engine.control import hold_requests, join_requests
from sim.engine.run import run
from sim.jit.compile import is_cached
from sim.latency import Blackbox
from sim.records.itl import emission_times, ninety_ninth
from sim.records.stack_distances import count_distances
from sim.requests import Requests
from sim.simulation import simulate

ENTRIES: tuple[Callable[..., Any], ...] = (
    run,
    join_requests,
    hold_requests,
    emission_times,
    ninety_ninth,
    count_distances,
)
"""Every compiled function that Python calls."""


def is_compiled() -> bool:
    """Return whether the whole engine can be loaded as it is: nothing of it is left to be compiled."""
    return all(is_cached(function) for function in ENTRIES)


def one_request() -> Requests:
    """Return a request of one token in and one out: enough to have everything compiled."""
    one, none = np.ones(1, np.int64), np.zeros(0, np.int64)
    return Requests(
        arrival_us=one,
        prompt_tokens=one,
        output_tokens=one,
        priority=one,
        hash_offsets=np.zeros(2, np.int64),
        hash_ids=none,
    )


def compile_engine() -> None:
    """Have every function of the engine compiled and loaded: some twenty seconds of CPU time the first time."""
    single = one_request()
    latency = Blackbox(beta0=1)
    simulate(single, EngineConfig(), latency, record="spans").inter_token_latencies()
    simulate(single, EngineConfig(), latency, closed_loop=(1, 0))
    one, none = np.ones(1, np.int64), np.zeros(0, np.int64)
    count_distances(np.zeros(2, np.int64), none, none, one, one, np.zeros(3, np.int64))
