"""Transfers of KV under way, and the links that they share; exact in integers.

A transfer first waits for the base latency and uses no link. Then it moves at its pair's max-min fair share
(``shares``). It ends at the first whole microsecond by which all its bytes have moved, and holds its share until then.
All transfers of a pair have one rate, so that each pair has a clock of units moved, and a transfer's end is a reading
of it: a change costs one operation per busy pair, whatever the number of transfers.

Without contention each transfer has the whole bandwidth. ``compatibility: blis``: one link for all; a transfer's rate
is its share when it starts, and stays. In both its end is known when it starts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cluster.arrays import NOWHERE, Records, records
from sim.cluster.heap import HEAP_NODE, pop, push, remove
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.cluster.transfer.shares import PAIR, set_rates
from sim.jit.compile import part, phase
from sim.requests import Int64s

UNITS_PER_BYTE = 1 << 16
"""Bytes are moved in whole fractions, so that a share of a bandwidth is an integer."""

BYTES_PER_US_OF_ONE_GBPS = 1000

NEVER = -1
FOREVER = 1 << 62
LATEST_CLOCK = 1 << 61
"""A pair's clock that passes this is set back to 0."""

LINKS = np.dtype(
    [
        ("units_per_us", np.int64),
        ("base_latency_us", np.int64),
        ("units_per_block", np.int64),
        ("shares_links", np.int64),
        ("keeps_first_rate", np.int64),  # compatibility blis
        ("num_flows", np.int64),
        ("num_pairs", np.int64),
        ("first_beginning", np.int64),  # of the transfers whose base latency has not passed, in their order
        ("last_beginning", np.int64),
        ("first_fixed", np.int64),  # root of the heap of those whose end is known, by it
        (
            "first_ended",
            np.int64,
        ),  # root of the heap of those that have ended and are not taken, by their start
        ("advanced_us", np.int64),
        ("num_started", np.int64),
        ("num_ended", np.int64),
        ("num_cut_off", np.int64),
    ],
    align=True,
)

FLOW = np.dtype(
    [
        ("sender", np.int64),
        ("receiver", np.int64),
        ("number", np.int64),  # of its start, among all
        ("begins_us", np.int64),  # to move
        ("started_us", np.int64),
        ("ended_us", np.int64),
        ("num_blocks", np.int64),
        ("next_beginning", np.int64),
    ],
    align=True,
)
"""A request's transfer; NEVER where it did not start, or end. One that was cut off has the ``number`` NEVER."""


class Links(NamedTuple):
    """All transfers and the links; compiled functions take it whole and change it in place."""

    counts: Records  # LINKS[1]
    flows: Records  # FLOW[n], per request; of no rows where nothing is moved
    nodes: Records  # HEAP_NODE[n]: a transfer is in at most one heap
    pairs: Records  # PAIR[as many as there can be], the busy ones first
    left: Int64s  # [2 * num_instances], scratch
    num: Int64s  # likewise


ROWS_OF_LINKS = ("flows", "nodes")
"""The arrays of ``Links`` with a row per request."""


