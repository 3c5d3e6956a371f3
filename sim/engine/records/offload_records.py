"""What native offloading adds to the engine's records (``sim/engine/kv_offload`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, Records

CHUNK = np.dtype(
    [
        (
            "next",
            np.uint32,
        ),  # in the order of last use; 0 is the ring's head, whose next was used longest ago
        ("previous", np.uint32),
        ("ref_cnt", np.int32),  # loads that read it; NEVER while it is being stored
        ("job", np.uint32),  # the transfer that it is part of
        ("next_of_job", np.uint32),
        ("block", np.uint32),  # of the GPU, that it is being stored from
        (
            "next_of_block",
            np.uint32,
        ),  # of those that are being stored from this block and whose request is gone
        ("is_fenced", np.int32),  # it is in that list
        ("key", np.int64),  # of the hash table
        ("offer", np.int64),  # the last offer for storing that named it
        ("rank", np.int64),  # these three: sim/engine/kv_offload/recency.py
        ("order", np.int64),  # and of what goes to a shared store
        ("heap_at", np.int64),
    ],
    align=True,
)
"""A block's worth of host memory of native offloading; row 0 is the head of the ring."""

FENCE = np.dtype([("first_chunk", np.uint32), ("step", np.int64)], align=True)
"""What guards a block of the GPU: the chunks that are being stored from it for requests that are gone, and the last
step that gave it to a request."""

KV_JOB = np.dtype(
    [
        ("next", np.uint32),  # on its link
        ("next_new", np.uint32),  # of those that the step in hand ordered
        ("first_chunk", np.uint32),
        ("is_load", np.int32),
        ("is_departed", np.int32),  # a store whose request is gone: its row may be another's
        ("num_blocks", np.int32),
        ("request", np.int64),
        ("ordered_us", np.int64),
        ("end_us", np.int64),  # NEVER before it is handed over
        ("flush_step", np.int64),  # the last step that waited for it
    ],
    align=True,
)
"""A transfer between the GPU and host memory; row 0 is none."""

LOAD, STORE = 0, 1
"""Rows of ``State.kv_links``."""

KV_LINK = np.dtype(
    [
        ("first_job", np.uint32),  # not reported yet, in their order
        ("last_job", np.uint32),
        ("last_handed_over", np.uint32),
        ("first_waiting", np.uint32),  # not handed over yet
        ("free_us", np.int64),
        ("block_cost", np.int64),  # 10⁻⁶ µs
        ("num_told", np.int64),  # jobs whose end the results of some batch tell of;
        ("num_taken", np.int64),  # of those, jobs whose end was taken in
    ],
    align=True,
)
"""A direction between the GPU and host memory."""

DEPARTED = np.dtype(
    [
        ("request", np.int64),
        ("private_start", np.int64),  # its rows of ``State.seen_keys``
        ("num_tokens", np.int64),
        ("num_prompt_tokens", np.int64),
        ("shared_prefix_boundary", np.int64),
        ("slot", np.int64),  # the row of block_table that it keeps for its last offer, NEVER
        ("gives_row", np.int64),  # that row is free after the offer
        ("num_offered_tokens", np.int64),  # these two: as of a request (TRANSFER)
        ("num_found_tokens", np.int64),
        ("num_tokens_to_offer", np.int64),  # where that offer ends
    ],
    align=True,
)
"""A request that is gone since the last step, as native offloading remembers it."""

OFFERED = np.dtype(
    [("key", np.int64), ("place", np.int64), ("block", np.int64), ("order", np.int64)], align=True
)
"""A block that is offered to host memory: its key, its row of ``State.seen_keys``, where it is on the GPU, and where
among its request's blocks (``recency.py:order_of``)."""

HANDED_STATE = np.dtype(
    [
        ("next", np.uint32),  # of the same request, numbered from 1
        ("block", np.uint32),
        ("request", np.int64),
        ("group", np.int64),
        ("index", np.int64),  # of the block that the state ends
    ],
    align=True,
)
"""A state that has entered the prefix cache, for the step's stores."""

