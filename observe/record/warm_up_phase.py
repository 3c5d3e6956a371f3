"""Which requests of a run belong to its warm-up: those that it records, and those that a workload marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from observe.settings import WarmUp
from traces import is_warmup

if TYPE_CHECKING:
    from traces import Trace


class WarmUpPhase:
    """Determines the phase of each request: the first ones due, by number or by time, warm the server up.

    So do those that the workload marks, as sessions that begin midway have them (``--warm-start``).
    """

    def __init__(self, warmup: WarmUp, planned: Trace) -> None:
        self._marked = is_warmup(planned)
        self._is_told = warmup.is_recorded or bool(self._marked.any())
        self._until_ns = round(warmup.seconds * 1e9)
        self._rows = _first_due(planned, warmup.num_requests) if warmup.is_recorded else frozenset()
        if not warmup.is_recorded:
            self._until_ns = 0

    def of(self, row: int, *, due_ns: int) -> Literal["warmup", "main"] | None:
        """Return the phase of ``row``, due ``due_ns`` after the run's start; None where no warm-up is recorded."""
        if not self._is_told:
            return None
        warms = self._marked[row] or due_ns < self._until_ns or row in self._rows
        return "warmup" if warms else "main"


def _first_due(trace: Trace, number: int) -> frozenset[int]:
    """Return the rows that are due first, those that wait for an answer last."""
    due = trace.column("arrival_time_us").to_numpy(dtype=np.float64, na_value=np.inf)
    return frozenset(np.argsort(due, kind="stable")[:number].tolist())
