"""Steps from which a profile is made: of requests that decode, with or without drafts, and of prompts' chunks."""

from __future__ import annotations

from lazy_dataclasses import dataclass

import numpy as np

from sim import EngineConfig, LatencyModel, StepBatch

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
MOST_CHUNKS = 12
"""Sizes of batches and of chunks that a profile is fitted to, evenly spaced by their logarithms."""


def seats_of(most: int) -> Ints:
    """Return the batch sizes from which W and H are fitted, from one request to ``most``."""
    return np.unique(np.geomspace(1, max(most, 1), MOST_CHUNKS).astype(np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedSteps:
    """Steps of speculative decoding. ``num_drafts``: verified with each request's newest token; 0: none.

    ``tokens_a_step``: what a step brings a request on average, 1 + the drafts that are accepted. ``added_us``: how long
    drafting takes beside the step (``sim/engine/optional/added_time.py``).
    """

    num_drafts: int = 0
    tokens_a_step: float = 1.0
    added_us: float = 0.0

    @classmethod
    def of(cls, engine: EngineConfig) -> DraftedSteps:
        """Return the steps of an engine."""
        if engine.num_speculative_tokens == 0:
            return cls()
        return cls(
            num_drafts=engine.num_speculative_tokens,
            tokens_a_step=1 + sum(engine.acceptance_rates),
            added_us=engine.draft_us * engine.num_speculative_tokens,
        )

    def seconds_a_token(self, model: LatencyModel, seats: Ints, tokens: Floats) -> Floats:
        """Return the seconds per token of steps in which this many requests of this many tokens decode, float64 [n]."""
        step_us = model.durations_us(decodes(seats, tokens, num_drafts=self.num_drafts)) + self.added_us
        return np.asarray(step_us / 1e6 / self.tokens_a_step, np.float64)


def decodes(seats: Ints, tokens: Floats, *, num_drafts: int = 0) -> StepBatch:
    """Return steps in which this many requests of this many tokens decode, each with its drafts."""
    zero = np.zeros(len(seats), np.int64)
    return StepBatch(
        num_prefill_tokens=zero,
        num_decode_tokens=seats * (1 + num_drafts),
        decode_context_tokens=np.rint(seats * tokens).astype(np.int64),
        prefill_pairs=zero,
        num_prefill_seqs=zero,
        prefill_context_tokens=zero,
    )


def prompts(numbers: Floats, chunks: Floats, before: Floats) -> StepBatch:
    """Return steps of so many prompts' chunks of this many tokens, with those before them in the cache."""

    def counts(values: Floats) -> Ints:
        return np.maximum(np.rint(values), 0).astype(np.int64)

    pairs = chunks * (chunks + 1) / 2 + chunks * before
    zero = np.zeros(max(len(numbers), len(chunks)), np.int64)
    return StepBatch(
        num_prefill_tokens=counts(numbers * chunks),
        num_decode_tokens=zero,
        decode_context_tokens=zero,
        prefill_pairs=counts(numbers * pairs),
        num_prefill_seqs=np.maximum(counts(numbers * np.ones(len(chunks))), 1),
        prefill_context_tokens=counts(numbers * (before + chunks)),
    )
