"""An engine's arrays made longer while it runs: logs, the hash table, what features keep beside it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.records.features import FEATURES
from sim.engine.records.group_records import GROUP_ROW
from sim.engine.records.transfer_records import KV_EVENT
from sim.engine.state import Records, State, columns, records

LONGEST_JUMP = 4096
"""Steps taken at once at most; a longer run of equal steps takes several jumps."""


def longer_hashes(state: State, length: int) -> dict[str, Any]:
    """Return the hash table, and what else is kept of its rows, with room for ``length`` contents."""
    length *= int(state.engine[0].settings.num_kv_cache_groups)
    changes = {"hashes": longer(state.hashes, length)}
    for feature in FEATURES:
        for name, num_more in feature.per_content.items():
            array = getattr(state, name)
            changes[name] = longer(array, length + num_more if len(array) else 0)
    return changes


def longer(array: Records, length: int) -> Records:
    """Return a copy of ``array`` with zeros behind it."""
    longer = records(length, array.dtype) if isinstance(array, np.recarray) else np.zeros(length, array.dtype)
    longer[: len(array)] = array
    return longer


def longer_table(table: NDArray[np.uint32], length: int) -> NDArray[np.uint32]:
    """Return a copy of a table with rows of zeros below it."""
    longer = np.zeros((length, table.shape[1]), np.uint32)
    longer[: len(table)] = table
    return longer


def more_slots(state: State, length: int) -> dict[str, Any]:
    """Return the arrays of requests that hold blocks, with room for ``length`` requests."""
    queues, kv = state.engine[0].queues, state.engine[0].kv_transfers
    before, groups = len(state.free_slots), int(state.engine[0].settings.num_kv_cache_groups)
    free_slots = longer(state.free_slots, length)
    num_free = int(queues.num_free_slots)
    free_slots[num_free : num_free + length - before] = np.arange(before, length)
    queues.num_free_slots += length - before
    events = records(length, KV_EVENT)
    for number in range(int(kv.num_applied), int(kv.num_delivered)):
        events[number % length] = state.kv_events[number % len(state.kv_events)]
    rows = records(length * state.group_rows.shape[1], GROUP_ROW).reshape(length, -1)
    rows[:before] = state.group_rows
    return {
        "block_table": longer_table(state.block_table, length * groups),
        "group_rows": rows,
        "num_known_blocks": longer(state.num_known_blocks, length * groups),
        "num_blocks_before": longer(state.num_blocks_before, length * groups),
        "known_blocks": longer_table(state.known_blocks, length * len(state.kv_cache_groups)),
        "free_slots": free_slots,
        "holding": longer(state.holding, length),
        "kv_events": events,
    }


def with_more_room(state: State) -> State:
    """Return the state with every log doubled that is more than half full, likewise the hash table and the heap."""
    settings, fill, queues = (columns(state.engine)[0][each] for each in ("settings", "log_fill", "queues"))
    seats, width = int(settings["max_num_seqs"]), state.block_table.shape[1]
    tokens_per_step = len(state.batches) * seats * (1 + int(settings["num_speculative_tokens"]))
    changes: dict[str, Any] = {}
    most_loads = int(queues["num_waiting"] + queues["num_added"] - queues["num_joined"]) + seats
    for name, used, most in (
        (
            "log",
            fill["num_log_words"],
            len(state.blocks) * 4 + len(state.block_table) * (width + 8) * 2 + 8 * most_loads + 128,
        ),
        ("spans", fill["num_spans"], tokens_per_step + LONGEST_JUMP),
        ("pauses", fill["num_pauses"], tokens_per_step),
        ("tokens", fill["num_logged_tokens"], tokens_per_step + LONGEST_JUMP),
        (
            "completions",
            fill["num_completions"],
            2 * len(state.batches) * seats + (most_loads if settings["has_loads"] else 0),
        ),
    ):
        array = getattr(state, name)
        if len(array) and 2 * used + most > len(array):
            changes[name] = longer(array, 2 * len(array) + most)
    if settings["has_loads"] and most_loads > queues["num_free_slots"]:
        changes |= more_slots(state, 2 * len(state.free_slots) + most_loads)
    num_holding = int(columns(state.engine)[0]["kv_transfers"]["num_holding"])
    if settings["has_kv_offloading"]:
        num_departed = int(columns(state.engine)[0]["kv_offload"]["num_departed"])
        most_departed = most_loads + num_departed + num_holding
        if most_departed > len(state.departed):
            changes["departed"] = longer(state.departed, 2 * most_departed)
    most_ids = (seats + num_holding) * (width + 1)
    num_contents = len(state.hashes) // int(settings["num_kv_cache_groups"])
    if queues["num_keys"] + most_ids > num_contents:
        changes |= longer_hashes(state, 2 * num_contents + most_ids)
    most_waiting = int(
        queues["num_waiting"] + queues["num_added"] - queues["num_joined"] + queues["num_running"]
    )
    if len(state.heap) and most_waiting > len(state.heap):
        changes["heap"] = longer(state.heap, 2 * most_waiting)
    return state._replace(**changes)
