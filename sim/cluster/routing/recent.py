"""Per instance the keys it was given, the least recently touched evicted first: a router's own view of caches.

A key is a dense integer: a block's content, or a node of a prefix tree. Which instances hold a key is a row of bits,
so that the instances that hold a whole prefix are found by a few words' AND per block, however many they are.

Blocks that no other request has are never asked for, but take up room as any other: a run of them is one slot, without
a key, that counts as many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cluster.arrays import (
    BITS,
    NOWHERE,
    Records,
    clear_bit,
    find_pair,
    grown,
    has_bit,
    more_pairs,
    new_pairs,
    num_words,
    put_pair,
    records,
    remove_pair,
    set_bit,
    value_of,
)
from sim.jit.compile import part, phase
from sim.requests import Int64s

SLOT = np.dtype([("key", np.int64), ("num", np.int64), ("newer", np.int64), ("older", np.int64)])
"""One key of one instance, in the list of its instance, or (NOWHERE) ``num`` of its own; ``older`` links the free."""

RECENT = np.dtype([("newest", np.int64), ("oldest", np.int64), ("num_keys", np.int64)])
"""``num_keys``: own ones included."""

SLOT_COUNTS = np.dtype([("num_used", np.int64), ("first_free", np.int64), ("num_free", np.int64)])


class RecentKeys(NamedTuple):
    """Per instance a set of keys in the order of their last touch."""

    holders: NDArray[np.int64]  # [num_keys, words]: bit i of a row: instance i holds the key
    slots: Records  # SLOT[capacity]
    slot_of: Records  # map from (instance, key) to its slot
    lists: Records  # RECENT[num_instances]
    counts: Records  # SLOT_COUNTS[1]


def new_recent_keys(num_instances: int, *, num_keys: int, capacity: int) -> RecentKeys:
    """Return empty sets over keys 0 to ``num_keys`` - 1, with room for ``capacity`` (instance, key) pairs."""
    lists, counts = records(num_instances, RECENT), records(1, SLOT_COUNTS)
    lists["newest"] = lists["oldest"] = NOWHERE
    counts["first_free"] = NOWHERE
    return RecentKeys(
        holders=np.zeros((num_keys, num_words(num_instances)), np.int64),
        slots=records(capacity, SLOT),
        slot_of=new_pairs(capacity),
        lists=lists,
        counts=counts,
    )


def with_more_slots(recent: RecentKeys, capacity: int) -> RecentKeys:
    """Return the same sets with room for ``capacity`` pairs."""
    return recent._replace(slots=grown(recent.slots, capacity), slot_of=more_pairs(recent.slot_of, capacity))


@part
def num_free_slots(recent: RecentKeys) -> int:
    """Return for how many more (instance, key) pairs there is room."""
    return len(recent.slots) - recent.counts[0].num_used + recent.counts[0].num_free


@part
def take_slot(recent: RecentKeys) -> int:
    """Return a slot that is not in use; there must be room."""
    counts = recent.counts[0]
    slot = counts.first_free
    if slot == NOWHERE:
        slot = counts.num_used
        counts.num_used += 1
    else:
        counts.first_free = recent.slots[slot].older
        counts.num_free -= 1
    return slot


@part
def link_newer(recent: RecentKeys, instance: int, slot: int, older: int) -> None:
    """Put a slot into its instance's list, right above ``older``; above the newest if that is it."""
    head, slot_row = recent.lists[instance], recent.slots[slot]
    newer = recent.slots[older].newer if older != NOWHERE else NOWHERE
    slot_row.older, slot_row.newer = older, newer
    if older != NOWHERE:
        recent.slots[older].newer = slot
    if newer != NOWHERE:
        recent.slots[newer].older = slot
    if newer == NOWHERE:
        head.newest = slot
    if older == NOWHERE:
        head.oldest = slot


@part
def unlink(recent: RecentKeys, instance: int, slot: int) -> None:
    """Take a slot out of its instance's list."""
    head, newer, older = recent.lists[instance], recent.slots[slot].newer, recent.slots[slot].older
    if newer != NOWHERE:
        recent.slots[newer].older = older
    else:
        head.newest = older
    if older != NOWHERE:
        recent.slots[older].newer = newer
    else:
        head.oldest = newer


