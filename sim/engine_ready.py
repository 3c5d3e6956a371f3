"""Getting the engine ready: compiled on this machine, or loaded from the cache.

Which variant of it a run needs depends on what its engines have (``sim/engine/run_variants.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sim.config import EngineConfig
from sim.engine.control import hold_requests, join_requests
from sim.engine.initial_state import settings_of
from sim.engine.run_variants import RUNS, RunVariant, run_hybrid_counted, run_plain_counted, variant_for
from sim.engine.watching.watched_run import run_watched
from sim.jit.code_cache import one_process_at_a_time
from sim.jit.compile import cache_folder, is_cached, listen
from sim.kv_cache_groups import KVCacheGroup
from sim.latency import Blackbox
from sim.records.itl import put_emission_times, put_ninety_ninth
from sim.records.stack_distances import count_distances, put_distances
from sim.requests import Requests
from sim.simulation import simulate

COMMON_ENTRIES: tuple[Callable[..., Any], ...] = (
    join_requests,
    hold_requests,
    run_watched,
    put_emission_times,
    put_ninety_ninth,
    put_distances,
)
"""The compiled functions that Python calls, except those that run an engine."""


def entries(variant: RunVariant = "plain") -> tuple[Callable[..., Any], ...]:
    """Return every compiled function that Python calls to run an engine with a variant of ``run``."""
    counted = {"plain": (run_plain_counted,), "hybrid": (run_plain_counted, run_hybrid_counted), "whole": ()}
    return (RUNS[variant], *COMMON_ENTRIES, *counted[variant])


def is_compiled(variant: RunVariant = "plain") -> bool:
    """Return whether a variant of the engine can be loaded as it is: nothing of it is left to be compiled."""
    return all(is_cached(function) for function in entries(variant))


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


def needed_variant(config: EngineConfig) -> RunVariant:
    """Return the smallest variant for an engine with these settings; its requests may take a larger one."""
    if config.session_kv_ttl_us > 0:
        return "whole"
    return variant_for(settings_of(config, Blackbox(beta0=1), record="none"))


def smallest_engine(variant: RunVariant = "plain") -> EngineConfig:
    """Return the settings of a small engine that needs a variant: a window beside full attention, or stages."""
    config = EngineConfig(max_num_seqs=1, max_model_len=64)
    if variant == "hybrid":
        groups = (KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=16))
        return replace(config, kv_cache_groups=groups)
    return config if variant == "plain" else replace(config, pipeline_parallel_size=2)


def compile_engine(variant: RunVariant = "plain") -> None:
    """Have every function compiled that an engine run needs, and load those that most runs call.

    The first time it takes some fifteen seconds of CPU time for a plain one, twenty for a hybrid one, three times as
    many for the whole.
    """
    single, config = one_request(), smallest_engine(variant)
    latency = Blackbox(beta0=1)
    if is_compiled(variant):
        simulate(single, config, latency, record="spans").inter_token_latencies()
        return
    with one_process_at_a_time(cache_folder(of_cluster=False), variant):
        simulate(single, config, latency, record="spans").inter_token_latencies()
        simulate(single, config, latency, closed_loop=(1, 0), coalesce=False, points=1)
        if variant == "hybrid":
            states = KVCacheGroup(kind="state", mode="align")
            simulate(single, replace(config, kv_cache_groups=(KVCacheGroup(kind="full"), states)), latency)
        one, none = np.ones(1, np.int64), np.zeros(0, np.int64)
        count_distances(np.zeros(2, np.int64), none, none, one, one, np.zeros(3, np.int64))


def when_compiled(hear: Callable[[RunVariant], None]) -> None:
    """Arrange that ``hear`` is called before a variant of the engine is compiled: requests may need another variant."""
    listen(RUNS, hear)
