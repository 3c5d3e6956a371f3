"""Transfers of KV under way, and the links that they share; exact in integers.

Each instance has one link out and one link in, of one bandwidth. A transfer first waits for the base latency and uses
no link. Then it moves at the smaller of two shares: its sender's bandwidth over the number of transfers that leave the
sender, and its receiver's over the number that come in there. What one link leaves unused goes to nobody. A transfer
ends at the first whole microsecond by which all its bytes have moved, and holds its shares until then.

``compatibility: blis``: one link for all; a transfer's rate is its share when it starts, and stays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cluster.arrays import Records, records
from sim.cluster.transfer.config import Disaggregation
from sim.compile import part, phase
from sim.requests import Int64s

UNITS_PER_BYTE = 1 << 16
"""Bytes are moved in whole fractions, so that a share of a bandwidth is an integer."""

BYTES_PER_US_OF_ONE_GBPS = 1000

NEVER = -1
FOREVER = 1 << 62

LINKS = np.dtype(
    [
        ("units_per_us", np.int64),
        ("base_latency_us", np.int64),
        ("units_per_block", np.int64),
        ("shares_links", np.int64),
        ("keeps_first_rate", np.int64),  # compatibility blis
        ("num_flows", np.int64),
        ("advanced_us", np.int64),
        ("num_started", np.int64),
        ("num_ended", np.int64),
    ],
    align=True,
)

FLOW = np.dtype(
    [
        ("sender", np.int64),
        ("receiver", np.int64),
        ("is_moving", np.int64),
        ("remaining", np.int64),
        ("rate", np.int64),  # units per µs
        ("begins_us", np.int64),  # to move
        ("started_us", np.int64),
        ("ended_us", np.int64),
        ("num_blocks", np.int64),
    ],
    align=True,
)
"""A request's transfer; NEVER where it did not start, or end."""


class Links(NamedTuple):
    """All transfers and the links; compiled functions take it whole and change it in place."""

    counts: Records  # LINKS[1]
    flows: Records  # FLOW[n], per request; of no rows where nothing is moved
    under_way: Int64s  # requests whose transfers have started and not ended, in the order of their starts
    num_leaving: Int64s  # per instance
    num_coming: Int64s


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
    flows = records(num_requests if moves else 0, FLOW)
    for name in ("sender", "receiver", "begins_us", "started_us", "ended_us"):
        flows[name] = NEVER
    if settings is not None and moves:
        per_us = settings.kv_bandwidth_gbps * BYTES_PER_US_OF_ONE_GBPS * UNITS_PER_BYTE
        counts["units_per_us"] = max(1, round(per_us))
        counts["base_latency_us"] = settings.kv_base_latency_us
        counts["units_per_block"] = (settings.kv_bytes_per_token or 0) * block_size * UNITS_PER_BYTE
        counts["shares_links"] = settings.contention
        counts["keeps_first_rate"] = is_blis
    return Links(
        counts=counts,
        flows=flows,
        under_way=np.zeros(len(flows), np.int64),
        num_leaving=np.zeros(num_instances, np.int64),
        num_coming=np.zeros(num_instances, np.int64),
    )


@phase
def advance(links: Links, time_us: int) -> None:
    """Let everything move up to ``time_us``, at the rates that hold."""
    c = links.counts[0]
    for i in range(c.num_flows):
        flow = links.flows[links.under_way[i]]
        if flow.is_moving:
            flow.remaining = max(0, flow.remaining - flow.rate * (time_us - c.advanced_us))
    c.advanced_us = time_us


@part
def set_rates(links: Links) -> None:
    """Give each moving transfer its share."""
    c = links.counts[0]
    if not c.shares_links or c.keeps_first_rate:
        return
    for i in range(c.num_flows):
        flow = links.flows[links.under_way[i]]
        if flow.is_moving:
            flow.rate = c.units_per_us // max(
                links.num_leaving[flow.sender], links.num_coming[flow.receiver], 1
            )


@part
def begin_moving(links: Links, time_us: int) -> None:
    """Let those move whose base latency has passed."""
    c = links.counts[0]
    for i in range(c.num_flows):
        flow = links.flows[links.under_way[i]]
        if not flow.is_moving and flow.begins_us <= time_us:
            flow.is_moving = 1
            links.num_leaving[flow.sender] += 1
            links.num_coming[flow.receiver] += 1


@phase
def start_flow(links: Links, request: int, sender: int, receiver: int, num_blocks: int, time_us: int) -> None:
    """Start a request's transfer at ``time_us``, no earlier than anything before it."""
    c, flow = links.counts[0], links.flows[request]
    advance(links, time_us)
    links.under_way[c.num_flows] = request
    c.num_flows += 1
    c.num_started += 1
    flow.sender, flow.receiver, flow.num_blocks = sender, receiver, num_blocks
    flow.remaining = num_blocks * c.units_per_block
    flow.is_moving = 0
    flow.rate = c.units_per_us
    if c.shares_links and c.keeps_first_rate:
        flow.rate = max(1, c.units_per_us // c.num_flows)
    flow.started_us, flow.begins_us = time_us, time_us + c.base_latency_us
    begin_moving(links, time_us)
    set_rates(links)


@phase
def move_on(links: Links, time_us: int) -> None:
    """Let everything move up to ``time_us``, and those begin whose base latency has passed."""
    advance(links, time_us)
    begin_moving(links, time_us)
    set_rates(links)


@phase
def take_ended(links: Links) -> int:
    """Return a request whose transfer has ended, the first that started; NEVER where none has."""
    c = links.counts[0]
    for i in range(c.num_flows):
        request = links.under_way[i]
        flow = links.flows[request]
        if flow.is_moving and flow.remaining == 0:
            flow.is_moving, flow.ended_us = 0, c.advanced_us
            links.num_leaving[flow.sender] -= 1
            links.num_coming[flow.receiver] -= 1
            for k in range(i, c.num_flows - 1):
                links.under_way[k] = links.under_way[k + 1]
            c.num_flows -= 1
            c.num_ended += 1
            set_rates(links)
            return request
    return NEVER


@phase
def next_change_us(links: Links) -> int:
    """Return when a transfer next begins to move, or ends, if no other starts before; FOREVER without any."""
    c = links.counts[0]
    next_us = FOREVER
    for i in range(c.num_flows):
        flow = links.flows[links.under_way[i]]
        at_us = flow.begins_us
        if flow.is_moving:
            at_us = c.advanced_us + (flow.remaining + flow.rate - 1) // flow.rate
        next_us = min(next_us, at_us)
    return next_us
