"""A cluster over time: its instances' states at evenly spaced times, however long the run turns out to be."""

from __future__ import annotations

from lazy_dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.state import State
from sim.engine.watching.watched_run import LOOK
from sim.records.looks import last_look, times_before
from sim.requests import Int64s

LEAST_INTERVAL_US = 1000
"""The smallest first gap between looks at a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOverTime:
    """T looks at n instances, the last at the end of the run; all int64.

    ``time_us`` [T] ascends. [T, n]: ``num_waiting``, ``num_running``, ``num_free_blocks`` (of the KV cache), and
    ``busy_us``, the time of its steps since the beginning. ``num_blocks`` [n]: usable KV blocks; 0: unbounded.
    """

    time_us: Int64s
    num_waiting: NDArray[np.int64]
    num_running: NDArray[np.int64]
    num_free_blocks: NDArray[np.int64]
    busy_us: NDArray[np.int64]
    num_blocks: Int64s

    def thinned(self, points: int) -> FleetOverTime:
        """Return ``points`` to twice as many looks, at even distances but for the last; all where there are fewer."""
        num = len(self.time_us) - 1
        step = max(1, num // points)
        kept = np.arange(step - 1, num, step)
        if step > 1 and self.time_us[-1] - self.time_us[kept[-1]] < self.time_us[kept[0]] / 2:
            kept = kept[:-1]
        kept = np.append(kept, num)
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: each[kept] for name, each in columns.items() if name != "num_blocks"})


class Watch:
    """Keeps between ``points`` and twice as many looks: when it is full, every second one goes, and the gap doubles.

    So memory is bounded, and the number of looks grows with the logarithm of the run's length.
    """

    def __init__(self, *, points: int, num_instances: int, last_arrival_us: int) -> None:
        """Choose the first gap so that a run that ends with its last arrival gets ``points`` looks."""
        self._interval_us = max(LEAST_INTERVAL_US, -(-last_arrival_us // points))
        self._rows = np.zeros((2 * points, num_instances), LOOK)
        self._num = 0
        self.seen: Any = np.zeros(num_instances, LOOK).view(np.recarray)

    @property
    def next_us(self) -> int:
        """When to look next."""
        return (self._num + 1) * self._interval_us

    def take(self) -> None:
        """Keep what was seen at ``next_us``."""
        self._rows[self._num] = self.seen
        self._num += 1
        if self._num == len(self._rows):
            kept = self._rows[1::2].copy()
            self._rows[: len(kept)] = kept
            self._num = len(kept)
            self._interval_us *= 2

    def finished(self, states: list[State], *, end_us: int, num_blocks: Int64s) -> FleetOverTime:
        """Return the looks before the end, except one just before it, and one at it; ``states``: the engines then."""
        times = times_before(end_us, num=self._num, distance_us=self._interval_us)
        last = np.array([last_look(state) for state in states], LOOK)
        rows = np.concatenate([self._rows[: len(times)], last[None, :]])
        return FleetOverTime(
            time_us=np.append(times, end_us),
            num_blocks=num_blocks,
            **{name: rows[name].copy() for name in LOOK.names or ()},
        )
