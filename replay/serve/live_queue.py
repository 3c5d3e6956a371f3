"""A gateway's queue for requests not known beforehand: the compiled one of ``sim.cluster.gateway``, growing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sim.cluster.arrays import NOWHERE, grown
from sim.cluster.gateway.eviction import depart, dispatch, evict_for, new_sheddable_in_flight
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.gateway.queue import (
    FAR_FUTURE,
    FLOW,
    QUEUED,
    bands_of,
    new_queue,
    offer_request,
    saturation_seen,
    take_request,
    withdraw_request,
)
from sim.cluster.gateway.saturation import CONCURRENCY
from sim.cluster.run.prepare import empty_table
from sim.cluster.slo import SLO_PRIORITIES

if TYPE_CHECKING:
    from replay.serve.live_router import LiveRouter
    from sim.cluster.config import ClusterConfig


class LiveQueue:
    """Holds the requests that ``router`` has admitted, by their numbers.

    It has a band for each priority that a class may have, since nobody knows which will come. A request costs 120 bytes
    for good.
    """

    def __init__(self, cluster: ClusterConfig, flow: FlowControl, router: LiveRouter) -> None:
        self._router = router
        self._num_instances = cluster.num_instances
        known = {**SLO_PRIORITIES, **cluster.slo_priorities}
        priorities = np.array(sorted(set(known.values()), reverse=True), np.int64)
        queue = new_queue(flow, empty_table(), num_tenants=router.num_tenants)
        num_flows = int(queue.counts[0].num_flows_per_band)
        flows = grown(queue.flows, len(priorities) * num_flows)
        for name in FLOW.names or ():
            flows[name] = NOWHERE
        self._queue = queue._replace(bands=bands_of(priorities, flow.lowest_ceiling), flows=flows)
        self._sheddable = new_sheddable_in_flight(0)
        self._priorities = priorities
        self.num_in_transit = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return int(self._queue.counts[0].num_queued)

    def offer(self, number: int, time_us: int) -> tuple[bool, int | None]:
        """Return whether request ``number`` found a place, and who lost his for it."""
        table = self._router.table
        if number >= len(self._queue.entries):
            self._make_room(len(table.prompt_tokens))
        self._queue.band_of[number] = np.searchsorted(-self._priorities, -table.slo_priority[number])
        target_us = int(table.slo_target_us[number])
        self._queue.target_us[number] = FAR_FUTURE if target_us < 0 else target_us
        is_queued = offer_request(self._queue, table, number, time_us) == QUEUED
        shed = int(self._queue.counts[0].last_shed)
        return is_queued, None if shed == NOWHERE else shed

    def withdraw(self, number: int) -> bool:
        """Take a request out; return whether it stood there."""
        return number < len(self._queue.entries) and bool(withdraw_request(self._queue, number))

    def take_next(self) -> int | None:
        """Take out the request that goes next while the fleet is as full as it is; None if none may."""
        number = int(take_request(self._queue, self._saturation()))
        return None if number == NOWHERE else number

    def take_victim(self) -> int | None:
        """Return the request in flight whose seat is needed; None if there is none."""
        victim = int(evict_for(self._sheddable, self._queue, self._saturation()))
        return None if victim == NOWHERE else victim

    def note_dispatched(self, number: int) -> None:
        """Note that a request is on its instance."""
        dispatch(self._sheddable, self._router.table, number)

    def note_departed(self, number: int) -> None:
        """Note that a request has left its instance; for one that was evicted nothing changes."""
        depart(self._sheddable, number)

    def _saturation(self) -> float:
        """Return how full the fleet is; what is on its way to an instance counts as being there."""
        counts = self._queue.counts[0]
        saturation = float(saturation_seen(self._queue, self._router.fleet))
        if counts.detector == CONCURRENCY:
            saturation += self.num_in_transit / (counts.max_concurrency * self._num_instances)
        return saturation

    def _make_room(self, num_rows: int) -> None:
        queue, sheddable = self._queue, self._sheddable
        self._queue = queue._replace(
            entries=grown(queue.entries, num_rows),
            nodes=grown(queue.nodes, num_rows),
            band_of=_longer(queue.band_of, num_rows),
            target_us=_longer(queue.target_us, num_rows),
        )
        self._sheddable = sheddable._replace(
            nodes=grown(sheddable.nodes, num_rows),
            is_in_flight=_longer(sheddable.is_in_flight, num_rows),
        )


def _longer(column: np.ndarray, num_rows: int) -> np.ndarray:
    return np.concatenate([column, np.zeros(num_rows - len(column), column.dtype)])
