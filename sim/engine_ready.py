"""Getting the engine ready: compiled on this machine, or loaded from the cache.

Most runs need the plain engine alone (``sim/engine/plain_run.py``). The whole one, three times as long to compile, is
for those that have images, drafts, adapters, KV cache groups, transfers of KV or the like.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import event

from sim.config import EngineConfig
from sim.engine.control import hold_requests, join_requests
from sim.engine.initial_state import settings_of
from sim.engine.plain_run import is_plain, run_plain
from sim.engine.run import run
from sim.jit.compile import is_cached, one_process_at_a_time
from sim.latency import Blackbox
from sim.records.itl import emission_times, ninety_ninth
from sim.records.stack_distances import count_distances
from sim.requests import Requests
from sim.simulation import simulate

COMMON_ENTRIES: tuple[Callable[..., Any], ...] = (
    join_requests,
    hold_requests,
    emission_times,
    ninety_ninth,
    count_distances,
)
"""The compiled functions that Python calls, but for those that run an engine."""


def entries(*, whole: bool = False) -> tuple[Callable[..., Any], ...]:
    """Return every compiled function that Python calls for a plain engine, or for one that needs the whole."""
    return (run if whole else run_plain, *COMMON_ENTRIES)


def is_compiled(*, whole: bool = False) -> bool:
    """Return whether the plain engine, or the whole one, can be loaded as it is: nothing is left to be compiled."""
    return all(is_cached(function) for function in entries(whole=whole))


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


def needs_whole(config: EngineConfig) -> bool:
    """Return whether an engine needs more than the plain one by its settings alone; by its requests, too, it may."""
    settings = settings_of(config, Blackbox(beta0=1), record="none")
    return config.session_kv_ttl_us > 0 or not is_plain(settings)


def smallest_engine(*, whole: bool = False) -> EngineConfig:
    """Return the settings of a small engine: a plain one, or with pipeline stages, which takes the whole."""
    return EngineConfig(max_num_seqs=1, max_model_len=64, pipeline_parallel_size=2 if whole else 1)


def compile_engine(*, whole: bool = False) -> None:
    """Have every function compiled and loaded that a plain engine, or one that needs the whole, is run with.

    The first time the plain one takes some fifteen seconds of CPU time, the whole one three times as many.
    """
    single, config = one_request(), smallest_engine(whole=whole)
    latency = Blackbox(beta0=1)
    with one_process_at_a_time("whole" if whole else "plain"):
        simulate(single, config, latency, record="spans").inter_token_latencies()
        simulate(single, config, latency, closed_loop=(1, 0))
        one, none = np.ones(1, np.int64), np.zeros(0, np.int64)
        count_distances(np.zeros(2, np.int64), none, none, one, one, np.zeros(3, np.int64))


class _Listener(event.Listener):  # type: ignore[misc] # numba is untyped
    """Hears when the whole engine is about to be compiled."""

    def __init__(self, hear: Callable[[], None]) -> None:
        self._hear = hear

    def on_start(self, event: Any) -> None:  # noqa: ANN401 - numba is untyped
        if event.data["dispatcher"] is run:
            self._hear()

    def on_end(self, event: Any) -> None:  # noqa: ANN401 - numba is untyped
        """Do nothing."""


def when_whole_is_compiled(hear: Callable[[], None]) -> None:
    """Have ``hear`` called before the whole engine is compiled, if ever it is: only its requests may ask for it."""
    event.register("numba:compile", _Listener(hear))
