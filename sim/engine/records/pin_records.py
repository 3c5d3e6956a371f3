"""What the pinned KV of sessions adds to the engine's records (``sim/engine/kv_cache/session_kv.py`` has the rules)."""

from __future__ import annotations

import numpy as np

from sim.engine.records.feature import FeatureRecords, PerRequest, Records, never

LINEAGE = np.dtype([("pin", np.int32), ("goes_on_from", np.int32), ("is_in_time", np.int64)], align=True)
"""The row of ``State.session_pins`` that a request pins its KV in, and the one it goes on from, NO_PIN none
(``sim/engine/kv_cache/session_kv.py``); whether it came to the queue before that was let go."""

NO_PIN = 0
"""The row of ``State.session_pins`` that is the head of the ring of those which hold blocks."""

SESSION_PIN = np.dtype(
    [
        ("next", np.int32),  # ``kv_cache/ring.py``, by when they were pinned
        ("previous", np.int32),
        ("hash_start", np.int32),  # of ``State.hash_ids``
        ("num_blocks", np.int32),  # 0: nothing is pinned
        ("num_left", np.int32),  # requests that go on from it and were not admitted yet
        ("num_waiting", np.int32),  # of those, how many wait in the queue and came in time
        ("expires_us", np.int64),
        ("began_us", np.int64),  # when its session began, NEVER before the request ended
    ],
    align=True,
)
"""What a request pins that others go on from."""


class PinArrays:
    """Empty where no session's KV is pinned."""

    __slots__ = ()

    lineage: Records  # LINEAGE[capacity]
    session_pins: Records  # SESSION_PIN[requests that others go on from]


PINS = FeatureRecords(
    settings=[
        ("session_kv_ttl_us", np.int64)  # 0: nothing is pinned
    ],
    absent={"session_kv_ttl_us": 0},
    begins_empty={"lineage": LINEAGE, "session_pins": SESSION_PIN},
    per_request={"lineage": PerRequest(exists=never, is_asked_for=True, shared_by="fleet")},
)
"""KV that stays for a session's next round."""
