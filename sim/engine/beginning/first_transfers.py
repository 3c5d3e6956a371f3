"""Transfers of KV of an engine at its beginning: who waits for one, and what has come of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.engine.beginning.first_shape import FirstShape
from sim.engine.records.feature import Records, records
from sim.engine.records.transfer_records import DEFERRED_FREE, KV_EVENT, TRANSFER
from sim.engine.state import State


def transfer_arrays(shape: FirstShape) -> dict[str, Any]:
    """Return the arrays of transfers: an engine that offloads natively has some of them, too."""
    config = shape.config
    num_batches = max(2, config.max_concurrent_batches)
    return {
        "transfers": records(0, TRANSFER),
        "holding": np.zeros(config.max_num_seqs if config.has_native_offloading else 0, np.int64),
        "kv_events": records(0, KV_EVENT),
        "deferred_frees": deferred_frees(
            num_batches * config.max_num_seqs, exists=bool(shape.settings.defers_block_frees[0])
        ),
    }


def with_kv_transfers(state: State, transfers: Records, *, is_producer: bool) -> State:
    """Return the state of an engine with a KV connector; ``transfers``: of each request, shared by all engines."""
    settings, seats = state.engine.settings, len(state.block_table)
    settings["has_kv_transfers"], settings["is_kv_producer"] = 1, is_producer
    settings["has_loads"] = settings["notes_shares"] = 1
    settings["defers_block_frees"] = (settings.max_concurrent_batches > 1) & (not is_producer)
    return state._replace(
        transfers=transfers,
        holding=np.zeros(seats, np.int64),
        kv_events=records(seats, KV_EVENT),
        deferred_frees=deferred_frees(state.entries.size, exists=bool(settings.defers_block_frees[0])),
    )


def deferred_frees(length: int, *, exists: bool) -> Records:
    """Return the array of requests whose blocks wait to be freed, of no rows where none do."""
    return records(length if exists else 0, DEFERRED_FREE)
