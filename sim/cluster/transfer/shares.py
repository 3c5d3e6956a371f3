"""The rates of transfers that share links: max-min fair shares, exact in integers.

Each instance has one link out and one link in, of one bandwidth. All transfers from one sender to one receiver, a
pair, move at one rate. Rates are max-min fair (Bertsekas and Gallager, Data Networks, 2nd ed., 6.5.2): the link whose
share is the smallest, its bandwidth over its transfers, sets the rate of all that use it; what they leave of their
other links is for the others there. Shares are whole units per microsecond, rounded down, and at least one.
"""

from __future__ import annotations

import numpy as np

from sim.cluster.arrays import Records
from sim.jit.compile import part, phase
from sim.requests import Int64s

PAIR = np.dtype(
    [
        ("sender", np.int64),
        ("receiver", np.int64),
        ("num_flows", np.int64),
        ("root", np.int64),  # of the heap of its transfers, by where the clock stands when they end
        ("clock", np.int64),  # units that each of its transfers has moved since the pair began
        ("rate", np.int64),  # units per µs
        ("is_bound", np.int64),  # 1: its rate is found; 2: it is the one that is being found
    ],
    align=True,
)
"""A sender and a receiver between which something moves."""


@part
def share(left: Int64s, num: Int64s, link: int) -> int:
    """Return what a link has left for each transfer whose rate is not found."""
    return int(left[link] // num[link])


@part
def share_of(pairs: Records, number: int, left: Int64s, num: Int64s) -> int:
    """Return the smaller share of a pair's two links; those in stand behind those out."""
    pair = pairs[number]
    incoming = len(left) // 2 + pair.receiver
    return min(share(left, num, pair.sender), share(left, num, incoming))


@phase
def set_rates(pairs: Records, num_pairs: int, units_per_us: int, left: Int64s, num: Int64s) -> None:
    """Give the first ``num_pairs`` pairs their rates.

    ``left``, ``num``: scratch, [2 * num_instances]: of each link out, then of each link in, what is left of it and its
    transfers without a rate.
    """
    num_instances = len(left) // 2
    for i in range(num_pairs):
        for link in (pairs[i].sender, num_instances + pairs[i].receiver):
            left[link], num[link] = units_per_us, 0
    for i in range(num_pairs):
        pairs[i].is_bound = 0
        num[pairs[i].sender] += pairs[i].num_flows
        num[num_instances + pairs[i].receiver] += pairs[i].num_flows
    num_left = num_pairs
    while num_left > 0:
        least = units_per_us
        for i in range(num_pairs):
            if not pairs[i].is_bound:
                least = min(least, share_of(pairs, i, left, num))
        for i in range(num_pairs):
            if not pairs[i].is_bound and share_of(pairs, i, left, num) == least:
                pairs[i].is_bound = 2
        for i in range(num_pairs):
            if pairs[i].is_bound == 2:
                num_left -= bind(pairs, i, least, left, num)


@part
def bind(pairs: Records, number: int, rate: int, left: Int64s, num: Int64s) -> int:
    """Give a pair its rate, and take it from both of its links; return 1."""
    pair = pairs[number]
    pair.is_bound, pair.rate = 1, max(rate, 1)
    for link in (pair.sender, len(left) // 2 + pair.receiver):
        left[link] -= rate * pair.num_flows
        num[link] -= pair.num_flows
    return 1
