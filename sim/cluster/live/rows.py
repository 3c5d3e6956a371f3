"""The rows of a live cluster's tables: which request has which, which are free again, and how tables grow.

A request has a row in some twenty arrays, which are named beside the tuples that they belong to. Rows are given in
ascending order, span after span: a span is a run of free rows, and if none is long enough, all arrays are doubled. The
ids of requests' blocks lie one behind another; when their space is used up, those still needed are moved together. So
memory follows the number of requests in flight at a time, not the number there ever were.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cluster.fleet import ROWS_OF_TABLE
from sim.cluster.gateway.eviction import ROWS_OF_SHEDDABLE
from sim.cluster.gateway.queue import ROWS_OF_QUEUE
from sim.cluster.routing.router_state import Router
from sim.cluster.run.changes.work_left import rows_of_events
from sim.cluster.run.driving import Driver
from sim.cluster.run.world import NEVER, ROWS_OF_WORLD, World
from sim.cluster.transfer.kv_links import ROWS_OF_LINKS
from sim.engine import dtypes as dt
from sim.engine.beginning.longer_arrays import longer
from sim.engine.state import PER_REQUEST, State, columns, disown_blocks
from sim.jit.references import point_to
from sim.requests import Int64s

LEAST_SPAN_FRAC = 1 / 4
"""The share of all rows below which a run of free ones is too short: the arrays grow instead."""


class Rows:
    """Gives rows to requests, and takes them back. ``num_taken``: tokens of each row that were handed out."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._num = len(driver.world.rows)
        self._next, self._end = 0, self._num
        self._last, self._next_id = NEVER, 0
        self.is_given = np.zeros(self._num, bool)
        self.is_known = np.zeros(self._num, bool)
        self.num_taken = np.zeros(self._num, np.int64)
        self._templates = {
            name: columns(array)[-1:].copy() for name, array in self._arrays().items()
        }  # of rows that no request has had

    def __len__(self) -> int:
        """Return how many there are."""
        return self._num

    def give(self, hash_ids: Int64s) -> int:
        """Return a row for a request, where the ids of its blocks have been written."""
        if self._next >= self._end:
            self._find_span()
        row = self._next
        self._next += 1
        world = self._driver.world
        if self._next_id + len(hash_ids) > len(world.requests.hash_ids):
            self._make_room_for_ids(len(hash_ids))
            world = self._driver.world
        first, end = self._next_id, self._next_id + len(hash_ids)
        if len(hash_ids):
            world.requests.hash_ids[first:end] = hash_ids
            self._driver.states[0].hash_ids[first:end] = hash_ids
        world.requests.hash_starts[row], world.requests.num_hashes[row] = first, len(hash_ids)
        self._next_id = end
        self.is_given[row] = self.is_known[row] = True
        self._last = row
        return row

    # -- which rows can be given ------------------------------------------------------------------------------

    def _find_span(self) -> None:
        """Find the longest run of free rows, or add rows; reset them to their initial state."""
        needed = self._needed()
        bounds = np.flatnonzero(np.diff(np.concatenate([[True], needed, [True]])))
        firsts, ends = bounds[::2], bounds[1::2]
        # a row's ids begin where those of the row before it end: between two requests' rows one stays free
        firsts = firsts + (firsts > 0)
        ends = ends - (ends < self._num)
        longest = int(np.argmax(ends - firsts)) if len(firsts) else 0
        if len(firsts) == 0 or ends[longest] - firsts[longest] < LEAST_SPAN_FRAC * self._num:
            self._next = self._num + 1
            self._grow()
            self._end = self._num
            return
        self._next, self._end = int(firsts[longest]), int(ends[longest])
        span = slice(self._next, self._end)
        self.is_given[span] = self.is_known[span] = False
        self.num_taken[span] = 0
        for name, array in self._arrays().items():
            columns(array)[span] = self._templates[name]
        for state in self._driver.states:
            disown_blocks(state, span)

    def _needed(self) -> NDArray[np.bool_]:
        """Return which rows may still be read."""
        world = self._driver.world
        needed = self.is_known | self._is_under_way()
        for rows in (rows_of_events(world), *(_held_by(state) for state in self._driver.states)):
            needed[rows] = True
        flows = columns(world.links.flows)
        if len(flows) == len(needed):
            needed |= (flows["started_us"] != NEVER) & (flows["ended_us"] == NEVER)
        return needed

    def _is_under_way(self) -> NDArray[np.bool_]:
        """Return which rows have a request that has not left."""
        return np.asarray(self.is_given & (columns(self._driver.world.journeys)["exit"] == 0))

    # -- more rows --------------------------------------------------------------------------------------------

    def _arrays(self) -> dict[str, Any]:
        """Return the arrays with a row per request by name, those that are in use, each once."""
        world, states = self._driver.world, self._driver.states
        found: dict[str, Any] = {}
        for part, names, of in (
            ("world", ROWS_OF_WORLD, world),
            ("table", ROWS_OF_TABLE, world.requests),
            ("queue", ROWS_OF_QUEUE, world.queue),
            ("sheddable", ROWS_OF_SHEDDABLE, world.sheddable),
            ("links", ROWS_OF_LINKS, world.links),
            *((f"state {number}", tuple(PER_REQUEST), state) for number, state in enumerate(states)),
        ):
            found |= {f"{part} {name}": getattr(of, name) for name in names}
        first_name: dict[int, str] = {}
        for name, array in found.items():
            if len(array) == self._num:
                first_name.setdefault(id(array), name)
        return {name: found[name] for name in first_name.values()}

    def _grow(self) -> None:
        """Double the rows."""
        before, self._num = self._num, 2 * self._num
        made: dict[int, Any] = {}
        for name, array in self._arrays_before(before).items():
            more = longer(array, self._num)
            columns(more)[before:] = self._templates[name]
            made[id(array)] = more

        def of(parts: Any, names: tuple[str, ...]) -> Any:  # noqa: ANN401 - any tuple of arrays
            arrays = {name: getattr(parts, name) for name in names}
            return parts._replace(
                **{name: made[id(each)] for name, each in arrays.items() if id(each) in made}
            )

        for number, state in enumerate(self._driver.states):
            more_state: State = of(state, tuple(PER_REQUEST))
            if len(state.skipped) == before:
                more_state = more_state._replace(skipped=self._scratch(state.skipped, made))
            more_state.engine.queues["num_requests"] = self._num
            self._driver.states[number] = more_state
            point_to(self._driver.world.engines, number, more_state)
        world: World = of(self._driver.world, ROWS_OF_WORLD)
        world.loop["num_requests"] = self._num
        self._driver.replace(
            world._replace(
                delays_us=_wider(world.delays_us, self._num),
                entries=_wider(world.entries, self._num),
                requests=of(world.requests, ROWS_OF_TABLE),
                queue=of(world.queue, ROWS_OF_QUEUE),
                sheddable=of(world.sheddable, ROWS_OF_SHEDDABLE),
                links=of(world.links, ROWS_OF_LINKS),
            )
        )
        for name in ("is_given", "is_known", "num_taken"):
            setattr(self, name, longer(getattr(self, name), self._num))

    def _arrays_before(self, num: int) -> dict[str, Any]:
        """Return ``_arrays`` as they were with ``num`` rows."""
        now, self._num = self._num, num
        arrays = self._arrays()
        self._num = now
        return arrays

    def _scratch(self, array: Int64s, made: dict[int, Any]) -> Int64s:
        """Return scratch with room for all rows, the same for all engines that share it."""
        if id(array) not in made:
            made[id(array)] = longer(array, self._num)
        scratch: Int64s = made[id(array)]
        return scratch

    # -- ids of blocks ----------------------------------------------------------------------------------------

    def _make_room_for_ids(self, num_more: int) -> None:
        """Move together the ids that are still needed: those of requests, and those that routers' trees point to."""
        world, states = self._driver.world, self._driver.states
        rows = np.flatnonzero(self._is_under_way())
        rows = np.concatenate([rows[rows > self._last], rows[rows <= self._last]])  # the newest at the end
        places, lengths = [], []
        routers = (world.router, world.prefill_router)
        nodes = [_nodes_of(router) for router in routers]
        for router, used in zip(routers, nodes, strict=True):
            tree = columns(router.tree.nodes)
            places.append(tree["start"][used])
            lengths.append(tree["length"][used])
        places.append(world.requests.hash_starts[rows])
        lengths.append(world.requests.num_hashes[rows])
        starts, counts = np.concatenate(places), np.concatenate(lengths)
        ends = np.cumsum(counts)
        num_kept = int(ends[-1]) if len(ends) else 0
        length = max(len(world.requests.hash_ids), 2 * (num_kept + num_more))
        kept = np.zeros(length, np.int64)
        kept[:num_kept] = world.requests.hash_ids[
            np.arange(num_kept) + np.repeat(starts - ends + counts, counts)
        ]
        moved = ends - counts
        for router, used in zip(routers, nodes, strict=True):
            columns(router.tree.nodes)["start"][used] = moved[: len(used)]
            moved, ends = moved[len(used) :], ends[len(used) :]
        world.requests.hash_starts[rows] = moved
        own_ids = kept.astype(np.int32)
        for requests in {id(state.requests): state.requests for state in states}.values():
            columns(requests)["hash_start"][rows] = moved
        for number, state in enumerate(states):
            states[number] = state._replace(hash_ids=own_ids)
            point_to(world.engines, number, states[number])
        self._next_id = num_kept
        self._driver.replace(world._replace(requests=world.requests._replace(hash_ids=kept)))


