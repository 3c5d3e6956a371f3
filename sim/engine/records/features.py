"""Every feature of the engine, once: the engine's tables are the core's own rows and the sum of these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.batching_records import OTHER_SCHEDULERS
from sim.engine.records.blis_records import BLIS, TierArrays
from sim.engine.records.draft_records import DRAFTS, DraftArrays
from sim.engine.records.feature import FeatureRecords, Records
from sim.engine.records.grammar_records import GRAMMARS
from sim.engine.records.group_records import GROUPS, PARTIAL_HITS, GroupArrays, PartialArrays
from sim.engine.records.image_records import IMAGES, ImageArrays
from sim.engine.records.lora_records import LORA, LoraArrays
from sim.engine.records.offload_records import OFFLOADING, OffloadArrays
from sim.engine.records.pin_records import PINS, PinArrays
from sim.engine.records.rank_records import RANKS, RankArrays
from sim.engine.records.stage_records import STAGES, StageArrays
from sim.engine.records.store_records import SHARED_STORE, StoreArrays
from sim.engine.records.transfer_records import TRANSFERS, TransferArrays


class SharedArrays:
    """What several features have together."""

    __slots__ = ()

    traits: Records  # TRAIT[capacity], empty where no setting asks for them
    skipped: NDArray[np.int64]  # requests that the step in hand passed over


SHARED = FeatureRecords(
    settings=[
        ("cuts_shares", np.int64),  # a running request's share may end at a state, or before an image
        ("notes_shares", np.int64),  # a share means something to the encoder or to transfers of KV
        ("may_sit_out", np.int64),  # a running request: prompts are balanced, or there are stages
        (
            "may_pass_over_empty",
            np.int64,
        ),  # admissions that are left no tokens, by the version, and there can be any
        ("has_queue_apart", np.int64),  # of requests passed over, by the version, and there can be any
        ("adds_time", np.int64),  # sim/engine/optional/added_time.py
        ("has_traits", np.int64),
        ("has_loads", np.int64),  # of any kind: a request may hold blocks and not run
    ],
    queues=[
        ("last_passed_over", np.int64)  # of the queue apart, its number + 1; 0: it is empty
    ],
    current_step=[
        ("num_skipped", np.int64)  # waiting requests, for their adapter or grammar
    ],
    absent={
        "notes_shares": 0,
        "may_sit_out": 0,
        "may_pass_over_empty": 0,
        "has_queue_apart": 0,
        "has_traits": 0,
        "has_loads": 0,
    },
)
"""What several features have together."""

FEATURES = (
    SHARED,
    GROUPS,
    PARTIAL_HITS,
    STAGES,
    RANKS,
    OTHER_SCHEDULERS,
    DRAFTS,
    LORA,
    IMAGES,
    GRAMMARS,
    TRANSFERS,
    OFFLOADING,
    SHARED_STORE,
    PINS,
    BLIS,
)


class FeatureArrays(
    GroupArrays,
    PartialArrays,
    DraftArrays,
    RankArrays,
    SharedArrays,
    LoraArrays,
    StageArrays,
    TransferArrays,
    TierArrays,
    OffloadArrays,
    StoreArrays,
    PinArrays,
    ImageArrays,
):
    """The arrays of all features, for those who read ``State``."""

    __slots__ = ()
