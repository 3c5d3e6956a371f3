"""The requests of a batch of rollouts: samples of prompts, drawn, and the blocks that samples of a prompt share."""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from sim import Int64s, Requests
from traces import prompt_tokens
from traces.workload import WorkloadOptions, trace_from_options

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """n samples, columns of int64: ``prompt``, the number of each one's prompt, unique over all batches.

    ``prompt_tokens``: of the prompt alone. ``output_tokens``: how long the whole answer is. ``generated``: tokens of it
    from earlier batches. ``common_tokens``: the number of equal tokens at the beginning of all prompts.
    """

    prompt: Int64s
    prompt_tokens: Int64s
    output_tokens: Int64s
    generated: Int64s
    common_tokens: int = 0

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.prompt)

    def take(self, rows: Int64s | slice) -> Samples:
        """Return some of the samples, in the order of ``rows``."""
        return Samples(
            prompt=self.prompt[rows],
            prompt_tokens=self.prompt_tokens[rows],
            output_tokens=self.output_tokens[rows],
            generated=self.generated[rows],
            common_tokens=self.common_tokens,
        )

    def requests(self, *, block_size: int, hash_lookahead: int = 0) -> Requests:
        """Return the samples as the engine's columns, all there at 0, in their order.

        What was generated before is part of the prompt, the rest is the output. Samples of a prompt name the same
        blocks; what a sample has generated is in blocks of its own. ``hash_lookahead``: how many tokens behind a block
        belong to its content.
        """
        _, first, prompt = np.unique(self.prompt, return_index=True, return_inverse=True)
        own = np.maximum(self.prompt_tokens[first] - hash_lookahead, 0) // block_size
        common = np.minimum(max(self.common_tokens - hash_lookahead, 0) // block_size, own)
        starts = np.cumsum(own) - own
        place = np.arange(int(own.sum()), dtype=np.int64) - np.repeat(starts, own)
        most = int(common.max(initial=0))
        ids = np.where(
            place < np.repeat(common, own), place, most + np.arange(len(place), dtype=np.int64)
        ).astype(np.int64)
        n = len(self)
        return Requests(
            arrival_us=np.zeros(n, np.int64),
            prompt_tokens=self.prompt_tokens + self.generated,
            output_tokens=self.output_tokens - self.generated,
            priority=np.zeros(n, np.int64),
            hash_offsets=starts[prompt],
            hash_ids=ids,
            hash_counts=own[prompt],
        )


def joined(parts: Sequence[Samples]) -> Samples:
    """Return samples one after another."""
    return Samples(
        prompt=np.concatenate([each.prompt for each in parts]),
        prompt_tokens=np.concatenate([each.prompt_tokens for each in parts]),
        output_tokens=np.concatenate([each.output_tokens for each in parts]),
        generated=np.concatenate([each.generated for each in parts]),
        common_tokens=parts[0].common_tokens,
    )


def long_tailed(workload: WorkloadOptions) -> WorkloadOptions:
    """Return a workload whose outputs are drawn lognormal unless it says otherwise."""
    if any(each is not None for each in (workload.output_shape, workload.like, workload.random_range_ratio)):
        return workload
    return replace(workload, output_shape="lognormal")


def draw_samples(workload: WorkloadOptions, *, each: int, number: int, batches: int) -> list[Samples]:
    """Return the samples of each batch: ``number`` samples, ``each`` of a prompt, one prompt after another.

    Batch b is drawn with seed + b. The first samples of a batch are the same however many are drawn. Prompt p has the
    length of the p-th draw, sample i the output of the i-th. Raises ConfigError, TraceError.
    """
    asked = replace(workload, batch=number, waves=1)
    first = trace_from_options(asked)
    seed, found = first.header.seed or 0, []
    for batch in range(batches):
        trace = trace_from_options(replace(asked, seed=seed + batch)) if batch else first
        prompt = np.arange(number, dtype=np.int64) // each
        found.append(
            Samples(
                prompt=batch * number + prompt,
                prompt_tokens=prompt_tokens(trace).astype(np.int64)[prompt],
                output_tokens=trace.cells("output_tokens").values.astype(np.int64),
                generated=np.zeros(number, np.int64),
                common_tokens=workload.prefix_tokens or 0,
            )
        )
    return found