@phase
def add_key(recent: RecentKeys, instance: int, key: int, older: int) -> None:
    """Give an instance a key that it lacks, right above the slot ``older`` of its list."""
    slot = take_slot(recent)
    recent.slots[slot].key = key
    recent.slots[slot].num = 1
    link_newer(recent, instance, slot, older)
    put_pair(recent.slot_of, instance, key, slot)
    set_bit(recent.holders, key, instance)
    recent.lists[instance].num_keys += 1


@phase
def touch(recent: RecentKeys, instance: int, key: int) -> bool:
    """Make a key the instance's most recent one; return whether it is new to the instance."""
    newest = recent.lists[instance].newest
    if not has_bit(recent.holders, key, instance):
        add_key(recent, instance, key, newest)
        return True
    slot = value_of(recent.slot_of, instance, key)
    if slot != newest:
        unlink(recent, instance, slot)
        link_newer(recent, instance, slot, recent.lists[instance].newest)
    return False


@phase
def forget(recent: RecentKeys, instance: int, key: int) -> None:
    """Take a key from an instance that has it."""
    slot = recent.slot_of[find_pair(recent.slot_of, instance, key)].value
    remove_pair(recent.slot_of, instance, key)
    clear_bit(recent.holders, key, instance)
    give_back(recent, instance, slot)


@part
def give_back(recent: RecentKeys, instance: int, slot: int) -> None:
    """Take a slot out of its instance's list, and free it."""
    counts = recent.counts[0]
    unlink(recent, instance, slot)
    recent.lists[instance].num_keys -= recent.slots[slot].num
    recent.slots[slot].older = counts.first_free
    counts.first_free = slot
    counts.num_free += 1


@phase
def add_own(recent: RecentKeys, instance: int, num: int) -> None:
    """Give an instance ``num`` keys that no one will ask for, its most recent ones; there must be room for a slot."""
    if num <= 0:
        return
    slot = take_slot(recent)
    recent.slots[slot].key = NOWHERE
    recent.slots[slot].num = num
    link_newer(recent, instance, slot, recent.lists[instance].newest)
    recent.lists[instance].num_keys += num


@phase
def keep_at_most(recent: RecentKeys, instance: int, most: int) -> None:
    """Take from an instance the keys that it has touched least recently, beyond ``most``."""
    head = recent.lists[instance]
    while head.num_keys > most:
        slot = head.oldest
        if recent.slots[slot].key != NOWHERE:
            forget(recent, instance, recent.slots[slot].key)
            continue
        gone = min(recent.slots[slot].num, head.num_keys - most)
        if gone == recent.slots[slot].num:
            give_back(recent, instance, slot)
        else:
            recent.slots[slot].num -= gone
            head.num_keys -= gone


@part
def oldest_key(recent: RecentKeys, instance: int) -> int:
    """Return the key that an instance has touched least recently."""
    return recent.slots[recent.lists[instance].oldest].key


@phase
def match_prefix(holders: NDArray[np.int64], keys: Int64s, first: int, num: int, matched: Int64s) -> None:
    """Set ``matched`` to how many of ``keys[first : first + num]`` each instance holds without a gap."""
    matched[:] = 0
    for word in range(holders.shape[1]):
        match_word(holders, keys, first, num, word, matched)


@part
def match_word(
    holders: NDArray[np.int64], keys: Int64s, first: int, num: int, word: int, matched: Int64s
) -> None:
    """Set ``matched``, which is 0, for the instances of a word of bits."""
    alive = np.int64(-1)
    for i in range(num):
        still = alive & holders[keys[first + i], word]
        note_lost(matched, word, int(alive & ~still), i)
        alive = still
        if alive == 0:
            break
    note_lost(matched, word, int(alive), num)


@part
def longest_match(holders: NDArray[np.int64], keys: Int64s, first: int, num: int, word: int) -> int:
    """Return how many of the keys at most an instance of a word of bits holds without a gap."""
    alive = np.int64(-1)
    for i in range(num):
        alive &= holders[keys[first + i], word]
        if alive == 0:
            return i
    return num


@part
def note_lost(matched: Int64s, word: int, lost: int, num_matched: int) -> None:
    """Note for every instance whose bit is set in ``lost`` how much it matched."""
    if lost != 0 and num_matched > 0:
        for bit in range(min(BITS, len(matched) - word * BITS)):
            if (lost >> bit) & 1:
                matched[word * BITS + bit] = num_matched