def _nodes_of(router: Router) -> Int64s:
    """Return the nodes of a router's tree that point to ids; a node without senders is in no tree."""
    num_used = int(router.tree.counts["num_used"][0])
    is_used = router.tree.senders.holders[:num_used].any(axis=1)
    return np.flatnonzero(is_used)


def _held_by(state: State) -> Int64s:
    """Return the rows that an engine may still read besides those of requests in flight."""
    engine = columns(state.engine)[0]
    rows = [np.flatnonzero(columns(state.requests)["slot"] != dt.NEVER)]
    if engine["clock"]["num_batches"] > 0:
        rows.append(columns(state.entries)["request"].ravel())
    if engine["kv_transfers"]["num_applied"] < engine["kv_transfers"]["num_delivered"]:
        rows.append(columns(state.kv_events)["request"])
    pending, request = [], int(engine["queues"]["first_pending"])
    while request != dt.NEVER:
        pending.append(request)
        request = int(columns(state.requests)["next_waiting"][request])
    rows.append(np.array(pending, np.int64))
    return np.concatenate(rows).astype(np.int64)


def _wider(array: Int64s, length: int) -> Int64s:
    """Return a copy of a table with zeros behind each row."""
    more = np.zeros((len(array), length), array.dtype)
    more[:, : array.shape[1]] = array
    return more
