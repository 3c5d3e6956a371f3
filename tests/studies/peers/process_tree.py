"""The CPU time of a process and of all that it started, over time. Linux only."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

LOOK_EVERY_S = 0.1


class WatchedTree(threading.Thread):
    """Looks at a tree of processes until ``over`` is set.

    ``times_ns``, of CLOCK_MONOTONIC, and ``cpu_s``: user and system time of the tree at each look, what ended and
    was waited for included.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(name="process-tree", daemon=True)
        self.over = threading.Event()
        self.times_ns: list[int] = []
        self.cpu_s: list[float] = []
        self._pid = pid

    def run(self) -> None:
        """Look, until told that it is over."""
        while not self.over.is_set():
            self.times_ns.append(time.monotonic_ns())
            self.cpu_s.append(tree_cpu_s(self._pid))
            self.over.wait(LOOK_EVERY_S)

    def between(self, start_ns: float, end_ns: float) -> float:
        """Return the CPU seconds of the tree in this time."""
        first, last = np.interp((start_ns, end_ns), self.times_ns, np.maximum.accumulate(self.cpu_s))
        return float(last - first)


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants so far; 0 when it is gone."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        number = int(stat.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    family = {pid}
    while grown := {child for child, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(ticks.get(number, 0) for number in family) / os.sysconf("SC_CLK_TCK")
