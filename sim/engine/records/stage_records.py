"""What pipeline stages add to the engine's records (``sim/engine/optional/pipeline_stages.py`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, PerRequest


class StageArrays:
    """Empty where there is one stage."""

    __slots__ = ()

    stage_free_us: NDArray[np.int64]  # per stage: when it has done with all that is in flight
    token_us: NDArray[np.int64]  # per request: when its newest token, in flight or not, is sampled
    next_decode_step: NDArray[np.int64]  # per request: the first step in which it may decode


STAGES = FeatureRecords(
    settings=[
        (
            "decode_stagger",
            np.int64,
        ),  # steps from one token of a request to its next, 0: no rule; sim/versions.py
        (
            "waits_for_output",
            np.int64,
        ),  # async with stages: a request whose token is in flight sits a step out
        ("keeps_placeholders", np.int64),  # with stages, without ``sets_stale_output_aside``
    ],
    absent={"pipeline_parallel_size": 1, "decode_stagger": 0, "waits_for_output": 0, "keeps_placeholders": 0},
    per_request=dict.fromkeys(
        ("token_us", "next_decode_step"),
        PerRequest(exists=lambda config: config.pipeline_parallel_size > 1, shared_by="engine"),
    ),
)
"""Pipeline stages."""
