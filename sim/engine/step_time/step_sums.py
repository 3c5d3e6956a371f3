"""The sums over a scheduled step that latency models read: kept up to date as requests enter and leave the batch."""

from __future__ import annotations

import numpy as np

from sim.engine.dtypes import IS_DECODE
from sim.engine.state import State
from sim.jit.compile import part
from sim.latency.batch import StepSums, sums_of_share


@part
def clear_sums(s: State, batch: int) -> None:
    """Set the sums of a batch to those of an empty one."""
    b = s.batches[batch]
    b.num_prefill_tokens = b.num_decode_tokens = b.decode_context_tokens = 0
    b.prefill_pairs = b.num_prefill_seqs = b.prefill_context_tokens = 0


@part
def add_share(s: State, batch: int, index: int, sign: int) -> None:
    """Add the share of a batch's entry to its sums, or with ``sign`` -1 take it back."""
    b, entry = s.batches[batch], s.entries[batch, index]
    num_tokens, computed = int(np.int64(entry.num_tokens)), int(np.int64(entry.computed))
    share = sums_of_share(num_tokens, computed, entry.kind & IS_DECODE != 0)
    b.num_prefill_tokens += sign * share.num_prefill_tokens
    b.num_decode_tokens += sign * share.num_decode_tokens
    b.decode_context_tokens += sign * share.decode_context_tokens
    b.prefill_pairs += sign * share.prefill_pairs
    b.num_prefill_seqs += sign * share.num_prefill_seqs
    b.prefill_context_tokens += sign * share.prefill_context_tokens


@part
def sums_of(s: State, batch: int) -> StepSums:
    """Return the sums of a batch as a latency model takes them."""
    b = s.batches[batch]
    return StepSums(
        b.num_prefill_tokens,
        b.num_decode_tokens,
        b.decode_context_tokens,
        b.prefill_pairs,
        b.num_prefill_seqs,
        b.prefill_context_tokens,
    )
