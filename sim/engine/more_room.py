"""Making the arrays longer that a run fills: logs, the hash table, the heap."""

from __future__ import annotations

from typing import Any

from sim.engine.initial_state import LONGEST_JUMP, longer
from sim.engine.state import State


def longer_hashes(state: State, length: int) -> dict[str, Any]:
    """Return the hash table, and where the CPU tier has its contents, with room for ``length`` keys."""
    has_tier = len(state.cpu_slot_of_key) > 0
    return {
        "hashes": longer(state.hashes, length),
        "cpu_slot_of_key": longer(state.cpu_slot_of_key, length if has_tier else 0),
    }


def with_more_room(state: State) -> State:
    """Return the state with every log doubled that is more than half full, likewise the hash table and the heap."""
    settings, fill, queues = state.engine[0].settings, state.engine[0].log_fill, state.engine[0].queues
    seats, width = int(settings.max_num_seqs), state.block_table.shape[1]
    tokens_per_step = 2 * seats * (1 + int(settings.num_speculative_tokens))
    changes: dict[str, Any] = {}
    for name, used, most in (
        ("log", fill.num_log_words, len(state.blocks) * 4 + seats * (width + 8) * 2 + 64),
        ("spans", fill.num_spans, tokens_per_step + LONGEST_JUMP),
        ("pauses", fill.num_pauses, tokens_per_step + LONGEST_JUMP),
        ("tokens", fill.num_logged_tokens, tokens_per_step + LONGEST_JUMP),
        ("completions", fill.num_completions, 4 * seats),
    ):
        array = getattr(state, name)
        if len(array) and 2 * used + most > len(array):
            changes[name] = longer(array, 2 * len(array) + most)
    most_ids = seats * (width + 1)
    if queues.num_keys + most_ids > len(state.hashes):
        changes |= longer_hashes(state, 2 * len(state.hashes) + most_ids)
    most_waiting = int(queues.num_waiting + queues.num_added - queues.num_joined + queues.num_running)
    if len(state.heap) and most_waiting > len(state.heap):
        changes["heap"] = longer(state.heap, 2 * most_waiting)
    return state._replace(**changes)
