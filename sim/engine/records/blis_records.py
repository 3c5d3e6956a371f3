"""What the peer's rules and its tier in host memory add to the engine's records (``blis.py``, ``cpu_tier.py``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, Records

CPU_SLOT = np.dtype(
    [
        ("next", np.uint32),
        ("previous", np.uint32),
        ("key", np.int64),  # of the hash table, NEVER when the slot is empty
        ("offloaded_us", np.int64),
    ],
    align=True,
)
"""A block's worth of host memory; slot 0 is the head of the ring, whose front is the next to be overwritten."""


class TierArrays:
    """Empty without a second tier."""

    __slots__ = ()

    cpu_slots: Records  # CPU_SLOT[num_cpu_blocks + 1]
    cpu_slot_of_key: NDArray[np.uint32]  # per row of hashes: where the CPU tier has it, 0 nowhere


BLIS = FeatureRecords(
    settings=[
        ("is_blis", np.int64),
        ("num_cpu_blocks", np.int64),
        ("offload_above_blocks", np.int64),  # blocks in use above which evicted contents go to the CPU
        ("reload_us", np.int64),  # per block that comes back
    ],
    current_step=[
        ("step_reload_us", np.int64)  # what its reloads add to its duration
    ],
    totals=[("num_kv_offloads", np.int64), ("num_kv_reloads", np.int64), ("num_kv_thrashings", np.int64)],
    absent={"is_blis": 0, "num_cpu_blocks": 0, "reload_us": 0},
    per_content={"cpu_slot_of_key": 0},
    emptied=("cpu_slots", "cpu_slot_of_key"),
)
"""BLIS's rules."""
