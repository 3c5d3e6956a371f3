"""What other schedulers add to the engine's records (``sim/engine/optional/batching.py`` has the rules)."""

from __future__ import annotations

import numpy as np

from sim.engine.records.feature import FeatureRecords

VLLM, ORCA, SARATHI, STATIC, VLLM_V0 = 0, 1, 2, 3, 4
"""Which requests are put into a batch (``sim/engine/optional/batching.py``)."""

OTHER_SCHEDULERS = FeatureRecords(
    settings=[
        ("batching", np.int64)  # VLLM, ORCA, SARATHI, STATIC or VLLM_V0
    ],
    absent={"batching": VLLM},
)
"""Other rules of what is put into a batch."""
