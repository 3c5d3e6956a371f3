"""Priority queues over requests, many in the same arrays: pairing heaps (Fredman et al. 1986).

A heap is its root's number. A request is in one heap at a time, and can be removed from the middle of it, which expiry,
shedding and clients that leave need. Amortised cost O(log n); nothing is allocated.
"""

from __future__ import annotations

import numpy as np

from sim.cluster.arrays import NOWHERE, Records
from sim.jit.compile import part, phase

HEAP_NODE = np.dtype(
    [
        ("key", np.int64),
        ("sequence", np.int64),
        ("child", np.int64),
        ("sibling", np.int64),
        ("previous", np.int64),  # the sibling before it, or the parent
    ]
)


@part
def goes_before(nodes: Records, left: int, right: int) -> bool:
    """Return whether one request comes before another: a lower key, in ties a lower sequence."""
    a, b = nodes[left], nodes[right]
    return a.key < b.key or (a.key == b.key and a.sequence < b.sequence)


@phase
def meld(nodes: Records, left: int, right: int) -> int:
    """Return the root of two heaps made one."""
    if left == NOWHERE or right == NOWHERE:  # noqa: PLR1714 - numba compares scalars
        return right if left == NOWHERE else left
    root, other = (left, right) if goes_before(nodes, left, right) else (right, left)
    nodes[other].sibling = nodes[root].child
    nodes[other].previous = root
    if nodes[root].child != NOWHERE:
        nodes[nodes[root].child].previous = other
    nodes[root].child = other
    return root


@part
def push(nodes: Records, root: int, node: int) -> int:
    """Return the root of a heap after a node has joined it; its key and sequence are set."""
    nodes[node].child = nodes[node].sibling = nodes[node].previous = NOWHERE
    return meld(nodes, root, node)


@phase
def pop(nodes: Records, root: int) -> int:
    """Return the root of a heap after its root has left: its children in pairs, then the pairs from the last."""
    pairs, node = NOWHERE, nodes[root].child
    while node != NOWHERE:
        second = nodes[node].sibling
        rest = nodes[second].sibling if second != NOWHERE else NOWHERE
        nodes[node].sibling = nodes[node].previous = NOWHERE
        if second != NOWHERE:
            nodes[second].sibling = nodes[second].previous = NOWHERE
        merged = meld(nodes, node, second)
        nodes[merged].sibling = pairs
        pairs, node = merged, rest
    new_root = NOWHERE
    while pairs != NOWHERE:
        rest = nodes[pairs].sibling
        nodes[pairs].sibling = NOWHERE
        new_root = meld(nodes, new_root, pairs)
        pairs = rest
    if new_root != NOWHERE:
        nodes[new_root].previous = NOWHERE
    return new_root


@phase
def remove(nodes: Records, root: int, node: int) -> int:
    """Return the root of a heap after any of its nodes has left."""
    if node == root:
        return pop(nodes, root)
    before, after = nodes[node].previous, nodes[node].sibling
    if nodes[before].child == node:
        nodes[before].child = after
    else:
        nodes[before].sibling = after
    if after != NOWHERE:
        nodes[after].previous = before
    return meld(nodes, root, pop(nodes, node))
