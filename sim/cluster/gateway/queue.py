"""The gateway's queue, compiled: bands by priority, in each band flows (one, or one per tenant), in each flow a heap.

Bands are numbered from the highest priority down. Each keeps its requests in the order in which they came as well,
since expiry takes the oldest and shedding the newest. The flows of a band that hold a request form a ring and take
turns in its order; a flow that was empty joins at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.cluster.arrays import NOWHERE, Records, records
from sim.cluster.fleet import Fleet, RequestTable
from sim.cluster.gateway.fleet_saturation import CONCURRENCY, NEVER_SATURATED, UTILIZATION, saturation_of
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.heap import HEAP_NODE, push, remove
from sim.jit.compile import engine_entry, part, phase
from sim.requests import Int64s

QUEUED, QUEUE_IS_FULL, BAND_IS_FULL = 0, 1, 2
"""The outcome of offering a request to the queue."""

FIFO, BY_PRIORITY, BY_DEADLINE = 0, 1, 2
ORDERS = ("fifo", "priority", "slo-deadline")
DETECTORS = {"utilization": UTILIZATION, "concurrency": CONCURRENCY, "never": NEVER_SATURATED}

FAR_FUTURE = 1 << 62
"""The deadline of a request that has none."""

QUEUE = np.dtype(
    [
        ("order", np.int64),
        ("capacity", np.int64),
        ("band_capacity", np.int64),
        ("sheds", np.int64),
        ("ttl_us", np.int64),
        ("num_queued", np.int64),
        ("num_offered", np.int64),
        ("num_flows_per_band", np.int64),
        ("last_shed", np.int64),  # by the last offer, NOWHERE if it shed none
        ("detector", np.int64),
        ("queue_threshold", np.float64),
        ("kv_threshold", np.float64),
        ("max_concurrency", np.float64),
    ],
    align=True,
)

BAND = np.dtype(
    [
        ("priority", np.int64),
        ("ceiling", np.float64),  # it is served while saturation is below this
        ("num_queued", np.int64),
        ("oldest", np.int64),
        ("newest", np.int64),
        ("next_flow", np.int64),  # whose turn it is
    ],
    align=True,
)

FLOW = np.dtype([("root", np.int64), ("next", np.int64), ("previous", np.int64)])

ENTRY = np.dtype(
    [
        ("is_queued", np.int64),
        ("flow", np.int64),
        ("band", np.int64),
        ("queued_us", np.int64),
        ("older", np.int64),
        ("newer", np.int64),
    ],
    align=True,
)


class GatewayQueue(NamedTuple):
    """The queue's whole state; compiled functions take it as one."""

    counts: Records  # QUEUE[1]
    bands: Records  # BAND[num_bands], highest priority first
    flows: Records  # FLOW[num_bands * num_flows_per_band]
    entries: Records  # ENTRY[num_requests]
    nodes: Records  # HEAP_NODE[num_requests]
    band_of: Int64s  # per request
    target_us: Int64s  # per request, from queueing to its deadline; FAR_FUTURE without one


ROWS_OF_QUEUE = ("entries", "nodes", "band_of", "target_us")
"""The arrays of ``GatewayQueue`` with a row per request."""


def new_queue(
    config: FlowControl,
    requests: RequestTable,
    *,
    num_tenants: int = 0,
    class_targets_us: Sequence[int] | None = None,
) -> GatewayQueue:
    """Return an empty queue for these requests; its bands are the priorities that occur among them.

    ``class_targets_us``: per request the target of its class, -1 without one; used where the request has no target of
    its own.
    """
    priorities = np.unique(requests.slo_priority)[::-1]
    num_flows = (
        num_tenants + 1 if config.fairness == "round-robin" else 1
    )  # the last: requests without a tenant
    targets = requests.slo_target_us.copy()
    if class_targets_us is not None:
        targets = np.where(targets < 0, np.asarray(class_targets_us, np.int64), targets)
    flows, entries = records(len(priorities) * num_flows, FLOW), records(len(targets), ENTRY)
    flows["root"] = flows["next"] = flows["previous"] = NOWHERE
    return GatewayQueue(
        counts=counts_of(config, num_flows),
        bands=bands_of(priorities, config.lowest_ceiling),
        flows=flows,
        entries=entries,
        nodes=records(len(targets), HEAP_NODE),
        band_of=np.searchsorted(-priorities, -requests.slo_priority).astype(np.int64),
        target_us=np.where(targets < 0, FAR_FUTURE, targets),
    )


