"""Which request is evicted when the fleet is saturated and a request that may not be shed waits in the gateway.

It is the sheddable request in flight with the lowest priority; of several the one handed over last, which loses least.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.cluster.arrays import NOWHERE, Records, records
from sim.cluster.fleet import RequestTable
from sim.cluster.gateway.queue import GatewayQueue
from sim.cluster.heap import HEAP_NODE, pop, push, remove
from sim.jit.compile import phase
from sim.requests import Int64s

EVICTION_COUNTS = np.dtype([("root", np.int64), ("num_dispatched", np.int64)])


class SheddableInFlight(NamedTuple):
    """The sheddable requests in flight, the next to be evicted on top; compiled functions take it whole."""

    counts: Records  # EVICTION_COUNTS[1]
    nodes: Records  # HEAP_NODE[num_requests]
    is_in_flight: Int64s  # per request: 1 while it stands here


ROWS_OF_SHEDDABLE = ("nodes", "is_in_flight")
"""The arrays of ``SheddableInFlight`` with a row per request."""


def new_sheddable_in_flight(num_requests: int) -> SheddableInFlight:
    """Return the state of a gateway that has handed over nothing yet."""
    counts = records(1, EVICTION_COUNTS)
    counts["root"] = NOWHERE
    return SheddableInFlight(
        counts=counts,
        nodes=records(num_requests, HEAP_NODE),
        is_in_flight=np.zeros(num_requests, np.int64),
    )


@phase
def note_dispatched(sheddable: SheddableInFlight, requests: RequestTable, request: int) -> None:
    """Note that a request has been handed over; one that may not be shed is passed over."""
    counts = sheddable.counts[0]
    counts.num_dispatched += 1
    if requests.slo_priority[request] >= 0:
        return
    sheddable.nodes[request].key = requests.slo_priority[request]
    sheddable.nodes[request].sequence = -counts.num_dispatched
    counts.root = push(sheddable.nodes, counts.root, request)
    sheddable.is_in_flight[request] = 1


@phase
def note_departed(sheddable: SheddableInFlight, request: int) -> None:
    """Note that a request has left its instance other than by eviction."""
    if sheddable.is_in_flight[request]:
        sheddable.counts[0].root = remove(sheddable.nodes, sheddable.counts[0].root, request)
        sheddable.is_in_flight[request] = 0


@phase
def take_victim(sheddable: SheddableInFlight, queue: GatewayQueue, saturation: float) -> int:
    """Return the request to evict, no longer in flight here; NOWHERE if the fleet has room or no request needs it."""
    if saturation < 1.0 or sheddable.counts[0].root == NOWHERE or not protected_wait(queue):
        return NOWHERE
    victim = sheddable.counts[0].root
    sheddable.counts[0].root = pop(sheddable.nodes, victim)
    sheddable.is_in_flight[victim] = 0
    return victim


@phase
def protected_wait(queue: GatewayQueue) -> bool:
    """Return whether a request that may not be shed is queued."""
    for band in range(len(queue.bands)):  # noqa: SIM110 - numba compiles no generators
        if queue.bands[band].priority >= 0 and queue.bands[band].num_queued > 0:
            return True
    return False
