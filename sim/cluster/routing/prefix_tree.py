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
def has_room_for_insert(t: PrefixTree, num_ids: int) -> bool:
    """Return whether any insertion of ``num_ids`` ids fits: a split, a leaf, and a path of known nodes."""
    num_free = len(t.nodes) - t.counts[0].num_used + t.counts[0].num_free
    return num_free >= 2 and num_free_slots(t.senders) >= len(t.num_ids) + num_ids + 1


@part
def take_node(t: PrefixTree) -> int:
    """Return a node that is not in use; there must be room."""
    c = t.counts[0]
    node = c.first_free
    if node == NOWHERE:
        node = c.num_used
        c.num_used += 1
    else:
        c.first_free = t.nodes[node].parent
        c.num_free -= 1
    return node


@phase
def num_shared(t: PrefixTree, ids: Int64s, node: int, first: int, end: int) -> int:
    """Return how many ids of a node's run are those of ``ids[first:end]``, from the first on."""
    start, most = t.nodes[node].start, min(t.nodes[node].length, end - first)
    shared = 0
    while shared < most and ids[start + shared] == ids[first + shared]:
        shared += 1
    return shared


@phase
def match_node(t: PrefixTree, ids: Int64s, first: int, end: int) -> tuple[int, int]:
    """Return the deepest node reached by ``ids[first:end]``, a partly matched one too, and how many ids match."""
    node, at = ROOT, first
    while at < end:
        child = value_of(t.children, node, ids[at])
        if child == NOWHERE:
            break
        shared = num_shared(t, ids, child, at, end)
        node, at = child, at + shared
        if shared < t.nodes[child].length:
            break
    return node, at - first


@phase
def insert(t: PrefixTree, ids: Int64s, first: int, end: int, instance: int) -> None:
    """Note that ``ids[first:end]`` were sent to an instance."""
    node, at = ROOT, first
    while at < end:
        child = value_of(t.children, node, ids[at])
        if child == NOWHERE:
            node = add_leaf(t, ids, node, at, end, instance)
            break
        shared = num_shared(t, ids, child, at, end)
        if shared < t.nodes[child].length:
            child = split(t, ids, child, shared)
        node, at = child, at + shared
    while node != ROOT:
        if touch(t.senders, instance, node):
            t.num_ids[instance] += t.nodes[node].length
        node = t.nodes[node].parent


@part
def add_leaf(t: PrefixTree, ids: Int64s, parent: int, at: int, end: int, instance: int) -> int:
    """Return a new leaf below ``parent`` for ``ids[at:end]``, created by ``instance``."""
    leaf = take_node(t)
    n = t.nodes[leaf]
    n.start, n.length, n.parent, n.creator = at, end - at, parent, instance
    put_pair(t.children, parent, ids[at], leaf)
    return leaf


@phase
def split(t: PrefixTree, ids: Int64s, node: int, length: int) -> int:
    """Cut a node after ``length`` ids; return the new upper node, which has its creator and its senders."""
    upper = take_node(t)
    u, n = t.nodes[upper], t.nodes[node]
    u.start, u.length, u.parent, u.creator = n.start, length, n.parent, n.creator
    put_pair(t.children, u.parent, ids[u.start], upper)
    n.start += length
    n.length -= length
    n.parent = upper
    put_pair(t.children, upper, ids[n.start], node)
    for instance in range(len(t.num_ids)):
        if t.senders.holders[node, instance // BITS] != 0 and has_bit(t.senders.holders, node, instance):
            add_key(t.senders, instance, upper, value_of(t.senders.slot_of, instance, node))
    return upper


@phase
def evict_beyond(t: PrefixTree, ids: Int64s, max_ids: int) -> None:
    """Drop each instance's least recently touched leaves until its nodes have at most ``max_ids`` ids."""
    for instance in range(len(t.num_ids)):
        while t.num_ids[instance] > max_ids:
            drop_sender(t, ids, instance, oldest_key(t.senders, instance))


@phase
def drop_sender(t: PrefixTree, ids: Int64s, instance: int, node: int) -> None:
    """Take an instance from a leaf of its own; a node without senders leaves the tree."""
    forget(t.senders, instance, node)
    n = t.nodes[node]
    t.num_ids[instance] -= n.length
    if is_empty_row(t.senders.holders, node):
        c = t.counts[0]
        remove_pair(t.children, n.parent, ids[n.start])
        n.parent = c.first_free
        c.first_free = node
        c.num_free += 1
