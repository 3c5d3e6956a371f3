"""What grammars of guided requests add to the engine's records (``optional/added_time.py`` has the rules)."""

from __future__ import annotations

import numpy as np

from sim.engine.records.feature import FeatureRecords

GRAMMARS = FeatureRecords(
    settings=[("waits_for_grammars", np.int64)],
    queues=[
        ("next_grammar_us", np.int64)  # when the first is there of those that the last step missed, NEVER
    ],
    current_step=[
        ("num_guided", np.int64)  # of a jump
    ],
    traits=[("is_guided", np.int64)],
    absent={"waits_for_grammars": 0},
)
"""Grammars, which compile beside the engine's steps."""
