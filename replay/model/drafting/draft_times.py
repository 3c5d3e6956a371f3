"""How long a draft takes on a GPU: one number that stands for a drafter's forward passes at all sizes of a batch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from replay.model.gpus import Gpu
from replay.model.layers.drafter import Drafter
from replay.model.layout import ONE_NODE, Layout
from replay.model.model_peak import peak_times
from sim.latency import Roofline, StepBatch

LARGEST_BATCH = 256
"""Requests that decode at once: the number is fitted to batches of 1, 2, 4, … up to so many, or the server's limit."""
CONTEXT = 2048
"""Tokens of each request's context that it is fitted at."""


@lru_cache(maxsize=256)
def draft_us(
    drafter: Drafter, gpu: Gpu, *, num_drafts: int, max_num_seqs: int, tp: int = 1, layout: Layout = ONE_NODE
) -> float:
    """Return what a draft takes, µs: the geometric mean over sizes of the batch. Raises ConfigError as ``peak_times``.

    A drafter is one or two layers, most of whose time at any size is reading them, so that one number will do
    (docs/explanation/latency-models.md has how far it is off).
    """
    passes = passes_us(drafter, gpu, batches(max_num_seqs), num_drafts=num_drafts, tp=tp, layout=layout)
    return float(f"{np.exp(np.log(passes).mean()):.4g}")


def batches(max_num_seqs: int) -> tuple[int, ...]:
    """Return the sizes that the number is fitted to."""
    most = max(1, min(max_num_seqs, LARGEST_BATCH))
    return tuple(1 << power for power in range(most.bit_length()))


def passes_us(
    drafter: Drafter,
    gpu: Gpu,
    num_seqs: tuple[int, ...],
    *,
    num_drafts: int,
    tp: int = 1,
    layout: Layout = ONE_NODE,
) -> NDArray[np.float64]:
    """Return what one of ``num_drafts`` drafts takes on average, µs, for batches of so many decoding requests.

    The first pass has all tokens of the step, drafts and all; each further one the newest token of every request (vllm
    0.32.0 v1/spec_decode/llm_base_proposer.py: propose, padded drafter batch). A pass is ``Roofline`` of the drafter's
    own layers, products and head, without what the formula has for a step of a server: sampling and the CPU.
    """
    model = Roofline(
        peak=peak_times(drafter.one_draft(tp), gpu, tp=tp, layout=layout),
        step_us=0.0,
        sequence_us=0.0,
        cpu_step_us=0.0,
        cpu_sequence_us=0.0,
    )
    few = np.array(num_seqs, np.int64)
    table = model.step_table()
    first, next_one = (table.durations(_decoding(few, each)) for each in (few * (1 + num_drafts), few))
    return np.asarray((first + (num_drafts - 1) * next_one) / num_drafts)


def _decoding(num_seqs: NDArray[np.int64], num_tokens: NDArray[np.int64]) -> StepBatch:
    """Return steps of so many tokens; those of one request read its context together (``sums_of_share``)."""
    none = np.zeros_like(num_tokens)
    return StepBatch(
        num_prefill_tokens=none,
        num_decode_tokens=num_tokens,
        decode_context_tokens=num_seqs * CONTEXT,
        prefill_pairs=none,
        num_prefill_seqs=none,
        prefill_context_tokens=none,
    )
