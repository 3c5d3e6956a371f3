"""Which KV blocks requests share: recorded hashes, prefix groups, and sessions whose text grows, as dense integers."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from traces import HashChains, TraceError, chained, hashes_of_rows, own_hashes, prompt_tokens, ranges

if TYPE_CHECKING:
    from traces import Trace

Int64s = NDArray[np.int64]
TIGHT = 4
"""Numbers that span at most this many times their count are renumbered by a table of all between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedBlocks:
    """The engine's blocks of ``size`` tokens; ``lookahead``: how many tokens behind a block belong to its content."""

    size: int
    lookahead: int = 0

    def within(self, tokens: Int64s) -> Int64s:
        """Return how many whole blocks a number of leading tokens has."""
        return np.asarray(np.maximum(tokens - self.lookahead, 0) // self.size, np.int64)

    @property
    def shift(self) -> int:
        """How many blocks further on a block's content ends."""
        return -(-self.lookahead // self.size)


def prefix_hashes(trace: Trace, *, output_tokens: Int64s, block_size: int, lookahead: int = 0) -> HashChains:
    """Return the leading full blocks of each request that others may share: their contents as dense integers.

    ``lookahead``: how many tokens behind a block belong to its content (``EngineConfig.num_hash_lookahead_tokens``).
    Where recorded hashes differ, so do their first tokens. Rows may name the same place. Blocks past the last of a row
    are the request's alone. Raises TraceError.
    """
    blocks = HashedBlocks(size=block_size, lookahead=lookahead)
    if "num_parent_hashes" in trace.table:
        return _chained_hashes(trace, blocks)
    if sessions_grow(trace):
        return _session_hashes(trace, blocks, output=output_tokens)
    num_blocks, ids = np.zeros(len(trace), np.int64), np.zeros(0, np.int64)
    if trace.cells("prefix_hashes").is_known.any():
        num_blocks, ids = _recorded_hashes(trace, blocks)
    elif trace.cells("prefix_group").is_known.any():
        num_blocks, ids = _group_hashes(trace, blocks)
    ids = _by_weights(trace, num_blocks, ids)
    return HashChains(ids=ids, starts=np.cumsum(num_blocks) - num_blocks, counts=num_blocks)


def _chained_hashes(trace: Trace, blocks: HashedBlocks) -> HashChains:
    """Return the blocks of a trace whose prompts go on from each other: those of a session in one place."""
    per_hash = _blocks_per_hash(trace, blocks.size)
    chains = chained(own_hashes(trace.table), kind=_weights(trace))
    counts = blocks.within(np.minimum(chains.counts * per_hash * blocks.size, prompt_tokens(trace)))
    coarse = _dense(chains.ids)
    ids = (coarse[:, None] * per_hash + np.arange(per_hash)).ravel()
    starts = np.where(counts > 0, chains.starts * per_hash + blocks.shift, 0)
    return HashChains(ids=ids, starts=starts, counts=counts)


def _weights(trace: Trace) -> Int64s:
    """Return, per request, a number for its model and LoRA adapter."""
    base, added = (trace.cells(name).ranks() + 1 for name in ("model", "adapter"))
    return base * (int(added.max(initial=0)) + 1) + added


def _blocks_per_hash(trace: Trace, block_size: int) -> int:
    """Return how many of the engine's blocks a recorded hash covers. Raises TraceError where they do not fit."""
    recorded_size = trace.header.hash_block_size
    if recorded_size is None or recorded_size % block_size:
        raise TraceError(
            f"hash_block_size: got {recorded_size}, expected a multiple of engine.block_size ({block_size}), "
            "or the trace's prefix hashes cannot be cut into the engine's blocks"
        )
    return recorded_size // block_size


def _by_weights(trace: Trace, num_blocks: Int64s, ids: Int64s) -> Int64s:
    """Return contents renumbered so that the same tokens under another model or LoRA adapter are another content.

    The KV cache of the same tokens differs between adapters, and vLLM's block hash has the adapter's name in it
    (vllm 0.32.0 v1/core/kv_cache_utils.py:generate_block_hash_extra_keys).
    """
    weights = _weights(trace)
    if (weights == weights.max(initial=0)).all():
        return ids
    return _apart(ids, np.repeat(weights, num_blocks))


def _apart(ids: Int64s, weights: Int64s) -> Int64s:
    """Return contents renumbered so that each is another one with other weights; both arrays say one of each block."""
    return _dense(ids * (int(weights.max(initial=0)) + 1) + weights)


def sessions_grow(trace: Trace) -> bool:
    """Return whether sharing follows from rounds that build on each other; hashes on later rounds take precedence."""
    sessions = _sessions(trace)
    has_hashes = trace.cells("prefix_hashes").is_known
    return bool(sessions.grows.any() and not has_hashes[sessions.grows & ~sessions.is_first].any())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sessions:
    """The sessions of n requests whose rounds build on each other.

    ``number``: int64, the session of each row. ``grows``: bool, whether it is one of these. ``order``: int64, the rows
    that grow, by session and round. ``first``: int64 per row, its session's first round; itself where it does not grow.
    """

    number: Int64s
    grows: NDArray[np.bool_]
    order: Int64s
    first: Int64s

    @property
    def is_first(self) -> NDArray[np.bool_]:
        is_first: NDArray[np.bool_] = self.first == np.arange(len(self.first))
        return is_first

    def follows(self) -> tuple[Int64s, Int64s]:
        """Return (rounds, the rounds right after them)."""
        at = np.flatnonzero(self.number[self.order][1:] == self.number[self.order][:-1])
        return self.order[at], self.order[at + 1]


def _sessions(trace: Trace) -> _Sessions:
    names, rounds = trace.cells("session_id"), trace.cells("round_index")
    grows = names.is_known & rounds.is_known & trace.cells("new_input_tokens").is_known
    number = names.ranks()
    order = trace.lineage.order[grows[trace.lineage.order]]
    first = np.arange(len(trace))
    begins = np.concatenate([np.ones(1, np.bool_), number[order][1:] != number[order][:-1]])[: len(order)]
    first[order] = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    return _Sessions(number=number, grows=grows, order=order, first=first)


def _session_hashes(trace: Trace, blocks: HashedBlocks, *, output: Int64s) -> HashChains:
    """Return the blocks of sessions whose rounds build on each other.

    A session is one text that grows: each round's prompt, and the answer behind it, is a beginning of it, and all have
    one place. Its beginning has the contents of its first prompt's hashes, or else of the prefix of its group.
    """
    sessions = _sessions(trace)
    num_own = _blocks_of_text(sessions, prompt=prompt_tokens(trace), output=output, blocks=blocks)
    lead = _recorded_beginnings(trace, sessions, blocks) or _group_beginnings(trace, blocks)
    counts = np.maximum(lead.counts, num_own)
    text = np.where(sessions.grows, sessions.number, len(trace) + np.arange(len(trace)))
    weights = _weights(trace)
    key = np.stack([text, lead.starts, lead.counts, weights])
    places, place = np.unique(key, axis=1, return_inverse=True)
    longest = np.zeros(len(places.T), np.int64)
    np.maximum.at(longest, place, counts)
    a_row = np.zeros(len(longest), np.int64)
    a_row[place] = np.arange(len(trace))
    owner = np.repeat(a_row, longest)
    position = ranges(np.zeros(len(longest), np.int64), longest)
    ids = len(lead.ids) + text[owner] * len(owner) + position
    leads = position < lead.counts[owner]
    ids[leads] = lead.ids[(lead.starts[owner] + position)[leads]]
    ids = _apart(ids, weights[owner])
    return HashChains(ids=ids, starts=(np.cumsum(longest) - longest)[place], counts=counts)


def _recorded_beginnings(trace: Trace, sessions: _Sessions, blocks: HashedBlocks) -> HashChains | None:
    """Return the blocks that the hashes of each session's first prompt name; None where no prompt has hashes."""
    if not trace.cells("prefix_hashes").is_known.any():
        return None
    per_hash = _blocks_per_hash(trace, blocks.size)
    coarse, lengths = _hashes_of_rows(trace)
    starts, first = (np.cumsum(lengths) - lengths) * per_hash + blocks.shift, sessions.first
    counts = blocks.within(np.minimum(lengths * per_hash * blocks.size, prompt_tokens(trace)))[first]
    ids = (coarse[:, None] * per_hash + np.arange(per_hash)).ravel()
    return HashChains(ids=ids, starts=starts[first], counts=counts)


def _hashes_of_rows(trace: Trace) -> tuple[Int64s, Int64s]:
    """Return (the recorded hashes as dense integers, each request's behind the one's before it, how many each has)."""
    ids, _, lengths = hashes_of_rows(trace.cells("prefix_hashes"))
    return _dense(ids), lengths


def _group_beginnings(trace: Trace, blocks: HashedBlocks) -> HashChains:
    """Return the blocks of prefix groups in one place each: two requests share the shorter one's prefix."""
    code = trace.cells("prefix_group").ranks()
    prefix = np.minimum(trace.cells("prefix_length").values, prompt_tokens(trace))
    counts = np.where(code >= 0, blocks.within(prefix), 0)
    longest = np.zeros(len(trace), np.int64)
    np.maximum.at(longest, code[code >= 0], counts[code >= 0])
    first = np.append(np.cumsum(longest) - longest, 0)  # the last is that of no group, code -1
    return HashChains(ids=np.arange(int(longest.sum())), starts=first[code], counts=counts)


def _group_hashes(trace: Trace, blocks: HashedBlocks) -> tuple[Int64s, Int64s]:
    """Return the blocks of prefix groups, each request's behind the one's before it."""
    groups = _group_beginnings(trace, blocks)
    return groups.counts, ranges(groups.starts, groups.counts)


def _recorded_hashes(trace: Trace, blocks: HashedBlocks) -> tuple[Int64s, Int64s]:
    """Return the blocks of a trace that carries hashes of its own, coarser blocks; only those that others share.

    An engine block's content is (recorded hash, offset in its block). Recorded hashes are chained: after the first
    that no other request has, none is shared.
    """
    per_hash = _blocks_per_hash(trace, blocks.size)
    hashes, lengths = _hashes_of_rows(trace)
    is_shared = np.bincount(hashes, minlength=1)[hashes] > 1 if len(hashes) else np.zeros(0, bool)
    starts = np.cumsum(lengths) - lengths
    last_shared = np.zeros(len(lengths), np.int64)
    position = ranges(np.ones(len(lengths), np.int64), lengths)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    np.maximum.at(last_shared, owner[is_shared], position[is_shared])
    num_blocks = blocks.within(np.minimum(last_shared * per_hash * blocks.size, prompt_tokens(trace)))
    num_needed = np.where(num_blocks > 0, num_blocks + blocks.shift, 0)
    coarse_needed = -(-num_needed // per_hash)
    coarse = _dense(hashes[ranges(starts, coarse_needed)])
    block_counts = np.full(len(coarse), per_hash, np.int64)
    ends = np.cumsum(coarse_needed)
    has_any = coarse_needed > 0
    block_counts[ends[has_any] - 1] = num_needed[has_any] - (coarse_needed[has_any] - 1) * per_hash
    ids = ranges(coarse * per_hash, block_counts)
    if blocks.shift > 0:
        ids = ids[ranges(np.zeros(len(num_needed), np.int64), num_needed) >= blocks.shift]
    return num_blocks, ids


def _dense(values: Int64s) -> Int64s:
    """Return numbers renumbered 0, 1, … ."""
    if len(values):
        low, high = int(values.min()), int(values.max())
        if high - low <= TIGHT * len(values):
            is_there = np.zeros(high - low + 1, np.bool_)
            is_there[values - low] = True
            return np.asarray((np.cumsum(is_there) - 1)[values - low], np.int64)
    return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)


def _blocks_of_text(sessions: _Sessions, *, prompt: Int64s, output: Int64s, blocks: HashedBlocks) -> Int64s:
    """Return how many leading full blocks each request shares with other rounds of its session.

    ``prompt``, ``output``: tokens of each request. A round shares the earlier text with the round before it, and its
    prompt and answer with the one after; a request outside a growing session shares nothing.
    """
    before, after = sessions.follows()
    num_said = prompt + output - (blocks.lookahead == 0)  # the KV of an answer's last token is never computed
    said = blocks.within(num_said)
    shared = np.zeros(len(prompt), np.int64)
    shared[after] = np.minimum(said[before], blocks.within(prompt[after]))
    shared[before] = np.maximum(shared[before], said[before])
    return shared