def counts_of(config: FlowControl, num_flows_per_band: int) -> Records:
    """Return the settings as compiled code reads them."""
    counts = records(1, QUEUE)
    counts["order"] = ORDERS.index(config.order)
    counts["detector"] = DETECTORS[config.detector]
    counts["num_flows_per_band"] = num_flows_per_band
    counts["last_shed"] = NOWHERE
    for name in (
        "capacity",
        "band_capacity",
        "sheds",
        "ttl_us",
        "queue_threshold",
        "kv_threshold",
        "max_concurrency",
    ):
        counts[name] = getattr(config, name)
    return counts


def bands_of(priorities: Int64s, lowest_ceiling: float) -> Records:
    """Return the bands, the highest first, with their ceilings from 1 down to the lowest."""
    bands = records(len(priorities), BAND)
    bands["priority"] = priorities
    steps = max(1, len(priorities) - 1)
    bands["ceiling"] = [1.0 - i * (1.0 - lowest_ceiling) / steps for i in range(len(priorities))]
    bands["oldest"] = bands["newest"] = bands["next_flow"] = NOWHERE
    return bands


# -- in ----------------------------------------------------------------------------------------------------------


@phase
def offer(queue: GatewayQueue, requests: RequestTable, request: int, time_us: int) -> int:
    """Return whether a request was QUEUED, and if not, what is full; ``last_shed`` was dropped to make room for it."""
    counts, band_row = queue.counts[0], queue.bands[queue.band_of[request]]
    counts.last_shed = NOWHERE
    if counts.band_capacity > 0 and band_row.num_queued >= counts.band_capacity:
        return BAND_IS_FULL
    if counts.capacity > 0 and counts.num_queued >= counts.capacity:
        victim = least_wanted(queue, queue.band_of[request]) if counts.sheds else NOWHERE
        if victim == NOWHERE:
            return QUEUE_IS_FULL
        withdraw(queue, victim)
        counts.last_shed = victim
    enter(queue, requests, request, time_us)
    return QUEUED


@part
def least_wanted(queue: GatewayQueue, band: int) -> int:
    """Return the newest of the lowest sheddable band below ``band`` that holds any, NOWHERE without one."""
    for lower in range(len(queue.bands) - 1, band, -1):
        if queue.bands[lower].priority < 0 and queue.bands[lower].num_queued > 0:
            return queue.bands[lower].newest
    return NOWHERE


@phase
def enter(queue: GatewayQueue, requests: RequestTable, request: int, time_us: int) -> None:
    """Put a request into its band's list and its flow's heap."""
    counts, entry, band = queue.counts[0], queue.entries[request], queue.band_of[request]
    band_row = queue.bands[band]
    tenant = requests.tenant[request] if counts.num_flows_per_band > 1 else NOWHERE
    entry.flow = band * counts.num_flows_per_band + (
        tenant if tenant != NOWHERE else counts.num_flows_per_band - 1
    )
    entry.is_queued, entry.band, entry.queued_us = 1, band, time_us
    entry.older, entry.newer = band_row.newest, NOWHERE
    if band_row.newest != NOWHERE:
        queue.entries[band_row.newest].newer = request
    else:
        band_row.oldest = request
    band_row.newest = request
    band_row.num_queued += 1
    counts.num_queued += 1
    n = queue.nodes[request]
    n.key, n.sequence = 0, counts.num_offered
    counts.num_offered += 1
    if counts.order == BY_DEADLINE:
        n.key = min(queue.target_us[request], FAR_FUTURE - time_us) + time_us
    if queue.flows[entry.flow].root == NOWHERE:
        join_ring(queue, band_row, entry.flow)
    queue.flows[entry.flow].root = push(queue.nodes, queue.flows[entry.flow].root, request)


