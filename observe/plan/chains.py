"""Which requests of a trace wait for which: the rounds of a session as a chain of rows, or as a tree."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from traces import TraceError, has_tree, session_tree

if TYPE_CHECKING:
    from traces import Trace

Chain = tuple[int, ...]
"""Rows of one session, each before those that wait for it: in the order of its rounds, or of the trace if they form a
tree. A request without a session is a chain of its own."""

Waits = dict[int, tuple[int, ...]]
"""Rows that wait for answers, each with the rows whose answers it waits for."""


def waits_of(trace: Trace) -> Waits:
    """Return which rows wait for which, if requests name them; nothing if ``round_index`` orders them.

    Raises TraceError for such requests outside a session.
    """
    if not has_tree(trace.table):
        return {}
    waiting, awaited = (rows.tolist() for rows in session_tree(trace.table).edges())
    outside = np.flatnonzero(~trace.cells("session_id").is_known[waiting])
    if len(outside):
        raise TraceError(
            f"row {waiting[outside[0]] + 1}, session_id: got an empty cell, expected the session of a request that "
            "waits for answers"
        )
    waits: dict[int, list[int]] = {}
    for row, before in zip(waiting, awaited, strict=True):
        waits.setdefault(row, []).append(before)
    return {row: tuple(rows) for row, rows in waits.items()}


def chains_of(trace: Trace) -> list[Chain]:
    """Return the trace's rows as chains, in the order of their first rows."""
    if has_tree(trace.table):
        return _trees(trace)
    sessions, rounds = trace.column("session_id"), trace.column("round_index")
    known = (sessions.notna() & rounds.notna()).to_numpy(dtype=bool)
    if not known.any():
        return [(row,) for row in range(len(trace))]
    names, place = sessions.tolist(), rounds.fillna(0).to_numpy(dtype=np.int64)
    rows_of: dict[object, list[int]] = {}
    for row in range(len(trace)):
        rows_of.setdefault(names[row] if known[row] else row, []).append(row)
    return [tuple(sorted(rows, key=lambda row: (place[row], row))) for rows in rows_of.values()]


def _trees(trace: Trace) -> list[Chain]:
    """Return the rows of each session in the trace's order."""
    rows_of: dict[object, list[int]] = {}
    for row, name in enumerate(trace.cells("session_id").codes()[0].tolist()):
        rows_of.setdefault(name if name >= 0 else (row,), []).append(row)
    return [tuple(rows) for rows in rows_of.values()]


def begins_of(chain: Chain, waits_for: Mapping[int, tuple[int, ...]]) -> Chain:
    """Return the rows of a session that wait for no answer; ``waits_for``: of all rows, empty where rounds wait."""
    return tuple(row for row in chain if row not in waits_for) if waits_for else chain[:1]


def rounds_that_extend(trace: Trace, chains: list[Chain]) -> dict[int, int]:
    """Return the rows whose prompt builds on the answer to another, each with that one's row.

    None in sessions that branch: there block hashes say what prompts share.
    """
    if has_tree(trace.table):
        return {}
    adds = trace.column("new_input_tokens").notna().to_numpy(dtype=bool)
    return {row: before for chain in chains for before, row in pairwise(chain) if adds[row]}


def is_token_ids(prompt: bytes) -> bool:
    """Return whether a prompt's JSON is a list of token ids."""
    return prompt.startswith(b"[") and not prompt.startswith(b"[{")
