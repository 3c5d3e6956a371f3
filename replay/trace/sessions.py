"""What the rounds of a session share: blocks of one text that grows by prompts and answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from traces import Trace

Int64s = NDArray[np.int64]


def session_blocks(trace: Trace, *, prompt: Int64s, output: Int64s, block_size: int) -> tuple[Int64s, Int64s]:
    """Return each request's session as a number, and how many leading full blocks it shares with other rounds.

    ``prompt``, ``output``: tokens of each request. A round shares what was said before it with the round before,
    and its prompt and answer with the one after; a request of no growing session shares nothing.
    """
    names, rounds = trace.column("session_id"), trace.column("round_index")
    grows = (names.notna() & rounds.notna() & trace.column("new_input_tokens").notna()).to_numpy(dtype=bool)
    session = np.asarray(names.astype("category").cat.codes, np.int64)
    place = rounds.fillna(0).to_numpy(np.int64)
    order = np.lexsort((place, session, ~grows))[: int(grows.sum())]
    follows = np.flatnonzero(session[order][1:] == session[order][:-1])
    before, after = order[follows], order[follows + 1]
    said = (prompt + output) // block_size
    shared = np.zeros(len(trace), np.int64)
    shared[after] = np.minimum(said[before], prompt[after] // block_size)
    shared[before] = np.maximum(shared[before], said[before])
    return session, shared


def has_rounds(trace: Trace) -> bool:
    """Say whether any request waits for the answer to another of its session."""
    later = (trace.column("round_index") > 0).fillna(False) & trace.column("session_id").notna()
    return bool(later.any())
