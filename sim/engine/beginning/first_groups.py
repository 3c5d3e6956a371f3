"""KV cache groups of an engine at its beginning: their records, and what its settings say of them."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np

from sim.config import EngineConfig
from sim.engine.beginning.first_shape import FirstShape, group_sizes
from sim.engine.records.feature import NEVER, Records, records
from sim.engine.records.group_records import (
    BLOCK_COPY,
    CHUNKED,
    FULL,
    GROUP_ROW,
    KV_CACHE_GROUP,
    PARTIAL_HASH,
    SLIDING,
    STATE,
)
from sim.features.kv_groups import PrefillCheckpoints, StateChunks
from sim.kv_cache_groups import alignment_of, most_blocks_of, without_eagle_marks
from sim.versions import VersionRules

STATE_CHUNKS = get_args(StateChunks)

PREFILL_CHECKPOINTS = get_args(PrefillCheckpoints)

KIND_CODES = {"full": FULL, "sliding": SLIDING, "chunked": CHUNKED, "state": STATE}


def group_arrays(shape: FirstShape) -> dict[str, Any]:
    """Return the arrays of KV cache groups, and of hits that end inside blocks."""
    config, seats = shape.config, shape.config.max_num_seqs
    groups = group_records(config, shape.rules)
    num_rows = shape.num_rows if shape.settings.aligns_states[0] else 0
    is_partial = bool(shape.settings.matches_inside_blocks[0])
    num_table_rows = shape.num_table_rows if is_partial else 0
    return {
        "kv_cache_groups": groups,
        "group_rows": records(seats * len(groups), GROUP_ROW).reshape(seats, len(groups)),
        "group_hits": np.zeros((len(groups), shape.width), np.uint32),
        "step_of_key": np.zeros(num_rows, np.int64),
        "partial_hashes": _new_partial_hashes(shape.num_blocks if is_partial else 0),
        "block_copies": records(num_table_rows, BLOCK_COPY),
        "shared_block": np.zeros(num_table_rows, np.int64),
    }


def set_groups(settings: Records, config: EngineConfig, rules: VersionRules) -> None:
    """Say what KV cache groups there are, and where their hits end."""
    settings["state_chunks"] = STATE_CHUNKS.index(rules.state_chunks)
    groups, sizes = config.kv_cache_groups, group_sizes(config)
    settings["hash_block_size"] = config.hash_block_size
    settings["matches_inside_blocks"] = config.matches_inside_blocks
    alignment, _ = alignment_of(sizes)
    settings["hit_alignment"] = config.hash_block_size if config.matches_inside_blocks else alignment
    settings["num_kv_cache_groups"] = config.num_kv_cache_groups
    settings["has_kv_cache_groups"] = len(groups) > 0
    interval = config.prefix_cache_retention_interval
    settings["retention_interval"] = NEVER if interval is None else interval
    settings["has_windows"] = any(group.kind != "full" for group in groups)
    settings["aligns_states"] = any(group.mode == "align" for group in groups)
    _set_checkpoints(settings, config, rules)
    settings["cuts_shares"] = settings["aligns_states"] | (config.num_prefill_lookahead_tokens > 1)
    groups = without_eagle_marks(groups)
    first = [groups.index(group) for group in dict.fromkeys(groups)]
    first.sort(key=lambda number: groups[number].kind != "full")
    settings["first_group_to_ask"] = first[0] if first else 0
    is_simple = len(first) == 2 and groups[first[0]].kind == "full"
    settings["asks_groups_once"] = len(groups) == 1 or is_simple


def _set_checkpoints(settings: Records, config: EngineConfig, rules: VersionRules) -> None:
    """Say which states are saved inside chunks: none where no group has blocks for them."""
    states = [group for group in config.kv_cache_groups if group.mode == "align"]
    numbers = [group.num_prefill_checkpoint_blocks for group in states]
    if not any(numbers):
        return
    rule = rules.prefill_checkpoints
    settings["prefill_checkpoints"] = PREFILL_CHECKPOINTS.index(rule)
    first = states[0].prefill_checkpoint_alignment
    settings["checkpoint_alignment"] = (1 if rule == "from block ends" else first) * all(numbers)


def group_records(config: EngineConfig, rules: VersionRules) -> Records:
    """Return the engine's records of KV cache groups; none where there is one full group."""
    groups, sizes = config.kv_cache_groups, group_sizes(config)
    rows = records(len(groups), KV_CACHE_GROUP)
    if not groups:
        return rows
    alignment, hash_size = alignment_of(sizes)
    if config.prefix_match_unit is not None:
        hash_size = config.hash_block_size
    marked = config.eagle_groups
    groups = without_eagle_marks(groups)
    kinds = list(dict.fromkeys(groups))
    kinds.sort(key=lambda group: group.kind != "full")
    for number, (group, size) in enumerate(zip(groups, sizes, strict=True)):
        record = rows[number]
        record.kind, record.block_size = KIND_CODES[group.kind] + (group.mode == "align"), size
        record.window = group.window + config.num_retained_tokens if group.window else group.chunk
        record.num_hashes_per_block, record.blocks_per_segment = size // hash_size, alignment // size
        record.num_blocks_for_hit = -(-(group.window - 1) // size) if group.window else 0
        record.most_blocks = most_blocks_of(
            group,
            size=size,
            in_flight=config.max_in_flight_tokens,
            max_model_len=config.max_model_len,
            retained=config.num_retained_tokens,
        )
        if not rules.caps_windows:
            record.most_blocks = config.max_model_len + 1
        record.is_eagle_group = config.kv_cache_groups[number].is_eagle_group
        record.saves_checkpoints = group.num_prefill_checkpoint_blocks > 0
        record.checkpoint_alignment = group.prefill_checkpoint_alignment
        record.use_eagle = any(groups[other] == group for other in marked)
        record.caches_past_hit = record.use_eagle * rules.caches_past_hit
        alike = [other for other in range(number + 1, len(groups)) if groups[other] == group]
        record.next_alike = alike[0] if alike else NEVER
        after = kinds[kinds.index(group) + 1 :]
        record.next_to_ask = groups.index(after[0]) if after else NEVER
    return rows


def _new_partial_hashes(num_blocks: int) -> Records:
    """Return that no block has a content that ends inside it."""
    partial_hashes = records(num_blocks, PARTIAL_HASH)
    partial_hashes["hash_id"] = NEVER
    return partial_hashes
