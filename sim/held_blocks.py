"""How many KV blocks a request holds in all groups of layers together: at its fullest, at one time, and on average.

The engine counts blocks one by one; formulas, limits and estimates ask here. A full group holds all tokens, a window or
a chunk what is still read and what is in flight, a state a few blocks whatever the length.
"""

from __future__ import annotations

from lazy_dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.config import EngineConfig
from sim.kv_cache_groups import KVCacheGroup, alignment_of, most_blocks_of

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

STATES_ALIGNED = 2
"""States that a request holds at most with prefix caching (vllm 0.32.0 v1/kv_cache_interface.py:MambaSpec)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBlocks:
    """The blocks of a request by its tokens.

    ``groups``: () is one full group. ``block_size``: tokens per block of groups without a size of their own.
    ``chunk_tokens``: of a prompt in one step at most (max_num_batched_tokens). ``num_batches``: how many steps' tokens
    are in flight, which a window keeps beside its own. ``tokens_per_decode``: 1 and the
    drafts of a step; a state has a block for each.
    """

    block_size: int
    groups: tuple[KVCacheGroup, ...] = ()
    chunk_tokens: int = 2048
    num_batches: int = 1
    tokens_per_decode: int = 1

    @classmethod
    def of(cls, engine: EngineConfig) -> HeldBlocks:
        """Return what a request holds of an engine's KV cache."""
        retained = engine.num_retained_tokens
        return cls(
            block_size=engine.block_size,
            groups=tuple(
                replace(group, window=group.window + retained) if group.kind == "sliding" else group
                for group in engine.kv_cache_groups
            ),
            chunk_tokens=engine.max_num_batched_tokens,
            num_batches=engine.max_in_flight_tokens // engine.max_num_batched_tokens,
            tokens_per_decode=engine.tokens_per_decode,
        )

    def fullest(self, num_tokens: int) -> int:
        """Return the most blocks that a request of this many tokens holds: what a cache must have for it.

        vllm 0.32.0 v1/kv_cache_interface.py:max_memory_usage_bytes of each kind: a window holds what it sees and the
        tokens in flight, one block more as it may begin within one.
        """
        return int(self._fullest(np.array([num_tokens]))[0])

    def longest(self, num_blocks: int) -> int:
        """Return the tokens of the longest request that so many blocks hold; 0 where they hold none."""
        if not self.groups:
            return num_blocks * self.block_size
        fits, most = 0, max(num_blocks, 0) * max(group.block_size or self.block_size for group in self.groups)
        while fits < most:
            middle = (fits + most + 1) // 2
            if self.fullest(middle) <= num_blocks:
                fits = middle
            else:
                most = middle - 1
        return fits

    def at_end(self, total_tokens: Floats) -> Int64s:
        """Return the blocks of requests that make their last token, int64 [n]; ``total_tokens``: with all answers."""
        if not self.groups:
            return np.ceil(total_tokens / self.block_size).astype(np.int64)
        total = np.rint(total_tokens).astype(np.int64)
        return self._decoding(total - 1, np.ones_like(total))

    def on_average(self, prompt_tokens: Floats, output_tokens: Floats) -> float:
        """Return the blocks of a request on average over all requests and the iterations that each is there.

        Both float64 [n], all rows equally likely. One full group: whole blocks of the mean tokens, prompt and half of
        the answer, over the answers' iterations. Several: block by block, over the prompts' iterations, too; a window
        holds each block of a prompt as long as its tokens are in flight, ``num_batches`` iterations.
        """
        if not self.groups:
            held = float((output_tokens * (prompt_tokens + output_tokens / 2)).sum())
            return float(-(-held / float(output_tokens.sum()) // self.block_size))
        prompt = np.rint(prompt_tokens).astype(np.int64)
        output = np.maximum(np.rint(output_tokens).astype(np.int64), 1)
        chunks = np.maximum(-(-prompt // self.chunk_tokens), 1)
        begun = self._decoding(prompt, np.ones_like(prompt))
        in_flight = self.num_batches * np.maximum(self._fullest(prompt, is_capped=False) - begun, 0)
        held = self._decoding(prompt, output) + chunks * begun + in_flight
        return float(held.sum()) / float((output + chunks).sum())

    def num_requests(self, num_blocks: int, prompt_tokens: Floats, output_tokens: Floats) -> int:
        """Return how many such requests a cache of so many blocks holds at once, all on average but the newest.

        A request is admitted only where the blocks of its whole prompt are free, which windows let go again (vllm
        0.32.0 v1/core/kv_cache_manager.py:allocate_slots). The longer the prompt, the longer it is the next one, so
        prompts count by the blocks that they wait for. Both float64 [n].
        """
        each = self.on_average(prompt_tokens, output_tokens)
        if not self.groups:
            return int(num_blocks // each)
        needed = self._fullest(np.rint(prompt_tokens).astype(np.int64)).astype(np.float64)
        newest = float((needed * needed).sum() / needed.sum())
        return max(0, int((num_blocks - max(newest - each, 0.0)) // each))

    def kept(self, num_tokens: int, *, interval: int | None) -> int:
        """Return how many blocks a request of so many tokens leaves in the prefix cache, those of its own hit included.

        ``interval``: prefix_cache_retention_interval. None: what a hit can end at; N: what one at every N tokens needs;
        0: what the prompt's own hit and one at its end need (sim/engine/kv_cache/groups/retention.py).
        """
        if not self.groups:
            return num_tokens // self.block_size
        sizes = [group.block_size or self.block_size for group in self.groups]
        segment = interval or alignment_of(sizes)[0]
        found = 0
        for group, size in zip(self.groups, sizes, strict=True):
            whole = num_tokens // size
            if group.kind in ("full", "chunked"):
                found += whole
                continue
            needed = 1 if group.kind == "state" else -(-(group.window - 1) // size)
            hits = 2 if interval == 0 else num_tokens // segment
            found += min(whole, hits * (needed if interval == 0 else min(needed, segment // size)))
        return found

    def _fullest(self, num_tokens: Int64s, *, is_capped: bool = True) -> Int64s:
        """Return ``fullest`` of each, int64 [n]; not capped: were windows and chunks to keep all."""
        if not self.groups:
            return -(-num_tokens // self.block_size)
        in_flight = self.chunk_tokens * self.num_batches
        found = np.zeros_like(num_tokens)
        for group in self.groups:
            if group.kind == "state":
                saved = group.num_prefill_checkpoint_blocks
                found += (STATES_ALIGNED - 1 + saved if group.mode == "align" else 0) + self.tokens_per_decode
                continue
            size = group.block_size or self.block_size
            whole = -(-num_tokens // size)
            if group.kind == "full" or not is_capped:
                found += whole
                continue
            longest = int(num_tokens.max(initial=1))
            found += np.minimum(
                whole, most_blocks_of(group, size=size, in_flight=in_flight, max_model_len=longest)
            )
        return found

    def _decoding(self, prompt: Int64s, output: Int64s) -> Int64s:
        """Return the blocks of each request, summed over the iterations of its answer, int64 [n].

        In the one that makes p + i tokens of p + i - 1, those of steps in flight count as unread.
        """
        found, ahead = np.zeros_like(prompt), self.num_batches - 1
        for group in self.groups:
            if group.kind == "state":
                found += self.tokens_per_decode * output
                continue
            size = group.block_size or self.block_size
            found += output + _quotients(prompt, output, size)
            if group.kind == "sliding":
                found -= _quotients(prompt - ahead - group.window + 1, output, size)
            elif group.kind == "chunked":
                found -= _quotients(prompt - ahead, output, group.chunk) * group.chunk // size
        return found


def _quotients(first: Int64s, number: Int64s, divisor: int) -> Int64s:
    """Return the sum of i // divisor over ``number`` integers from ``first`` on, negative ones as 0; int64 [n]."""

    def below(end: Int64s) -> Int64s:
        whole, rest = np.divmod(np.maximum(end, 0), divisor)
        return np.asarray(divisor * (whole * (whole - 1) // 2) + rest * whole)

    return np.asarray(below(first + number) - below(first))
