"""Steps as latency models take them, from what each request computes: written apart from the engine's own sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim import StepBatch


def batch_of(shares: Sequence[Sequence[tuple[int, int, bool]]]) -> StepBatch:
    """Return steps given each one's shares: (tokens, computed before, whether it decodes)."""
    rows = np.array([_sums(step) for step in shares], np.int64).reshape(-1, 6)
    return StepBatch(
        num_prefill_tokens=rows[:, 0],
        num_decode_tokens=rows[:, 1],
        decode_context_tokens=rows[:, 2],
        prefill_pairs=rows[:, 3],
        num_prefill_seqs=rows[:, 4],
        prefill_context_tokens=rows[:, 5],
    )


def _sums(step: Sequence[tuple[int, int, bool]]) -> tuple[int, ...]:
    """Return one step's six sums."""
    prefill = [(n, before) for n, before, decodes in step if not decodes]
    decode = [(n, before) for n, before, decodes in step if decodes]
    return (
        sum(n for n, _ in prefill),
        sum(n for n, _ in decode),
        sum(n + before for n, before in decode),
        sum(n * before + n * (n + 1) // 2 for n, before in prefill),
        len(prefill),
        sum(n + before for n, before in prefill),
    )
