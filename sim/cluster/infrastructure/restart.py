"""An engine that starts again as a new process does: with empty caches, at the present time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.beginning.first_of_features import begin_features_anew
from sim.engine.records.features import FEATURES
from sim.engine.state import State

EMPTIED = ("blocks", "hashes", *(name for feature in FEATURES for name in feature.emptied))
"""What a process loses when it ends."""

Fresh = dict[str, NDArray[Any]]


def fresh_caches(state: State) -> Fresh:
    """Return the caches of a new engine."""
    return {name: getattr(state, name).copy() for name in EMPTIED}


def forget_host_memory(state: State) -> None:
    """Cancel all transfers to and from host memory, and all that is left to store."""
    engine = state.engine[0]
    state.engine["kv_offload"] = np.zeros(1, state.engine["kv_offload"].dtype)
    state.free_slots[:] = np.arange(len(state.free_slots), dtype=np.int64)[::-1]
    engine.queues.num_free_slots = len(state.free_slots)


def begin_anew(state: State, fresh: Fresh) -> None:
    """Empty an engine's caches, in place; it must be idle, with nothing in flight."""
    for name, array in fresh.items():
        ours = getattr(state, name)
        ours[: len(array)] = array
        ours[len(array) :] = np.zeros(1, ours.dtype)
    engine = state.engine[0]
    engine.queues.num_free_blocks = len(state.blocks) - 1
    engine.queues.num_cache_changes += len(state.cache_log) + 1  # more than its log holds: all are looked at
    for name in ("is_blocked", "head_is_blocked", "has_finished_ids", "num_fruitless_steps"):
        setattr(engine.queues, name, 0)
    kv = engine.kv_transfers
    kv.num_holding = kv.num_ready = kv.num_delayed = kv.num_deferred = kv.num_scheduled = kv.num_processed = 0
    kv.num_polled = kv.num_applied = kv.num_delivered
    if len(state.chunks):
        forget_host_memory(state)
    begin_features_anew(state)
    engine.clock.compute_duty = 0.0
    engine.clock.duty_time_us = engine.clock.now_us
    engine.last_schedule.num_running = 0
    engine.last_schedule.num_free_blocks = len(state.blocks) - 1
