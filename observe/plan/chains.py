"""Which requests of a trace wait for which: the rounds of a session, as chains of rows."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from traces import Trace

Chain = tuple[int, ...]
"""Rows of one session, in the order of its rounds; a request of no session is a chain of its own."""


def chains_of(trace: Trace) -> list[Chain]:
    """Return the trace's rows as chains, in the order of their first rows."""
    sessions, rounds = trace.column("session_id"), trace.column("round_index")
    known = (sessions.notna() & rounds.notna()).to_numpy(dtype=bool)
    if not known.any():
        return [(row,) for row in range(len(trace))]
    names, place = sessions.tolist(), rounds.fillna(0).to_numpy(dtype=np.int64)
    rows_of: dict[object, list[int]] = {}
    for row in range(len(trace)):
        rows_of.setdefault(names[row] if known[row] else row, []).append(row)
    return [tuple(sorted(rows, key=lambda row: (place[row], row))) for rows in rows_of.values()]


def rounds_that_extend(trace: Trace, chains: list[Chain]) -> dict[int, int]:
    """Return the rows whose prompt builds on the answer to another, each with that one's row."""
    adds = trace.column("new_input_tokens").notna().to_numpy(dtype=bool)
    return {row: before for chain in chains for before, row in pairwise(chain) if adds[row]}


def is_token_ids(prompt: bytes) -> bool:
    """Say whether a prompt's JSON is a list of token ids."""
    return prompt.startswith(b"[") and not prompt.startswith(b"[{")
