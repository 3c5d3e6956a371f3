"""What drafts add to the engine's records (``sim/engine/optional/speculative.py`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, PerRequest

NEVER_PADS, PADS_OR_WAITS, PADS_WHERE_IT_FITS, PADS_BESIDE_HITS = 0, 1, 2, 3
"""Which admissions are padded with drafts, oldest first (``speculative_decoding.py:Padding``)."""


class DraftArrays:
    """Arrays of engines that speculate."""

    __slots__ = ()

    num_drafts: NDArray[np.int32]  # per request: speculated tokens in hand
    acceptance_rates: NDArray[np.float64]  # [num_speculative_tokens]


DRAFTS = FeatureRecords(
    settings=[
        ("num_first_lookahead_tokens", np.int64),  # of a request that is admitted
        ("num_hash_lookahead_tokens", np.int64),  # behind a block, that its hash covers, too
        ("pads_admissions", np.int64),  # NEVER_PADS to PADS_BESIDE_HITS
        ("num_reserved_tokens", np.int64),  # for drafts, of each request whose prompt is under way;
        ("num_reserved_blocks", np.int64),  # or so many blocks
    ],
    current_step=[
        ("has_prefill", np.int64)  # speculating: a prompt of a running request goes on in it
    ],
    totals=[
        ("num_draft_tokens", np.int64),  # verified
        ("num_accepted_tokens", np.int64),
    ],
    absent={
        "num_speculative_tokens": 0,
        "num_lookahead_tokens": 0,
        "num_first_lookahead_tokens": 0,
        "num_hash_lookahead_tokens": 0,
        "num_prefill_lookahead_tokens": 0,
        "pads_admissions": NEVER_PADS,
    },
    per_request={
        "num_drafts": PerRequest(exists=lambda config: config.num_speculative_tokens > 0, shared_by="pool")
    },
)
"""Speculative decoding."""
