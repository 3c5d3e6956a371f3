"""What KV that another engine computes adds to the engine's records (``sim/engine/kv_transfer`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, PerRequest, Records

TRANSFER = np.dtype(
    [
        ("do_remote_prefill", np.int32),  # its prompt is computed elsewhere and has not been asked for yet
        ("do_remote_decode", np.int32),  # its blocks are held until another engine has them
        ("is_held", np.int32),  # it stands in `holding`
        ("is_received", np.int32),  # its KV is there
        ("is_prefill_chunk", np.int32),  # the step that it was in last did not complete its known tokens
        (
            "num_local_tokens",
            np.int32,
        ),  # found in the engine's own prefix cache when its blocks were handed out
        ("num_external_computed_tokens", np.int32),  # beyond those, from the other engine
        ("num_blocks", np.int32),  # that these take, P/D alone
        ("num_offered_tokens", np.int32),  # from here on: offloading. The full blocks of so many were offered
        (
            "num_found_tokens",
            np.int32,
        ),  # so many were there when it last loaded: their blocks are not offered
        ("num_stores", np.int32),  # under way or ordered
        (
            "first_handed",
            np.uint32,
        ),  # of its states, those that the next stores take (``State.handed_states``),
        ("last_handed", np.uint32),  # numbered from 1; 0: none
        ("num_loaded_tokens", np.int32),  # when it was first scheduled
        ("num_tokens_of_share", np.int32),  # in the step that it was in last,
        ("step_of_share", np.int64),  # and which one that was
        ("rank", np.int64),  # of what it uses of host memory while it runs, 0: none yet
        (
            "load_wait_us",
            np.int64,
        ),  # from asking for blocks to being told that they are there, all times together
    ],
    align=True,
)
"""What becomes of a request's KV between two engines (vLLM's ``kv_transfer_params``), or between GPU and host."""

KV_EVENT = np.dtype([("time_us", np.int64), ("request", np.int64), ("kind", np.int64)], align=True)

FINISHED_RECVING, FINISHED_SENDING = 0, 1
"""What a worker reports of a transfer: its blocks are filled, or its blocks are read."""

KV_TRANSFERS = np.dtype(
    [
        ("num_holding", np.int64),  # requests that hold blocks and do not run: they load, or have just loaded
        ("num_ready", np.int64),  # of those, requests that could be admitted
        ("num_delayed", np.int64),  # requests that are gone and whose blocks are not free yet
        ("num_delivered", np.int64),  # ends of transfers so far;
        ("num_polled", np.int64),  # of those, how many a batch has taken along;
        ("num_applied", np.int64),  # of those, how many batches' results are in
        ("num_heard", np.int64),  # by the last batch whose results came in
        ("num_deferred", np.int64),  # these three: sim/engine/kv_transfer/deferred_frees.py
        ("num_scheduled", np.int64),
        ("num_processed", np.int64),
    ],
    align=True,
)
"""Transfers of KV: worthless where ``has_loads`` is 0."""

DEFERRED_FREE = np.dtype([("request", np.int64), ("fence", np.int64)], align=True)
"""A request that is gone, and the batch whose results free its blocks."""


class TransferArrays:
    """Empty where no KV is transferred."""

    __slots__ = ()

    transfers: Records  # TRANSFER[capacity]
    holding: NDArray[
        np.int64
    ]  # requests that hold blocks and do not run, in the order in which they are asked
    kv_events: Records  # KV_EVENT[rows of block_table]: a ring of ended transfers
    deferred_frees: Records  # DEFERRED_FREE[len(batches) * max_num_seqs], empty where no free is deferred


TRANSFERS = FeatureRecords(
    settings=[
        ("has_kv_transfers", np.int64),  # sim/engine/kv_transfer
        ("is_kv_producer", np.int64),
        ("defers_block_frees", np.int64),
    ],
    batch=[
        (
            "num_polled",
            np.int64,
        )  # ends of KV transfers that its results bring, those of earlier batches included
    ],
    engine=[("kv_transfers", KV_TRANSFERS)],
    absent={"has_kv_transfers": 0, "is_kv_producer": 0, "defers_block_frees": 0},
    per_request={
        "transfers": PerRequest(
            exists=lambda config: config.has_native_offloading, is_asked_for=True, shared_by="fleet"
        )
    },
)
"""Transfers of KV between engines."""