@part
def join_ring(queue: GatewayQueue, band_row: Records, flow: int) -> None:
    """Move a flow behind all others of its band."""
    if band_row.next_flow == NOWHERE:
        queue.flows[flow].next = queue.flows[flow].previous = flow
        band_row.next_flow = flow
        return
    last = queue.flows[band_row.next_flow].previous
    queue.flows[flow].next, queue.flows[flow].previous = band_row.next_flow, last
    queue.flows[last].next = flow
    queue.flows[band_row.next_flow].previous = flow


@part
def leave_ring(queue: GatewayQueue, band_row: Records, flow: int) -> None:
    """Take an empty flow out of its band's turns."""
    after, before = queue.flows[flow].next, queue.flows[flow].previous
    if after == flow:
        band_row.next_flow = NOWHERE
        return
    queue.flows[before].next = after
    queue.flows[after].previous = before
    if band_row.next_flow == flow:
        band_row.next_flow = after


# -- out ---------------------------------------------------------------------------------------------------------


@phase
def withdraw(queue: GatewayQueue, request: int) -> bool:
    """Remove a request from any position; return whether it was queued."""
    entry = queue.entries[request]
    if not entry.is_queued:
        return False
    band_row, flow = queue.bands[entry.band], queue.flows[entry.flow]
    flow.root = remove(queue.nodes, flow.root, request)
    if flow.root == NOWHERE:
        leave_ring(queue, band_row, entry.flow)
    if entry.older != NOWHERE:
        queue.entries[entry.older].newer = entry.newer
    else:
        band_row.oldest = entry.newer
    if entry.newer != NOWHERE:
        queue.entries[entry.newer].older = entry.older
    else:
        band_row.newest = entry.older
    band_row.num_queued -= 1
    queue.counts[0].num_queued -= 1
    entry.is_queued = 0
    return True


@phase
def take_next(queue: GatewayQueue, saturation: float) -> int:
    """Remove and return the next request that may go at this saturation; NOWHERE if none may."""
    band = next_band(queue, saturation)
    if band == NOWHERE:
        return NOWHERE
    band_row = queue.bands[band]
    flow = band_row.next_flow
    request = queue.flows[flow].root
    band_row.next_flow = queue.flows[flow].next
    withdraw(queue, request)
    return request


@part
def next_band(queue: GatewayQueue, saturation: float) -> int:
    """Return the band whose turn it is: by priority, or under fifo the one that has the earliest request."""
    chosen, earliest = NOWHERE, 0
    for band in range(len(queue.bands)):
        band_row = queue.bands[band]
        if band_row.num_queued == 0 or not saturation < band_row.ceiling:
            continue
        if queue.counts[0].order != FIFO:
            return band
        sequence = queue.nodes[band_row.oldest].sequence
        if chosen == NOWHERE or sequence < earliest:
            chosen, earliest = band, sequence
    return chosen


@phase
def fleet_saturation(queue: GatewayQueue, fleet: Fleet) -> float:
    """Return how full the fleet is, as the queue's detector sees it."""
    counts = queue.counts[0]
    return saturation_of(
        fleet, counts.detector, counts.queue_threshold, counts.kv_threshold, counts.max_concurrency
    )


# -- the same for callers in Python -------------------------------------------------------------------------


@engine_entry
def withdraw_request(queue: GatewayQueue, request: int) -> bool:
    """Call ``withdraw``."""
    return withdraw(queue, request)
