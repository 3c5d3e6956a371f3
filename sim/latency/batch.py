"""What a latency model knows of a step: sums over its requests. The one place where they are defined.

A share of a step is one request's n tokens behind c that are computed already; it decodes, or it is a chunk of a
prefill. The sums have the same names as scalars of one step (``StepSums``, in compiled code), as columns of many
(``StepBatch``) and in the engine's record of a batch (``STEP_SUMS``). Compiled code cannot loop over a record's fields
by name, so ``sim/engine/step_time/step_sums.py`` spells them once more to add, to clear and to read them.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.jit.compile import part

Int64s = NDArray[np.int64]


class StepSums(NamedTuple):
    """One step.

    ``decode_context_tokens``: KV entries that its decodes read, their own included: n + c each. Of its prefills
    ``prefill_pairs``: (query, key) pairs that they attend to, n·c + n·(n + 1)/2 each; ``prefill_context_tokens``:
    KV entries that they read, n + c each.
    """

    num_prefill_tokens: int
    num_decode_tokens: int
    decode_context_tokens: int
    prefill_pairs: int
    num_prefill_seqs: int
    prefill_context_tokens: int


STEP_SUMS = StepSums._fields


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """Steps as columns, int64 [n]: the fields of ``StepSums``."""

    num_prefill_tokens: Int64s
    num_decode_tokens: Int64s
    decode_context_tokens: Int64s
    prefill_pairs: Int64s
    num_prefill_seqs: Int64s
    prefill_context_tokens: Int64s

    def __len__(self) -> int:
        """Return how many steps there are."""
        return len(self.num_prefill_tokens)


@part
def sums_of_share(num_tokens: int, num_computed_tokens: int, is_decode: bool) -> StepSums:
    """Return what one request's share adds to its step."""
    context = num_computed_tokens + num_tokens
    if is_decode:
        return StepSums(0, num_tokens, context, 0, 0, 0)
    pairs = num_tokens * num_computed_tokens + num_tokens * (num_tokens + 1) // 2
    return StepSums(num_tokens, 0, 0, pairs, 1, context)


@part
def sums_of_decodes(num_seqs: int, context_tokens: int) -> StepSums:
    """Return the sums of a step in which ``num_seqs`` requests decode a token each."""
    return StepSums(0, num_seqs, context_tokens, 0, 0, 0)