def new_links(
    settings: Disaggregation | None,
    *,
    num_requests: int,
    num_instances: int,
    block_size: int,
    is_blis: bool = False,
) -> Links:
    """Return links that nothing moves over yet."""
    counts = records(1, LINKS)
    moves = settings is not None and settings.moves_kv
    num_rows = num_requests if moves else 0
    flows, nodes = records(num_rows, FLOW), records(num_rows, HEAP_NODE)
    for name in ("sender", "receiver", "begins_us", "started_us", "ended_us"):
        flows[name] = NEVER
    for name in ("first_beginning", "last_beginning", "first_fixed", "first_ended"):
        counts[name] = NOWHERE
    if settings is not None and moves:
        per_us = settings.kv_bandwidth_gbps * BYTES_PER_US_OF_ONE_GBPS * UNITS_PER_BYTE
        counts["units_per_us"] = max(1, round(per_us))
        counts["base_latency_us"] = settings.kv_base_latency_us
        counts["units_per_block"] = (settings.kv_bytes_per_token or 0) * block_size * UNITS_PER_BYTE
        counts["shares_links"] = settings.contention
        counts["keeps_first_rate"] = is_blis
    most_pairs = (num_instances // 2) * ((num_instances + 1) // 2)  # senders are no receivers
    return Links(
        counts=counts,
        flows=flows,
        nodes=nodes,
        pairs=records(most_pairs if moves else 0, PAIR),
        left=np.zeros(2 * num_instances, np.int64),
        num=np.zeros(2 * num_instances, np.int64),
    )


# -- time passes ------------------------------------------------------------------------------------------------


@phase
def advance(links: Links, time_us: int) -> None:
    """Move all transfers up to ``time_us`` at the present rates, and set aside those that have ended."""
    counts = links.counts[0]
    elapsed_us = time_us - counts.advanced_us
    counts.advanced_us = time_us
    for i in range(counts.num_pairs):
        pair = links.pairs[i]
        pair.clock += pair.rate * elapsed_us
        while pair.root != NOWHERE and links.nodes[pair.root].key <= pair.clock:
            ended = pair.root
            pair.root = pop(links.nodes, ended)
            put_aside(links, ended)
        if pair.clock > LATEST_CLOCK:
            set_back(links, i)
    while counts.first_fixed != NOWHERE and links.nodes[counts.first_fixed].key <= time_us:
        ended = counts.first_fixed
        counts.first_fixed = pop(links.nodes, ended)
        put_aside(links, ended)


@part
def put_aside(links: Links, request: int) -> None:
    """Keep a transfer that has ended until it is taken: the first that started comes first."""
    node, counts = links.nodes[request], links.counts[0]
    node.key = links.flows[request].number
    counts.first_ended = push(links.nodes, counts.first_ended, request)


@phase
def set_back(links: Links, number: int) -> None:
    """Set a pair's clock to 0, and the ends of its transfers as far from it as before."""
    pair = links.pairs[number]
    before, root = pair.root, NOWHERE
    while before != NOWHERE:
        request = before
        before = pop(links.nodes, request)
        links.nodes[request].key -= pair.clock
        root = push(links.nodes, root, request)
    pair.root, pair.clock = root, 0


@part
def begin_moving(links: Links, time_us: int) -> bool:
    """Start the transfers whose base latency has passed; return whether there were any."""
    counts = links.counts[0]
    has_begun = False
    while counts.first_beginning != NOWHERE and links.flows[counts.first_beginning].begins_us <= time_us:
        request = counts.first_beginning
        counts.first_beginning = links.flows[request].next_beginning
        join_pair(links, request)
        has_begun = True
    return has_begun


@part
def pair_of(links: Links, sender: int, receiver: int) -> int:
    """Return the number of a busy pair, ``num_pairs`` where it is not busy."""
    counts = links.counts[0]
    number = 0
    while number < counts.num_pairs:
        if links.pairs[number].sender == sender and links.pairs[number].receiver == receiver:
            break
        number += 1
    return number


@phase
def join_pair(links: Links, request: int) -> None:
    """Add a transfer to those of its pair that move."""
    counts, flow, node = links.counts[0], links.flows[request], links.nodes[request]
    number = pair_of(links, flow.sender, flow.receiver)
    pair = links.pairs[number]
    if number == counts.num_pairs:
        counts.num_pairs += 1
        pair.sender, pair.receiver = flow.sender, flow.receiver
        pair.num_flows = pair.clock = pair.rate = 0
        pair.root = NOWHERE
    pair.num_flows += 1
    node.key, node.sequence = pair.clock + flow.num_blocks * counts.units_per_block, flow.number
    pair.root = push(links.nodes, pair.root, request)


@part
def share_links(links: Links) -> None:
    """Give each busy pair its share."""
    counts = links.counts[0]
    set_rates(links.pairs, counts.num_pairs, counts.units_per_us, links.left, links.num)


# -- transfers --------------------------------------------------------------------------------------------------


@phase
def start_flow(links: Links, request: int, sender: int, receiver: int, num_blocks: int, time_us: int) -> None:
    """Start a request's transfer at ``time_us``, no earlier than anything before it."""
    counts, flow = links.counts[0], links.flows[request]
    advance(links, time_us)
    flow.number = counts.num_started
    counts.num_flows += 1
    counts.num_started += 1
    flow.sender, flow.receiver, flow.num_blocks = sender, receiver, num_blocks
    flow.started_us, flow.begins_us = time_us, time_us + counts.base_latency_us
    if counts.shares_links and not counts.keeps_first_rate:
        wait_to_begin(links, request)
        if begin_moving(links, time_us):
            share_links(links)
        return
    rate = max(1, counts.units_per_us // counts.num_flows) if counts.shares_links else counts.units_per_us
    node = links.nodes[request]
    node.key = flow.begins_us + (num_blocks * counts.units_per_block + rate - 1) // rate
    node.sequence = flow.number
    counts.first_fixed = push(links.nodes, counts.first_fixed, request)


@part
def wait_to_begin(links: Links, request: int) -> None:
    """Queue a transfer for its base latency, behind those that started before."""
    counts = links.counts[0]
    links.flows[request].next_beginning = NOWHERE
    if counts.first_beginning == NOWHERE:
        counts.first_beginning = request
    else:
        links.flows[counts.last_beginning].next_beginning = request
    counts.last_beginning = request


@phase
def move_on(links: Links, time_us: int) -> None:
    """Move everything up to ``time_us``, and start those whose base latency has passed."""
    advance(links, time_us)
    if begin_moving(links, time_us):
        share_links(links)
        advance(links, time_us)  # of a transfer without bytes


@phase
def take_ended(links: Links) -> int:
    """Return a request whose transfer has ended, the first that started; NEVER where none has."""
    counts = links.counts[0]
    request = counts.first_ended
    if request == NOWHERE:
        return NEVER
    counts.first_ended = pop(links.nodes, request)
    flow = links.flows[request]
    flow.ended_us = counts.advanced_us
    counts.num_flows -= 1
    counts.num_ended += 1
    if counts.shares_links and not counts.keeps_first_rate:
        leave_pair(links, pair_of(links, flow.sender, flow.receiver))
        if counts.first_ended == NOWHERE:
            share_links(links)
    return request


@part
def is_moving(links: Links, request: int) -> bool:
    """Return whether a request's transfer has started, and neither ended nor been cut off."""
    flow = links.flows[request]
    return flow.started_us != NEVER and flow.ended_us == NEVER and flow.number != NEVER


@phase
def cut_off(links: Links, request: int, time_us: int) -> None:
    """Cancel a transfer in progress, as of ``time_us``; those that shared its links get its share.

    Transfers that ended by then must have been taken before.
    """
    counts, flow = links.counts[0], links.flows[request]
    move_on(links, time_us)
    counts.num_flows -= 1
    counts.num_cut_off += 1
    flow.number = NEVER
    if not counts.shares_links or counts.keeps_first_rate:
        counts.first_fixed = remove(links.nodes, counts.first_fixed, request)
    elif flow.begins_us > time_us:
        leave_beginnings(links, request)
    else:
        number = pair_of(links, flow.sender, flow.receiver)
        links.pairs[number].root = remove(links.nodes, links.pairs[number].root, request)
        leave_pair(links, number)
        share_links(links)


@part
def leave_beginnings(links: Links, request: int) -> None:
    """Take a transfer out of those whose base latency has not passed."""
    counts = links.counts[0]
    before, at = NOWHERE, counts.first_beginning
    while at != request:
        before, at = at, links.flows[at].next_beginning
    after = links.flows[request].next_beginning
    if before == NOWHERE:
        counts.first_beginning = after
    else:
        links.flows[before].next_beginning = after
    if after == NOWHERE:
        counts.last_beginning = before


@part
def leave_pair(links: Links, number: int) -> None:
    """Take one transfer off a pair; without any it is no longer busy."""
    counts, pair = links.counts[0], links.pairs[number]
    pair.num_flows -= 1
    if pair.num_flows == 0:
        counts.num_pairs -= 1
        links.pairs[number] = links.pairs[counts.num_pairs]


@phase
def next_change_us(links: Links) -> int:
    """Return when a transfer next begins to move, or ends, if no other starts before; FOREVER without any."""
    counts = links.counts[0]
    next_us = FOREVER
    if counts.first_ended != NOWHERE:
        return int(counts.advanced_us)
    if counts.first_beginning != NOWHERE:
        next_us = links.flows[counts.first_beginning].begins_us
    if counts.first_fixed != NOWHERE:
        next_us = min(next_us, links.nodes[counts.first_fixed].key)
    for i in range(counts.num_pairs):
        pair = links.pairs[i]
        if pair.root != NOWHERE:
            left = links.nodes[pair.root].key - pair.clock
            next_us = min(next_us, counts.advanced_us + (left + pair.rate - 1) // pair.rate)
    return next_us
