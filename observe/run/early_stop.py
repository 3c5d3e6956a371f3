"""Early stop: a server that mostly fails is not worth the rest of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

_WINDOW = 50
_ENOUGH = 20
"""Outcomes considered, and how many there must be: 20 at a bound of 10 % are three failures."""


class ErrorRateStop:
    """Calls ``stop`` with the reason once more than ``most_frac`` of the last outcomes are failures."""

    def __init__(self, most_frac: float, stop: Callable[[str], None]) -> None:
        self._most_frac = most_frac
        self._stop = stop
        self._failed: deque[bool] = deque(maxlen=_WINDOW)
        self._pulled = False

    def note(self, ok: bool) -> None:
        """Take the outcome of a request."""
        if self._pulled:
            return
        self._failed.append(not ok)
        number, failed = len(self._failed), sum(self._failed)
        if number >= _ENOUGH and failed > self._most_frac * number:
            self._pulled = True
            self._stop(f"stopped early: {failed} of the last {number} requests failed (--max-error-rate)")
