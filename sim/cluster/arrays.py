"""Arrays of records, sets of bits, a map from pairs of integers, the least of many: parts of routers' memories.

Nothing here allocates in compiled code. The code that fills a map must keep it at most half full.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.jit.compile import engine_entry, part, phase

Records = Any  # numpy.recarray; its fields are typed by its dtype, which mypy cannot follow

NOWHERE = -1
"""No instance, no node, no row."""

PAIR = np.dtype([("first", np.int64), ("second", np.int64), ("value", np.int64)])
"""An entry of a map from (first, second) to value; ``first`` is NOWHERE where it is empty."""

BITS = 64


def records(length: int, dtype: np.dtype[Any]) -> Records:
    """Return ``length`` zeroed records whose fields are attributes, in compiled code and in plain Python."""
    return np.zeros(length, dtype).view(np.recarray)


def grown(rows: Records, length: int) -> Records:
    """Return a copy of an array with ``length`` rows, the new ones zero."""
    more = np.zeros((length, *rows.shape[1:]), rows.dtype)
    more[: len(rows)] = rows
    return more.view(np.recarray) if rows.dtype.names else more


def num_words(num_bits: int) -> int:
    """Return how many words hold ``num_bits`` bits, at least one."""
    return max(1, -(-num_bits // BITS))


# -- sets of bits: rows of int64 words; bit i of a row is (row[i // 64] >> (i % 64)) & 1 -------------------


@part
def has_bit(rows: NDArray[np.int64], row: int, bit: int) -> bool:
    """Return whether a row's bit is set."""
    return (rows[row, bit >> 6] >> (bit & 63)) & 1 == 1


@part
def set_bit(rows: NDArray[np.int64], row: int, bit: int) -> None:
    """Set a row's bit."""
    rows[row, bit >> 6] |= np.int64(1) << np.int64(bit & 63)


@part
def clear_bit(rows: NDArray[np.int64], row: int, bit: int) -> None:
    """Clear a row's bit."""
    rows[row, bit >> 6] &= ~(np.int64(1) << np.int64(bit & 63))


@part
def is_empty_row(rows: NDArray[np.int64], row: int) -> bool:
    """Return whether no bit of a row is set."""
    for word in range(rows.shape[1]):  # noqa: SIM110 - numba compiles no generators
        if rows[row, word] != 0:
            return False
    return True


# -- a map from pairs of integers: open addressing, linear probing, deletion by shifting back ----------------


def new_pairs(capacity: int) -> Records:
    """Return an empty map that can take ``capacity`` pairs."""
    length = 8
    while length < 2 * capacity:
        length *= 2
    pairs = records(length, PAIR)
    pairs["first"] = NOWHERE
    return pairs


def more_pairs(pairs: Records, capacity: int) -> Records:
    """Return the same map with room for ``capacity`` pairs."""
    bigger = new_pairs(capacity)
    if len(bigger) <= len(pairs):
        return pairs
    copy_pairs(pairs, bigger)
    return bigger


@part
def place_of(pairs: Records, first: int, second: int) -> int:
    """Return where a pair's search begins."""
    # int: of plain Python, where a 32-bit key would not take the factor and a 64-bit product would warn
    mixed = int(np.int64(second)) * 0x9E3779B1 + int(np.int64(first)) * 0x85EBCA6B
    return (mixed ^ (mixed >> 15) ^ (mixed >> 32)) & (len(pairs) - 1)


@phase
def find_pair(pairs: Records, first: int, second: int) -> int:
    """Return the place of a pair, or -1 - the place where it would be."""
    place = place_of(pairs, first, second)
    while pairs[place].first != NOWHERE:
        if pairs[place].first == first and pairs[place].second == second:
            return place
        place = (place + 1) & (len(pairs) - 1)
    return -1 - place


@part
def value_of(pairs: Records, first: int, second: int) -> int:
    """Return a pair's value, NOWHERE where the map lacks it."""
    place = find_pair(pairs, first, second)
    return pairs[place].value if place >= 0 else NOWHERE


@phase
def put_pair(pairs: Records, first: int, second: int, value: int) -> None:
    """Set a pair's value."""
    place = find_pair(pairs, first, second)
    if place < 0:
        place = -1 - place
        pairs[place].first = first
        pairs[place].second = second
    pairs[place].value = value


@phase
def remove_pair(pairs: Records, first: int, second: int) -> None:
    """Remove a pair, and move up those behind it that the gap would hide."""
    hole = find_pair(pairs, first, second)
    if hole < 0:
        return
    mask = len(pairs) - 1
    place = (hole + 1) & mask
    while pairs[place].first != NOWHERE:
        home = place_of(pairs, pairs[place].first, pairs[place].second)
        if (place - home) & mask >= (place - hole) & mask:
            pairs[hole] = pairs[place]
            hole = place
        place = (place + 1) & mask
    pairs[hole].first = NOWHERE


@engine_entry
def copy_pairs(pairs: Records, bigger: Records) -> None:
    """Put every pair of one map into another."""
    for place in range(len(pairs)):
        if pairs[place].first != NOWHERE:
            put_pair(bigger, pairs[place].first, pairs[place].second, pairs[place].value)


# -- the least of many numbers: a tree in an array, its root at 1, its leaves in the second half ---------------

FAR = 1 << 62
"""More than any number in such a tree."""


def tree_of(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a tree over some numbers below FAR: each node has the lesser of the two below it."""
    half = num_leaves(len(numbers))
    tree = np.full(2 * half, FAR, np.int64)
    tree[half : half + len(numbers)] = numbers
    while half > 1:
        tree[half // 2 : half] = tree[half : 2 * half].reshape(-1, 2).min(axis=1)
        half //= 2
    return tree


def num_leaves(num: int) -> int:
    """Return how many leaves a tree over ``num`` numbers has: the next power of two."""
    return 1 << max(0, num - 1).bit_length()


@part
def set_number(tree: NDArray[np.int64], leaf: int, number: int) -> None:
    """Set one of a tree's numbers."""
    place = (len(tree) >> 1) + leaf
    tree[place] = number
    while place > 1:
        place >>= 1
        least = min(tree[2 * place], tree[2 * place + 1])
        if tree[place] == least:
            return
        tree[place] = least


@part
def first_at_most(tree: NDArray[np.int64], leaf: int, most: int) -> int:
    """Return the first of a tree's leaves, from ``leaf`` on, whose number is at most ``most``; else NOWHERE."""
    half = len(tree) >> 1
    if leaf >= half or tree[1] > most:
        return NOWHERE
    place = half + leaf
    while tree[place] > most:
        while place & 1 == 1:  # both below its parent have been seen
            place >>= 1
        if place == 0:
            return NOWHERE
        place += 1
    while place < half:
        place *= 2
        place += int(tree[place] > most)
    return place - half
