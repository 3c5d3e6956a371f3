"""What data-parallel ranks in step add to the engine's records (``prefill_balance.py``, ``run.py:run_in_lockstep``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, PerRequest


class RankArrays:
    """Arrays of engines that compute prompts in common steps."""

    __slots__ = ()

    prefill_marks: NDArray[np.int64]  # per request: sim/engine/optional/prefill_balance.py


RANKS = FeatureRecords(
    settings=[
        ("is_lockstep", np.int64),  # steps begin and end with those of other engines (run.py:run_in_lockstep)
        ("balances_prefills", np.int64),  # sim/engine/optional/prefill_balance.py
        ("dummy_step_us", np.int64),  # what a step takes of an engine of these that has nothing to compute
    ],
    clock=[
        ("oldest_runs", np.int64),  # in step with other engines: it is on the device, not only planned
        ("num_steps_of_wave", np.int64),  # in step with other engines: since all of them were idle
    ],
    queues=[
        ("is_prefill_bound", np.int64)  # the last step that did not defer prompts left requests without room
    ],
    current_step=[
        ("step_of_wave", np.int64),  # balancing prompts, these two: its number,
        ("defers_prefills", np.int64),  # and whether prompts wait
    ],
    absent={"is_lockstep": 0, "balances_prefills": 0},
    per_request={
        "prefill_marks": PerRequest(
            exists=lambda config: config.prefill_schedule_interval > 1, shared_by="pool"
        )
    },
)
"""Engines that step together."""
