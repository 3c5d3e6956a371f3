"""How much of a load's prompts an unlimited prefix cache would find."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traces.metrics import Int64s, prompt_tokens
from traces.tables.hash_chains import chained, known_before, own_hashes

if TYPE_CHECKING:
    from traces.trace import Trace


def prefix_hit_ceiling_frac(trace: Trace) -> float | None:
    """Return the share of prompt tokens that an unlimited prefix cache would find, or None without prefixes.

    Requests are taken by arrival (unknown ones last, ties by row). A request finds the leading blocks whose hashes an
    earlier one had, or as much of its group's prefix as any earlier member had, or the earlier text of its session,
    whichever is more.
    """
    prompt = prompt_tokens(trace)
    has_hashes = bool(trace.cells("prefix_hashes").is_known.any())
    has_groups = bool(trace.cells("prefix_group").is_known.any())
    said_before = _tokens_said_before(trace, prompt)
    if prompt.sum() == 0 or not (has_hashes or has_groups or said_before.any()):
        return None
    order = np.argsort(trace.cells("arrival_time_us").filled(np.iinfo(np.int64).max), kind="stable")
    hit = np.maximum(_tokens_of_known_blocks(trace, order), _tokens_of_known_prefix(trace, order))
    hit = np.maximum(hit, said_before)
    return float(np.minimum(hit, prompt).sum() / prompt.sum())


def _tokens_said_before(trace: Trace, prompt: Int64s) -> Int64s:
    """Return, of a session's later rounds that build on the one before, the tokens that are not new."""
    added = trace.cells("new_input_tokens")
    builds = added.is_known & (trace.cells("round_index").values > 0)
    return np.where(builds, prompt - added.values, 0)


def _tokens_of_known_blocks(trace: Trace, order: Int64s) -> Int64s:
    """Return the leading tokens of each request whose blocks came before; a partial block counts whole."""
    chains = chained(own_hashes(trace.table))
    return known_before(chains, order) * (trace.header.hash_block_size or 0)


def _tokens_of_known_prefix(trace: Trace, order: Int64s) -> Int64s:
    """Return min(own prefix, longest prefix of an earlier member of the group), 0 for a group's first."""
    groups = trace.cells("prefix_group").values.tolist()
    lengths = trace.cells("prefix_length").values.tolist()
    found = np.zeros(len(trace), dtype=np.int64)
    longest: dict[str, int] = {}
    for row in order.tolist():
        group, length = groups[row], lengths[row]
        if group is not None:
            before = longest.get(group, 0)
            found[row], longest[group] = min(length, before), max(length, before)
    return found
