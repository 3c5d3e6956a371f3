"""What LoRA adapters add to the engine's records (``sim/engine/optional/added_time.py`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import NEVER, FeatureRecords, Records

LORA_PLACE = np.dtype([("adapter", np.int64), ("last_step", np.int64)], align=True)
"""A place for an adapter on the GPU, and the last step that used it."""


class LoraArrays:
    """Empty where no request names an adapter."""

    __slots__ = ()

    lora_places: Records  # LORA_PLACE[max_loras, or as many as there are adapters]
    adapter_steps: NDArray[np.int64]  # per adapter: the last step whose batch it was counted in


LORA = FeatureRecords(
    settings=[("limits_adapters", np.int64)],
    current_step=[
        ("num_adapters", np.int64),
        ("has_adapter", np.int64),  # of a jump
    ],
    totals=[("num_lora_loads", np.int64)],
    traits=[("adapter", np.int32)],
    trait_fill={"adapter": NEVER},
    absent={"limits_adapters": 0},
    begins_empty={"lora_places": LORA_PLACE, "adapter_steps": np.int64},
    emptied=("lora_places", "adapter_steps"),
)
"""LoRA adapters, and their places on the GPU."""
