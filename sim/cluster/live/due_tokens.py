"""What a live cluster tells its clients: tokens when they are due, and requests that left without all of them."""

from __future__ import annotations

import heapq

import numpy as np

from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.exits import Exit
from sim.cluster.live.rows import Rows
from sim.cluster.run.driving import Driver
from sim.cluster.run.prefill_to_decode import PREFILL
from sim.engine.state import columns
from sim.records.run_results import EngineRecord


class Answers:
    """Reads tokens from the engines' logs and keeps them until they are due; requests by their numbers."""

    def __init__(self, driver: Driver, rows: Rows, config: ClusterConfig) -> None:
        self._driver, self._rows = driver, rows
        self._num_logged = [columns(state.engine)["log_fill"]["num_logged_tokens"] for state in driver.states]
        self._pools = [config.pools[int(pool)] for pool in driver.world.pool_of]
        self._makes_prompts = [bool(role == PREFILL) for role in driver.world.roles]
        self._due: list[tuple[int, int, int]] = []  # (time, order of emission, request): heaps, both
        self._computed: list[tuple[int, int, int]] = []  # (time, request, instance)
        self._exits: list[tuple[int, Exit]] = []
        self._is_open = np.zeros(len(rows), bool)
        self._number_of: dict[int, int] = {}
        self._num_emitted = 0

    def expect(self, row: int, number: int) -> None:
        """Add a request that has just got a row."""
        if len(self._is_open) < len(self._rows):
            more = np.zeros(len(self._rows), bool)
            more[: len(self._is_open)] = self._is_open
            self._is_open = more
        self._is_open[row] = True
        self._number_of[row] = number

    def drop(self, row: int) -> None:
        """Remove a request; its tokens that are not due yet are not handed out."""
        self._is_open[row] = False
        number = self._number_of.pop(row, None)
        if number is not None:
            self._keep_until(number, -1)
            self._exits = [each for each in self._exits if each[0] != number]

    def hear(self) -> None:
        """Read what has happened: the tokens of steps, and the requests that have left."""
        for instance, num_logged in enumerate(self._num_logged):
            if num_logged[0]:
                self._take_tokens(instance)
        exits = columns(self._driver.world.journeys)["exit"]
        for row in np.flatnonzero((exits != 0) & self._is_open).tolist():
            self._is_open[row] = False
            way = Exit(int(exits[row]))
            if way != Exit.COMPLETED:
                number = self._number_of[row]
                self._keep_until(number, int(self._driver.world.journeys[row].left_us))
                self._exits.append((number, way))

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""
        found = []
        while self._due and self._due[0][0] <= now_us:
            time_us, _, number = heapq.heappop(self._due)
            found.append((number, time_us))
        return found

    def computed_prompts(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, instance) of the prompts that prefill instances have computed by now, each once."""
        found = []
        while self._computed and self._computed[0][0] <= now_us:
            _, number, instance = heapq.heappop(self._computed)
            found.append((number, instance))
        return found

    def exits(self) -> list[tuple[int, Exit]]:
        """Return the requests that have left without all their tokens, each once."""
        found, self._exits = self._exits, []
        return found

    def next_time_us(self) -> int | None:
        """Return when the next known item is due."""
        if self._exits:
            return 0
        return self._due[0][0] if self._due else None

    def _take_tokens(self, instance: int) -> None:
        """Take an engine's tokens out of its log; a prefill instance's tokens go to no client."""
        pool, state = self._pools[instance], self._driver.states[instance]
        written = EngineRecord(state=state, config=pool.engine, latency=pool.latency, record="tokens")
        makes_prompts = self._makes_prompts[instance]
        num_taken = np.zeros(len(self._rows), np.int64) if makes_prompts else self._rows.num_taken
        rows, times = written.tokens(num_taken)
        self._num_logged[instance][0] = 0
        if not makes_prompts:
            np.add.at(num_taken, rows, 1)
        for row, time_us in zip(rows.tolist(), times.tolist(), strict=True):
            number = self._number_of.get(row)
            if number is None:
                continue
            if makes_prompts:
                heapq.heappush(self._computed, (time_us, number, instance))
            else:
                heapq.heappush(self._due, (time_us, self._num_emitted, number))
                self._num_emitted += 1

    def _keep_until(self, number: int, time_us: int) -> None:
        """Take back a request's tokens of after ``time_us``."""
        self._due = [each for each in self._due if each[2] != number or each[0] <= time_us]
        heapq.heapify(self._due)
