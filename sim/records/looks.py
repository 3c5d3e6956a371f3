"""Looks at engines while they run, at even distances, the last at the end of the run."""

from __future__ import annotations

from lazy_dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.engine.state import State, records
from sim.engine.watching.watched_run import GRID, LOOK
from sim.requests import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """T looks at one engine. ``time_us`` [T] ascends; ``rows`` [T] has the fields of ``LOOK``."""

    time_us: Int64s
    rows: NDArray[Any]


class LooksTaken:
    """The looks that ``run_watched`` takes of one run: ``points`` to twice as many, however long it is."""

    def __init__(self, *, points: int, last_arrival_us: int) -> None:
        """Choose the first distance so that a run that ends with its last arrival gets ``points`` looks."""
        self.rows, self.grid = records(2 * points, LOOK), records(1, GRID)
        self.grid["distance_us"] = max(1, -(-last_arrival_us // points))

    def finished(self, state: State, *, end_us: int) -> Looks:
        """Return them with one at the end; ``state``: of the engine then."""
        distance_us, num = int(self.grid["distance_us"][0]), int(self.grid["num"][0])
        time_us = times_before(end_us, num=num, distance_us=distance_us)
        rows = np.concatenate([np.ndarray.view(self.rows, np.ndarray)[: len(time_us)], [last_look(state)]])
        return Looks(time_us=np.append(time_us, end_us), rows=rows)


def times_before(end_us: int, *, num: int, distance_us: int) -> Int64s:
    """Return the times of those of ``num`` looks that come before the end of a run, but for one just before it."""
    time_us = (np.arange(num, dtype=np.int64) + 1) * distance_us
    return time_us[time_us < end_us - distance_us // 2]


def last_look(state: State) -> NDArray[Any]:
    """Return the look at an engine that has come to its end, LOOK []."""
    queues, look = state.engine[0].queues, np.zeros((), LOOK)
    look["num_waiting"], look["num_running"] = queues.num_waiting, queues.num_running
    look["num_free_blocks"], look["busy_us"] = queues.num_free_blocks, state.engine[0].totals.busy_us
    return look
