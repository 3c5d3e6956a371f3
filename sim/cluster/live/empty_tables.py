"""A cluster's tables before the first request: rows that requests are written into one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.cluster.arrays import NOWHERE
from sim.cluster.client_plans import ClientPlan
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_work import ClusterWork
from sim.config import UNBOUNDED, EngineConfig
from sim.engine.beginning.longer_arrays import longer_hashes
from sim.engine.state import State
from sim.requests import Requests

FIRST_IDS_PER_ROW = 16

UNBOUNDED_BLOCKS = 1 << 20
"""Blocks of an "unbounded" cache, whose requests are not known beforehand."""


def empty_work(
    config: ClusterConfig,
    *,
    num_rows: int,
    num_keys: int,
    num_sessions: int,
    tenants: Sequence[str],
    priorities: Sequence[int],
) -> ClusterWork:
    """Return work without arrivals, whose columns say how large everything may become.

    Engines keep step with the clock, since clients are notified. Each of ``priorities`` occurs, so that a gateway's
    queue has a band for it: ``num_rows`` is at least their number.
    """
    none, nowhere = np.zeros(num_rows, np.int64), np.full(num_rows, NOWHERE, np.int64)
    hash_ids = np.zeros(num_first_ids(config, num_rows), np.int64)
    hash_ids[0] = num_keys - 1
    session, prompt_tokens = nowhere.copy(), none.copy()
    session[0] = num_sessions - 1
    prompt_tokens[0] = max(_longest(pool.engine) for pool in config.pools)
    charges = any(pool.engine.charges_traits for pool in config.pools)
    return ClusterWork(
        requests=Requests(
            arrival_us=none.copy(),
            prompt_tokens=prompt_tokens,
            output_tokens=none.copy(),
            priority=none.copy(),
            hash_offsets=np.zeros(num_rows + 1, np.int64),
            hash_ids=hash_ids,
            is_guided=np.zeros(num_rows, bool) if charges else None,
        ),
        session=session,
        tenant=nowhere.copy(),
        tenants=tenants,
        slo_priority=np.resize(np.array(priorities, np.int64), num_rows),
        slo_target_us=nowhere.copy(),
        clients=ClientPlan(
            arrives=np.zeros(num_rows, bool), held=np.zeros(0, np.int64), due_us=none, think_us=none
        ),
    )


def _longest(engine: EngineConfig) -> int:
    """Return for how many tokens an engine may keep blocks of one request."""
    if (
        engine.kv_cache_groups and engine.frontend == "none"
    ):  # a state is kept at the end of a chunk beyond all limits
        return engine.max_model_len + engine.max_num_batched_tokens
    return engine.max_model_len


def num_first_ids(config: ClusterConfig, num_rows: int) -> int:
    """Return for how many block ids there is room at first; an unbounded cache gets its size from it."""
    if any(pool.engine.num_gpu_blocks == UNBOUNDED for pool in config.pools):
        return UNBOUNDED_BLOCKS
    return FIRST_IDS_PER_ROW * num_rows


def with_room_for_keys(state: State, pool: Pool, *, num_keys: int) -> State:
    """Return a new engine whose hash table is large enough not to be copied soon: unused parts cost no memory."""
    seats, width = pool.engine.max_num_seqs, state.block_table.shape[1]
    return state._replace(**longer_hashes(state, num_keys + 1 + 2 * seats * (width + 1)))
