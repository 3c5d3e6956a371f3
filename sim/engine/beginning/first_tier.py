"""The peer's second tier at an engine's beginning: slots of host memory, all empty."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from sim.config import EngineConfig
from sim.engine.beginning.first_shape import FirstShape
from sim.engine.records.blis_records import CPU_SLOT
from sim.engine.records.feature import NEVER, Records, records
from sim.versions import VersionRules


def tier_arrays(shape: FirstShape) -> dict[str, Any]:
    """Return the arrays of a second tier; which contents are in it, native offloading asks, too."""
    config = shape.config
    has_keys = config.has_cpu_tier and not config.has_shared_store
    return {
        "cpu_slots": _new_cpu_slots(config.num_cpu_blocks if config.has_blis_tier else 0),
        "cpu_slot_of_key": np.zeros(shape.num_hashes + 1 if has_keys else 0, np.uint32),
    }


def set_tier(settings: Records, config: EngineConfig, _: VersionRules) -> None:
    """Switch the tier on, where it is: its size, from how many blocks in use on it fills, what a way back takes."""
    if not config.has_blis_tier:
        return
    settings["num_cpu_blocks"] = config.num_cpu_blocks
    settings["offload_above_blocks"] = int(config.kv_offload_threshold * (config.num_gpu_blocks - 1))
    moving = Fraction(config.block_size) / Fraction(repr(config.kv_transfer_bandwidth))
    settings["reload_us"] = config.kv_transfer_base_latency + math.ceil(moving)


def _new_cpu_slots(num_cpu_blocks: int) -> Records:
    """Return the CPU tier's slots, all empty, in a ring closed by slot 0."""
    slots = records(num_cpu_blocks + 1, CPU_SLOT)
    numbers = np.arange(num_cpu_blocks + 1, dtype=np.int64)
    slots["next"] = (numbers + 1) % (num_cpu_blocks + 1)
    slots["previous"] = (numbers - 1) % (num_cpu_blocks + 1)
    slots["key"] = NEVER
    return slots
