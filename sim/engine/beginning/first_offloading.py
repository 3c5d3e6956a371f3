"""Native offloading of an engine at its beginning: host memory, the ways to it, what its settings say of both."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig
from sim.engine.beginning.first_shape import FirstShape, group_sizes
from sim.engine.records.feature import Records, records
from sim.engine.records.offload_records import (
    CHUNK,
    COUNTED,
    DEPARTED,
    FENCE,
    HANDED_STATE,
    KV_JOB,
    KV_LINK,
    OFFERED,
)
from sim.engine.records.store_records import KV_STORE, STORE_BLOCK
from sim.latency.latency_model import SCALE
from sim.versions import VersionRules

MOST_MOVED = 4
"""Blocks on their way to a shared store, for each of the GPU's: one, and those whose end is not known yet."""


def set_offloading(settings: Records, config: EngineConfig, rules: VersionRules) -> None:
    """Switch native offloading on, where it is."""
    if not config.has_native_offloading:
        return
    settings["has_kv_offloading"] = settings["has_loads"] = settings["notes_shares"] = 1
    settings["defers_block_frees"] = config.max_concurrent_batches > 1
    settings["store_alignment"] = store_alignment_of(config)
    settings["hands_states"] = hands_states(config)
    settings["kv_store_threshold"] = config.kv_store_threshold
    settings["has_shared_store"] = config.has_shared_store
    settings["gives_up_by_place"] = gives_up_by_place(config, rules)
    settings["offers_again"] &= not config.has_shared_store


def offload_arrays(shape: FirstShape) -> dict[str, Any]:
    """Return the arrays of native offloading, without rows where there is none."""
    config, width, num_table_rows = shape.config, shape.width, shape.num_table_rows
    is_on = config.has_native_offloading
    num_chunks = config.num_cpu_blocks + 1 if is_on else 0
    num_jobs = num_chunks
    if config.has_shared_store:  # rows of blocks under way; a load has none
        num_chunks = MOST_MOVED * shape.num_blocks + 1
        num_jobs = num_chunks + shape.num_blocks
    links = records(2 if is_on else 0, KV_LINK)
    if is_on:
        costs = (config.kv_load_us_per_block, config.kv_store_us_per_block)
        links["block_cost"] = [round(Fraction(repr(cost)) * SCALE) for cost in costs]
    counts = is_on and config.kv_store_threshold > 1
    return {
        **new_store(config, num_contents=config.num_kv_cache_groups * shape.num_hashes),
        "chunks": records(num_chunks, CHUNK),
        "chunk_heap": np.zeros(num_chunks if gives_up_by_place(config, shape.rules) else 0, np.int64),
        "fences": records(shape.num_blocks if is_on else 0, FENCE),
        "kv_links": links,
        "kv_jobs": records(num_jobs, KV_JOB),
        "departed": records(config.max_num_seqs if is_on else 0, DEPARTED),
        "counted": records(shape.num_rows + 1 if counts else 0, COUNTED),
        "seen_keys": np.zeros(shape.num_rows if is_on else 0, np.int64),
        "offered": records(config.num_kv_cache_groups * width if is_on else 0, OFFERED),
        "handed_states": records(most_handed_states(config) if hands_states(config) else 0, HANDED_STATE),
        "store_order": store_order_of(config) if is_on else np.zeros(0, np.int64),
        "num_known_blocks": np.zeros(num_table_rows if is_on else 0, np.int64),
        "num_blocks_before": np.zeros(num_table_rows if is_on else 0, np.int64),
        "known_blocks": np.zeros(
            (num_table_rows if is_on and config.kv_cache_groups else 0, width), np.uint32
        ),
    }


def new_store(config: EngineConfig, *, num_contents: int) -> dict[str, Any]:
    """Return the arrays of a store that instances share, all empty; without rows where there is none."""
    is_on = config.has_shared_store
    return {
        "store_blocks": records(config.num_cpu_blocks + 1 if is_on else 0, STORE_BLOCK),
        "store_slots": np.zeros(num_contents if is_on else 0, np.uint32),
        "kv_store": records(1 if is_on else 0, KV_STORE),
    }


def gives_up_by_place(config: EngineConfig, rules: VersionRules) -> bool:
    """Return whether host memory is one engine's, and gives up its contents in the order of places."""
    is_own = config.has_native_offloading and not config.has_shared_store
    return is_own and rules.gives_up_by_place


def hands_states(config: EngineConfig) -> bool:
    """Return whether states at the ends of blocks go to host memory."""
    return config.has_native_offloading and any(group.mode == "align" for group in config.kv_cache_groups)


def most_handed_states(config: EngineConfig) -> int:
    """Return how many states enter the prefix cache between two stores at most.

    A request's blocks enter it when it is admitted, when a step gives it tokens and when one's results come in, at most
    two full ones of each group at a time. One more request may have its loaded blocks and not fit.
    """
    return 6 * (config.max_num_seqs + 1) * config.num_kv_cache_groups


def store_alignment_of(config: EngineConfig) -> int:
    """Return at whose multiples hits of host memory can end: the full groups' blocks, or the largest without one.

    1 where full groups have unlike sizes: then every block of a window is stored (vllm 0.32.0
    distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py:SchedulerOffloadConfig.from_spec).
    """
    sizes = group_sizes(config)
    full = {size for group, size in zip(config.kv_cache_groups, sizes, strict=False) if group.kind == "full"}
    if not full:
        return max(sizes)
    return full.pop() if len(full) == 1 else 1


def store_order_of(config: EngineConfig) -> NDArray[np.int64]:
    """Return the groups in the order in which host memory is asked: full ones, then windows, most blocks first."""
    order = np.arange(config.num_kv_cache_groups)
    if not config.kv_cache_groups:
        return order
    sizes = group_sizes(config)
    blocks = [
        -(-(group.window or group.chunk or 1) // size)
        for group, size in zip(config.kv_cache_groups, sizes, strict=True)
    ]
    windows = [number for number in order if config.kv_cache_groups[number].kind != "full"]
    full = [number for number in order if config.kv_cache_groups[number].kind == "full"]
    return np.array([*full, *sorted(windows, key=lambda number: -blocks[number])], np.int64)
