"""What several KV cache groups add to the engine's records (``sim/engine/kv_cache/groups`` has the rules)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.feature import FeatureRecords, Records

FULL, SLIDING, CHUNKED, STATE, ALIGNED_STATE = 0, 1, 2, 3, 4
"""Kinds of KV cache groups (``sim/kv_cache_groups.py``), states last. ALIGNED_STATE: mode align."""

BEFORE_OUTPUTS, TO_LAST_STATE, AT_JUNCTIONS, AT_KNOWN_ENDS, AT_BLOCK_ENDS = 0, 1, 2, 3, 4
"""How chunks of prompts end at states, oldest first (``kv_groups.py:StateChunks``)."""

NO_CHECKPOINTS, FROM_BLOCK_ENDS, OF_EVERY_CHUNK, OF_LAST_CHUNK, WHERE_HITS_END = 0, 1, 2, 3, 4
"""Which states are saved inside chunks, oldest first (``kv_groups.py:PrefillCheckpoints``)."""

UNSHARED = -2
"""In place of a key: a block's content is cached, and no request but its own could ask for it."""

NO_OWNER = 0xFFFFFFFF
"""The owner of an unshared block that no request can find any more."""

KV_CACHE_GROUP = np.dtype(
    [
        ("kind", np.int64),
        ("block_size", np.int64),
        (
            "window",
            np.int64,
        ),  # of a sliding group, with what drafts keep behind it; of a chunked one its chunk
        ("num_hashes_per_block", np.int64),
        ("most_blocks", np.int64),  # that the gate of admission counts for a request
        ("num_blocks_for_hit", np.int64),  # sliding: in a row, ending at the hit
        ("blocks_per_segment", np.int64),  # between places at which a hit can end
        ("next_alike", np.int64),  # the next group of the same kind and numbers, NEVER
        ("next_to_ask", np.int64),  # of the first of its kind: the next kind in the order of lookups, NEVER
        ("use_eagle", np.int64),  # of these, or of one alike, a hit's last block is computed again for drafts
        ("caches_past_hit", np.int64),  # and that block is kept for them
        ("is_eagle_group", np.int64),  # it was marked as one of these: host memory goes by the marks
        ("saves_checkpoints", np.int64),  # states: of a prompt's chunk, in a block for it
        ("checkpoint_alignment", np.int64),  # at such a distance from the chunk's start, 0: none is saved
        ("is_eagle_verified", np.int64),  # these three: the lookup in hand; its length has lost that block
        ("num_hit_blocks", np.int64),
        ("hit_length", np.int64),  # NEVER: not looked up yet
        (
            "num_to_put",
            np.int64,
        ),  # the offer to a shared store in hand: behind its last block that is not there yet
    ],
    align=True,
)
"""A KV cache group."""

GROUP_ROW = np.dtype(
    [
        ("num_blocks", np.int32),  # null blocks in place of what was let go included
        ("num_cached_blocks", np.int32),  # leading blocks that carry a hash, or were passed over
        ("num_retired_blocks", np.int32),  # states: leading blocks that were let go
        ("last_state_block", np.int32),  # states: where the state before the newest is, NEVER
        ("checkpoint_place", np.int32),  # states: where one is saved inside the newest tokens, 0: none is
        ("checkpoint_block", np.int32),  # and which block has it
        (
            "shared_prefix_boundary",
            np.int32,
        ),  # of the request, in its first group's row: 0 where there is none
        (
            "next_visit",
            np.int32,
        ),  # likewise: at how many computed tokens a decode's blocks change next, 0: unknown
    ],
    align=True,
)
"""What a request has in one group; there as long as it owns a slot."""


PARTIAL_HASH = np.dtype(
    [
        (
            "hash_id",
            np.int32,
        ),  # these three: as of a block; a content has one place in a block, so none is in both
        ("next_same_hash", np.uint32),
        ("previous_same_hash", np.uint32),
    ],
    align=True,
)
"""The content of a block that ends inside it (``sim/engine/kv_cache/groups/partial.py``)."""

BLOCK_COPY = np.dtype([("group", np.int64), ("source", np.int64), ("destination", np.int64)], align=True)
"""A block that the step in hand copies, both held until it is scheduled."""


class GroupArrays:
    """Empty where there is one full group."""

    __slots__ = ()

    kv_cache_groups: Records  # KV_CACHE_GROUP[groups]
    group_rows: Records  # GROUP_ROW[max_num_seqs, groups]
    group_hits: NDArray[
        np.uint32
    ]  # [groups, blocks of the longest request]: the lookup in hand; 0: none is needed
    step_of_key: NDArray[
        np.int64
    ]  # per row of hashes: the step that made this state; empty without aligned states


GROUPS = FeatureRecords(
    settings=[
        ("num_kv_cache_groups", np.int64),
        ("has_kv_cache_groups", np.int64),  # other than one full group
        ("first_group_to_ask", np.int64),  # in the order of lookups: a full one, if there is any
        ("asks_groups_once", np.int64),  # one group, or a full kind and one other: one round settles it
        ("aligns_states", np.int64),  # chunks of prompts end where states are kept
        ("has_windows", np.int64),  # some group lets go of blocks while its request runs
        (
            "retention_interval",
            np.int64,
        ),  # of windows and states: tokens between checkpoints, 0: none, NEVER: all
        ("state_chunks", np.int64),  # BEFORE_OUTPUTS to AT_BLOCK_ENDS
        ("prefill_checkpoints", np.int64),  # NO_CHECKPOINTS where no group saves any
        ("checkpoint_alignment", np.int64),  # of the first group of states, 0 unless all save any
        ("use_eagle", np.int64),  # the last block of a hit is computed again
    ],
    current_step=[
        ("waits_for_state", np.int64),  # the head did not fit, but may in the very next step
        ("shared_prefix_boundary", np.int64),  # up to where some group has the prefix of the lookup in hand
    ],
    absent={
        "num_kv_cache_groups": 1,
        "has_kv_cache_groups": 0,
        "has_windows": 0,
        "aligns_states": 0,
        "cuts_shares": 0,
        "use_eagle": 0,
        "prefill_checkpoints": NO_CHECKPOINTS,
    },
    per_content={"step_of_key": 0},
)
"""Layers that cache differently."""


class PartialArrays:
    """Empty where no hit ends inside a block."""

    __slots__ = ()

    partial_hashes: Records  # PARTIAL_HASH[num_gpu_blocks]
    block_copies: Records  # BLOCK_COPY[max_num_seqs * groups]
    shared_block: NDArray[
        np.int64
    ]  # per row of block_table: which block is to be written and has a content that ends inside it, NEVER


PARTIAL_HITS = FeatureRecords(
    settings=[
        ("matches_inside_blocks", np.int64)  # prefix hits end at any hash
    ],
    current_step=[("num_block_copies", np.int64)],
    absent={"matches_inside_blocks": 0},
    emptied=("partial_hashes",),
)
"""Prefix hits that end inside blocks."""
