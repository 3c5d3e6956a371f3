"""What a latency model knows of a step: sums over its requests, as columns of many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Work = tuple[int, int, int, int, int, int, int]
"""One step in the engine: the fields of ``StepBatch``, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """Steps as columns, int64 [n]; the engine has the same seven numbers of the step in hand.

    ``decode_context_tokens``: KV entries that its decodes read, their own included. Of its prefills, each a chunk of n
    tokens behind c computed ones, ``prefill_pairs``: (query, key) pairs that they attend to, n·c + n·(n + 1)/2;
    ``prefill_context_tokens``: KV entries that they read, n + c; ``prefill_chunk_squares``: n².
    """

    num_prefill_tokens: Int64s
    num_decode_tokens: Int64s
    decode_context_tokens: Int64s
    prefill_pairs: Int64s
    num_prefill_seqs: Int64s
    prefill_context_tokens: Int64s
    prefill_chunk_squares: Int64s

    def __len__(self) -> int:
        """Return how many steps there are."""
        return len(self.num_prefill_tokens)


def batch_of(shares: Sequence[Sequence[tuple[int, int, bool]]]) -> StepBatch:
    """Return steps given each one's shares: (tokens, computed before, whether it decodes)."""
    rows = np.array([_sums(step) for step in shares], np.int64).reshape(-1, 7)
    return StepBatch(
        num_prefill_tokens=rows[:, 0],
        num_decode_tokens=rows[:, 1],
        decode_context_tokens=rows[:, 2],
        prefill_pairs=rows[:, 3],
        num_prefill_seqs=rows[:, 4],
        prefill_context_tokens=rows[:, 5],
        prefill_chunk_squares=rows[:, 6],
    )


def _sums(step: Sequence[tuple[int, int, bool]]) -> tuple[int, ...]:
    """Return one step's seven sums."""
    prefill = [(n, before) for n, before, decodes in step if not decodes]
    decode = [(n, before) for n, before, decodes in step if decodes]
    return (
        sum(n for n, _ in prefill),
        sum(n for n, _ in decode),
        sum(n + before for n, before in decode),
        sum(n * before + n * (n + 1) // 2 for n, before in prefill),
        len(prefill),
        sum(n + before for n, before in prefill),
        sum(n * n for n, _ in prefill),
    )
