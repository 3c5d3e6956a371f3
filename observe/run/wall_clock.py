"""The wall clock beside the run's own: a step of it moves no time of the trace, and is noted."""

from __future__ import annotations

import time

from observe.senders.exchange import Clock, monotonic_ns

_MOST_SLEW = 500e-6
"""A clock that is corrected bit by bit runs fast or slow by this share at most (adjtimex(2))."""

_LEAST_STEP_NS = 20_000_000
"""A smaller step is not reported: two clocks are read one after the other, on a busy machine."""


class WallClock:
    """Remembers both clocks at the run's start."""

    def __init__(self, *, wall: Clock = time.time_ns, clock: Clock = monotonic_ns) -> None:
        self._wall, self._clock = wall, clock
        self._wall_ns, self._clock_ns = wall(), clock()

    def notes(self) -> tuple[str, ...]:
        """Return a line where the wall clock was set since; empty where it was not, or only corrected bit by bit."""
        passed_ns = self._clock() - self._clock_ns
        step_ns = self._wall() - self._wall_ns - passed_ns
        if abs(step_ns) <= _LEAST_STEP_NS + _MOST_SLEW * passed_ns:
            return ()
        return (
            f"the machine's clock was set by {step_ns / 1e9:+,.3f} s during the run: the trace's times count by "
            "CLOCK_MONOTONIC and are right, start_unix_us is by the clock before",
        )
