"""The parts of each prompt, computed on demand: a plan holds no prompt of 100,000 tokens."""

from __future__ import annotations

from collections.abc import Mapping
from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from observe.plan.prompts import GROUP, OWN, Blocks, Part, Segment, key_of
from traces import chained, own_hashes, prompt_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from observe.media.sent_media import SentMedia
    from traces import HashChains, Trace


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromptParts:
    """The parts of n prompts.

    ``totals``: tokens of each, at least 1. ``added``: of a row that builds on another's answer, what it adds.
    ``chains``, ``keys``: block hashes as chains of ids, and each id's key (uint64); None where there are none.
    ``block``: tokens of a block. ``groups``: prefix group and length of each row that has one.
    """

    totals: NDArray[np.int64]
    added: Mapping[int, int]
    groups: Mapping[int, tuple[int, int]]
    chains: HashChains | None
    keys: NDArray[np.uint64]
    block: int

    def of(self, row: int) -> tuple[Part, ...]:
        """Return the prompt of ``row``; of one that builds on another's answer, what it adds."""
        if row in self.added:
            return (Segment(OWN, row, self.added[row]),)
        total = int(self.totals[row])
        blocks = self._blocks(row, total)
        if blocks is not None:
            shared: Part = blocks
            own = total - int(blocks.lengths.sum())
        elif row in self.groups:
            key, length = self.groups[row]
            shared = Segment(GROUP, key, min(length, total))
            own = total - shared.length
        else:
            return (Segment(OWN, row, total),)
        return (shared, Segment(OWN, row, own)) if own else (shared,)

    def _blocks(self, row: int, total: int) -> Blocks | None:
        """Return the blocks that have hashes, the last as long as the prompt leaves room; None of a row without."""
        if self.chains is None:
            return None
        number = min(int(self.chains.counts[row]), -(-total // self.block))
        if number == 0:
            return None
        start = int(self.chains.starts[row])
        lengths = np.full(number, self.block, np.int64)
        lengths[-1] = min(self.block, total - (number - 1) * self.block)
        return Blocks(self.keys[self.chains.ids[start : start + number]], lengths)


def prompt_parts(
    trace: Trace, extends_row: Mapping[int, int], media: SentMedia | None = None
) -> tuple[PromptParts, tuple[str, ...]]:
    """Return the parts of each row's prompt, and a note on changes.

    Equal hashes are equal content, as far as a block reaches; the text behind the hashed blocks is the request's own.
    ``extends_row``: rows that build on the answer to another. ``media``: drawn parts, whose tokens are no text.
    """
    totals = prompt_tokens(trace)
    if media is not None:
        totals = totals - np.array([media.num_tokens(row) for row in range(len(trace))], np.int64)
    empty = int(np.count_nonzero(totals < 1))
    notes = (f"{empty} prompts of 0 tokens are sent as 1 token",) if empty else ()
    names, shared = trace.cells("prefix_group"), trace.cells("prefix_length").values
    added = trace.cells("new_input_tokens").values
    chains, keys = _hashes(trace)
    parts = PromptParts(
        totals=np.maximum(totals, 1).astype(np.int64),
        added={row: max(int(added[row]), 1) for row in extends_row},
        groups={
            row: (key_of(names.values[row]), int(shared[row]))
            for row in np.flatnonzero(names.is_known & (shared > 0)).tolist()
        },
        chains=chains,
        keys=keys,
        block=trace.header.hash_block_size or 0,
    )
    return parts, notes


def _hashes(trace: Trace) -> tuple[HashChains | None, NDArray[np.uint64]]:
    """Return the block hashes of all prompts, those that continue each other in one place, and each id's key."""
    if trace.header.hash_block_size is None or not trace.cells("prefix_hashes").is_known.any():
        return None, np.zeros(0, np.uint64)
    own = own_hashes(trace.table)
    chains = chained(own)
    keys = np.zeros(int(own.ids.max(initial=-1)) + 1, np.uint64)
    for number in np.unique(own.ids).tolist():
        keys[number] = key_of(str(number) if own.names is None else own.names[number])
    return chains, keys