COUNTED = np.dtype([("next", np.uint32), ("previous", np.uint32), ("num_offers", np.int64)], align=True)
"""How often a content was offered for storing, in a ring by when it last was. Row 0 is the ring's head, row k + 1 is
key k."""

KV_OFFLOAD = np.dtype(
    [
        ("num_chunks", np.int64),  # that were ever filled
        ("num_evictable", np.int64),  # that no transfer needs
        ("num_offers", np.int64),
        ("num_counted", np.int64),  # contents whose offers are counted
        ("num_ranks", np.int64),  # given so far; these two: sim/engine/kv_offload/recency.py
        ("heap_length", np.int64),
        ("num_jobs", np.int64),  # rows of ``State.kv_jobs`` ever used
        ("first_free_job", np.int64),
        ("num_handed", np.int64),  # states that the next stores take
        ("num_departed", np.int64),
        ("first_free_piece", np.int64),  # these three: of a shared store
        ("num_pieces", np.int64),  # rows of ``State.chunks`` in use
        ("num_wanted", np.int64),  # of the offer in hand
        ("first_new", np.int64),  # from here on: of the step in hand
        ("last_new", np.int64),
        ("num_new_loads", np.int64),
        ("num_new_stores", np.int64),
        ("num_flushed", np.int64),
        ("flushed_us", np.int64),  # when what it waits for is done
        ("num_reported", np.int64),
    ],
    align=True,
)
"""Native offloading: worthless where ``has_kv_offloading`` is 0."""


class OffloadArrays:
    """Empty without native offloading."""

    __slots__ = ()

    chunks: Records  # CHUNK[num_cpu_blocks + 1]
    chunk_heap: NDArray[
        np.int64
    ]  # chunks that no transfer needs, the next to go first; see ``kv_offload/recency.py``
    fences: Records  # FENCE[num_gpu_blocks]
    kv_links: Records  # KV_LINK[2]: LOAD and STORE
    kv_jobs: Records  # KV_JOB[num_cpu_blocks + 1]: each has a chunk at least
    departed: Records  # DEPARTED[capacity]
    counted: Records  # COUNTED[rows of hashes + 1]; empty where everything is stored at once
    seen_keys: NDArray[
        np.int64
    ]  # per row of hashes, of a request's own block by block: key + 1 of what it used, -(key + 1) of what it offers
    offered: Records  # OFFERED, scratch: an offer
    handed_states: Records  # HANDED_STATE; empty where no states are stored
    store_order: NDArray[np.int64]  # groups in the order in which host memory is asked for them
    num_known_blocks: NDArray[np.int64]  # per row of block_table: how many blocks the connector knows
    num_blocks_before: NDArray[np.int64]  # likewise: before the step in hand
    known_blocks: NDArray[
        np.uint32
    ]  # of groups: those of block_table that the connector knows, 0: none any more


OFFLOADING = FeatureRecords(
    settings=[
        ("has_kv_offloading", np.int64),
        ("hands_states", np.int64),  # those that are kept are handed to the connector
        (
            "store_alignment",
            np.int64,
        ),  # where hits of host memory end; groups of windows keep what these can need
        ("kv_store_threshold", np.int64),
        (
            "draft_step_blocks",
            np.int64,
        ),  # that a request which loads must leave for its first step with drafts
    ],
    totals=[
        ("num_kv_loads", np.int64),  # these six: of transfers, too
        ("num_kv_stores", np.int64),
        ("num_kv_flushes", np.int64),  # that a step waited for
        ("kv_load_wait_us", np.int64),  # of all requests, from asking to being told
        ("kv_flush_wait_us", np.int64),  # of steps
        ("num_kv_loaded_tokens", np.int64),  # of requests' first schedules
    ],
    batch=[
        ("num_told_loads", np.int64),  # ends that its results bring, those of earlier batches included
        ("num_told_stores", np.int64),
    ],
    engine=[("kv_offload", KV_OFFLOAD)],
    absent={"has_kv_offloading": 0, "hands_states": 0},
    per_content={"counted": 1, "seen_keys": 0},
    emptied=("chunks", "fences", "kv_links", "counted"),
)
"""KV blocks in host memory, as vLLM has them."""
