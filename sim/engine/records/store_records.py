"""What a store of several instances adds to the engine's records (``kv_offload/shared_store.py`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, Records

STORE_BLOCK = np.dtype(
    [
        ("next", np.uint32),  # in the order of last use, as a chunk's
        ("previous", np.uint32),
        ("key", np.int64),  # of the hash table, NEVER: no request can ask for it
        ("ready_us", np.int64),  # from when on it is found; NEVER: its transfer has not been handed over
        ("busy_us", np.int64),  # until when transfers need it that were handed over
        ("num_pins", np.int64),  # transfers that need it and were not
        ("offer", np.int64),  # the last one that named it
    ],
    align=True,
)
"""A block of a store that instances share (``kv_offload/shared_store.py``); row 0 is the head of the ring."""

KV_STORE = np.dtype([("num_blocks", np.int64), ("num_offers", np.int64)], align=True)
"""How many of its blocks were ever filled, and how often anything was offered to it."""


class StoreArrays:
    """Arrays of all engines that share a store; empty without one."""

    __slots__ = ()

    store_blocks: Records  # STORE_BLOCK[num_cpu_blocks + 1]
    store_slots: NDArray[np.uint32]  # per content: where the store has it, 0 nowhere
    kv_store: Records  # KV_STORE[1]


SHARED_STORE = FeatureRecords(settings=[("has_shared_store", np.int64)], absent={"has_shared_store": 0})
"""One store of all instances."""
