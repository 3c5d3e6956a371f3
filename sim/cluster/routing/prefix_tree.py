"""One radix tree over what was sent, shared by all instances: sglang-router's and vllm-router's memory.

A node is a run of ids of some request, by its place in ``RequestTable.hash_ids``: nothing is copied. It records the
instance for which it was created, and those that were sent a request through it. A split copies both to the new upper
node. Sending a request touches the instance's path from the leaf up, so its least recently touched node is always a
leaf of its own.

The ids may be tokens, or contents of blocks: the tree treats both alike.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cluster.arrays import (
    BITS,
    NOWHERE,
    Records,
    grown,
    has_bit,
    is_empty_row,
    more_pairs,
    new_pairs,
    put_pair,
    records,
    remove_pair,
    value_of,
)
from sim.cluster.routing.recent import (
    RecentKeys,
    add_key,
    forget,
    new_recent_keys,
    num_free_slots,
    oldest_key,
    touch,
    with_more_slots,
)
from sim.jit.compile import part, phase
from sim.requests import Int64s

ROOT = 0

NODE = np.dtype([("start", np.int64), ("length", np.int64), ("parent", np.int64), ("creator", np.int64)])
"""``start``, ``length``: its run of ids. ``parent`` links the free nodes."""

TREE_COUNTS = np.dtype([("num_used", np.int64), ("first_free", np.int64), ("num_free", np.int64)])


class PrefixTree(NamedTuple):
    """The tree; node 0 is the root."""

    nodes: Records  # NODE[capacity]
    children: Records  # map from (node, first id) to the child
    senders: RecentKeys  # per instance the nodes through which it was sent something
    num_ids: Int64s  # [num_instances]: of its nodes together
    counts: Records  # TREE_COUNTS[1]


def new_prefix_tree(num_instances: int, *, capacity: int) -> PrefixTree:
    """Return a tree with a root and room for ``capacity`` nodes."""
    counts = records(1, TREE_COUNTS)
    counts["num_used"], counts["first_free"] = 1, NOWHERE
    nodes = records(capacity, NODE)
    nodes[ROOT].parent = nodes[ROOT].creator = NOWHERE
    return PrefixTree(
        nodes=nodes,
        children=new_pairs(capacity),
        senders=new_recent_keys(num_instances, num_keys=capacity, capacity=2 * capacity),
        num_ids=np.zeros(num_instances, np.int64),
        counts=counts,
    )


def with_more_room(tree: PrefixTree, *, num_nodes: int, num_slots: int) -> PrefixTree:
    """Return the same tree with room for at least ``num_nodes`` nodes and ``num_slots`` senders of nodes."""
    num_nodes, num_slots = max(num_nodes, len(tree.nodes)), max(num_slots, len(tree.senders.slots))
    senders = with_more_slots(tree.senders, num_slots)
    return tree._replace(
        nodes=grown(tree.nodes, num_nodes),
        children=more_pairs(tree.children, num_nodes),
        senders=senders._replace(holders=grown(senders.holders, num_nodes)),
    )


@part
def has_room_for_insert(tree: PrefixTree, num_ids: int) -> bool:
    """Return whether any insertion of ``num_ids`` ids fits: a split, a leaf, and a path of known nodes."""
    num_free = len(tree.nodes) - tree.counts[0].num_used + tree.counts[0].num_free
    return num_free >= 2 and num_free_slots(tree.senders) >= len(tree.num_ids) + num_ids + 1


@part
def take_node(tree: PrefixTree) -> int:
    """Return a node that is not in use; there must be room."""
    counts = tree.counts[0]
    node = counts.first_free
    if node == NOWHERE:
        node = counts.num_used
        counts.num_used += 1
    else:
        counts.first_free = tree.nodes[node].parent
        counts.num_free -= 1
    return node


@phase
def num_shared(tree: PrefixTree, ids: Int64s, node: int, first: int, end: int) -> int:
    """Return how many ids of a node's run are those of ``ids[first:end]``, from the first on."""
    start, most = tree.nodes[node].start, min(tree.nodes[node].length, end - first)
    shared = 0
    while shared < most and ids[start + shared] == ids[first + shared]:
        shared += 1
    return shared


@phase
def match_node(tree: PrefixTree, ids: Int64s, first: int, end: int) -> tuple[int, int]:
    """Return the deepest node reached by ``ids[first:end]``, a partly matched one too, and how many ids match."""
    node, at = ROOT, first
    while at < end:
        child = value_of(tree.children, node, ids[at])
        if child == NOWHERE:
            break
        shared = num_shared(tree, ids, child, at, end)
        node, at = child, at + shared
        if shared < tree.nodes[child].length:
            break
    return node, at - first


@phase
def insert(tree: PrefixTree, ids: Int64s, first: int, end: int, instance: int) -> None:
    """Note that ``ids[first:end]`` were sent to an instance."""
    node, at = ROOT, first
    while at < end:
        child = value_of(tree.children, node, ids[at])
        if child == NOWHERE:
            node = add_leaf(tree, ids, node, at, end, instance)
            break
        shared = num_shared(tree, ids, child, at, end)
        if shared < tree.nodes[child].length:
            child = split(tree, ids, child, shared)
        node, at = child, at + shared
    while node != ROOT:
        if touch(tree.senders, instance, node):
            tree.num_ids[instance] += tree.nodes[node].length
        node = tree.nodes[node].parent


@part
def add_leaf(tree: PrefixTree, ids: Int64s, parent: int, at: int, end: int, instance: int) -> int:
    """Return a new leaf below ``parent`` for ``ids[at:end]``, created by ``instance``."""
    leaf = take_node(tree)
    n = tree.nodes[leaf]
    n.start, n.length, n.parent, n.creator = at, end - at, parent, instance
    put_pair(tree.children, parent, ids[at], leaf)
    return leaf


@phase
def split(tree: PrefixTree, ids: Int64s, node: int, length: int) -> int:
    """Cut a node after ``length`` ids; return the new upper node, which has its creator and its senders."""
    upper = take_node(tree)
    above, below = tree.nodes[upper], tree.nodes[node]
    above.start, above.length, above.parent, above.creator = below.start, length, below.parent, below.creator
    put_pair(tree.children, above.parent, ids[above.start], upper)
    below.start += length
    below.length -= length
    below.parent = upper
    put_pair(tree.children, upper, ids[below.start], node)
    for instance in range(len(tree.num_ids)):
        if tree.senders.holders[node, instance // BITS] != 0 and has_bit(
            tree.senders.holders, node, instance
        ):
            add_key(tree.senders, instance, upper, value_of(tree.senders.slot_of, instance, node))
    return upper


@phase
def evict_beyond(tree: PrefixTree, ids: Int64s, max_ids: int) -> None:
    """Drop each instance's least recently touched leaves until its nodes have at most ``max_ids`` ids."""
    for instance in range(len(tree.num_ids)):
        while tree.num_ids[instance] > max_ids:
            drop_sender(tree, ids, instance, oldest_key(tree.senders, instance))


@phase
def drop_sender(tree: PrefixTree, ids: Int64s, instance: int, node: int) -> None:
    """Take an instance from a leaf of its own; a node without senders leaves the tree."""
    forget(tree.senders, instance, node)
    n = tree.nodes[node]
    tree.num_ids[instance] -= n.length
    if is_empty_row(tree.senders.holders, node):
        counts = tree.counts[0]
        remove_pair(tree.children, n.parent, ids[n.start])
        n.parent = counts.first_free
        counts.first_free = node
        counts.num_free += 1
