"""How much KV cache prompts need: the hits of an LRU cache of every size, and the blocks that are used again."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sim import count_distances

if TYPE_CHECKING:
    from sim import Requests

Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class KVReuse:
    """The hits of caches of every size on the prompts of n requests, served one after another.

    ``hits``: int64, entry n is the number of blocks found by a cache of n blocks. ``num_prompt_tokens``: of all
    prompts. ``largest``: blocks of the largest request, below which a cache cannot serve them. ``live``: int64 per
    request, blocks that are requested again later, after it is served: an ideal cache's least size over time.
    """

    hits: Int64s
    num_prompt_tokens: int
    block_size: int
    largest: int
    live: Int64s

    def hit_frac(self, num_blocks: int) -> float:
        """Return the share of prompt tokens that an LRU cache of this many blocks finds."""
        place = min(max(num_blocks, 0), len(self.hits) - 1)
        return float(self.hits[place]) * self.block_size / max(self.num_prompt_tokens, 1)

    @property
    def ideal_frac(self) -> float:
        """The share of prompt tokens that an unlimited cache finds."""
        return self.hit_frac(len(self.hits))

    def blocks_for(self, share: float) -> int:
        """Return how many blocks a cache needs at least for this share of the hits of an unlimited one."""
        return int(np.searchsorted(self.hits, share * self.hits[-1], side="left"))


def kv_reuse(requests: Requests, order: Int64s, *, block_size: int) -> KVReuse:
    """Return the hits of caches of every size for requests that are served one after another, in this order of rows.

    Whole blocks count: the partial one at a request's end, which vLLM needs while it serves, may cost one block more.
    """
    starts, counts = requests.hash_starts[order], requests.num_hashes[order]
    prompt = requests.prompt_tokens[order]
    total = prompt + requests.output_tokens[order] - 1  # the last token's KV is never computed
    first_piece, pieces, sizes = _pieces(requests.hash_ids, starts, counts)
    private = np.maximum(total // block_size - counts, 0)  # a last, partial block is freed first and not kept
    most_hits = np.maximum(prompt - 1, 0) // block_size
    changes = np.zeros(int(sizes.sum() + private.sum()) + 2, np.int64)
    count_distances(first_piece, pieces, sizes, private, most_hits, changes)
    hits = np.cumsum(np.cumsum(changes[:-1]))
    enough = int(np.searchsorted(hits, hits[-1], side="left")) + 1
    return KVReuse(
        hits=hits[:enough],
        num_prompt_tokens=int(prompt.sum()),
        block_size=block_size,
        largest=int((-(-total // block_size)).max(initial=0)),
        live=_live(first_piece, pieces, sizes),
    )


def _pieces(ids: Int64s, starts: Int64s, counts: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return (where each request's pieces begin, the pieces that it asks for, the blocks of each piece).

    A piece is a run of blocks that the same requests use. A request that uses a block uses all blocks before it, so the
    number of requests falls along a prompt: a piece ends where that number changes.
    """
    num_places = len(ids)
    covered = np.cumsum(
        np.bincount(starts, minlength=num_places + 1) - np.bincount(starts + counts, minlength=num_places + 1)
    )
    num_askers = np.bincount(ids, weights=covered[:-1]).astype(np.int64)
    begins = np.zeros(num_places + 1, np.bool_)
    if num_places:
        begins[1:-1] = num_askers[ids[1:]] != num_askers[ids[:-1]]
    begins[starts] = True
    begins[starts + counts] = True
    places = np.flatnonzero(begins)
    lengths = np.diff(places)
    heads, piece_of_place = np.unique(ids[places[:-1]], return_inverse=True)
    sizes = np.zeros(len(heads), np.int64)
    sizes[piece_of_place] = lengths  # the same wherever a piece occurs, except where no request uses it
    asked = covered[places[:-1]] > 0
    sizes[piece_of_place[asked]] = lengths[asked]
    low, high = np.searchsorted(places, starts), np.searchsorted(places, starts + counts)
    first_piece = np.concatenate([[0], np.cumsum(high - low)])
    at = np.arange(first_piece[-1]) + np.repeat(low - first_piece[:-1], high - low)
    return first_piece.astype(np.int64), piece_of_place[at].astype(np.int64), sizes


def _live(first_piece: Int64s, pieces: Int64s, sizes: Int64s) -> Int64s:
    """Return how many blocks used by each request or earlier ones are used again after it."""
    n = len(first_piece) - 1
    owner = np.repeat(np.arange(n), np.diff(first_piece))
    first, last = np.full(len(sizes), n), np.full(len(sizes), -1)
    np.minimum.at(first, pieces, owner)
    np.maximum.at(last, pieces, owner)
    is_asked = last >= 0
    change = np.bincount(first[is_asked], weights=sizes[is_asked], minlength=n)
    change -= np.bincount(last[is_asked], weights=sizes[is_asked], minlength=n)
    live: Int64s = np.cumsum(change).astype(np.int64)
    return live
