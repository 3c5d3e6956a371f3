"""How far back in an LRU cache the blocks lie that requests ask for: one pass tells the hits of caches of every size.

Mattson, Gecsei, Slutz, Traiger, "Evaluation techniques for storage hierarchies", 1970: a cache of N blocks that evicts
the least recently used hits exactly what has fewer than N others before it. Blocks that are always used together are
one piece. The distances are counted with a Fenwick tree over the times of last use.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.jit.compile import engine_entry, part

Int64s = NDArray[np.int64]


@part
def add(tree: Int64s, place: int, value: int) -> None:
    """Add to the value at a place, counted from 0, of a Fenwick tree."""
    i = place + 1
    while i < len(tree):
        tree[i] += value
        i += i & -i


@part
def sum_to(tree: Int64s, place: int) -> int:
    """Return the sum of the values at the places up to and including one."""
    i, total = place + 1, 0
    while i > 0:
        total += tree[i]
        i -= i & -i
    return total


def count_distances(
    first_piece: Int64s,
    pieces: Int64s,
    sizes: Int64s,
    num_private: Int64s,
    most_hits: Int64s,
    changes: Int64s,
) -> None:
    """Add up at which distances blocks are found again, requests in the order in which they are served.

    ``first_piece``: int64[n + 1], request r asks for ``pieces[first_piece[r] : first_piece[r + 1]]``, from the front of
    its prompt to the back. ``sizes``: blocks of each piece. ``num_private``: per request, further blocks that it takes
    and no request asks for again. ``most_hits``: per request, how many leading blocks may be hits at all. ``changes``:
    int64, at least all blocks + 2: entry d is increased by the number of blocks found at distance d (hits of a cache of
    d blocks or more) less the number found at d - 1. A request's blocks are used from the last to the first, as vLLM
    gives them back (vllm 0.32.0 v1/core/single_type_kv_cache_manager.py:free): the front of a prompt is the most
    recent.
    """
    tree = np.zeros(len(pieces) + len(num_private) + 1, np.int64)
    last_use = np.full(len(sizes), -1, np.int64)
    put_distances(first_piece, pieces, sizes, num_private, most_hits, changes, tree, last_use)


@engine_entry
def put_distances(
    first_piece: Int64s,
    pieces: Int64s,
    sizes: Int64s,
    num_private: Int64s,
    most_hits: Int64s,
    changes: Int64s,
    tree: Int64s,
    last_use: Int64s,
) -> None:
    """Do what ``count_distances`` does; ``tree``: zeros, one more than uses; ``last_use``: of each piece, -1."""
    now, total = 0, 0
    for request in range(len(num_private)):
        begin, end = first_piece[request], first_piece[request + 1]
        left = most_hits[request]
        for i in range(begin, end):
            piece = pieces[i]
            if last_use[piece] < 0 or left <= 0:
                break
            nearer = total - sum_to(tree, last_use[piece])
            found = min(sizes[piece], left)
            changes[nearer + 1] += 1
            changes[nearer + found + 1] -= 1
            left -= found
        if num_private[request] > 0:
            add(tree, now, num_private[request])
            total += num_private[request]
        now += 1
        for i in range(end - 1, begin - 1, -1):
            piece = pieces[i]
            if last_use[piece] >= 0:
                add(tree, last_use[piece], -sizes[piece])
                total -= sizes[piece]
            add(tree, now, sizes[piece])
            total += sizes[piece]
            last_use[piece] = now
            now += 1
