"""The simulated engine kept in step with a clock that somebody else reads."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

from sim import View
from sim.requests import Int64s


class SimulatedEngine(Protocol):
    """What is needed of sim.Engine."""

    def submit(
        self,
        *,
        arrival_us: int,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
        is_guided: bool = False,
    ) -> int:
        """Add a request, return its number."""

    def advance(self, until_us: int) -> None:
        """Take every step that starts before ``until_us``."""

    def take_tokens(self) -> tuple[Int64s, Int64s]:
        """Return (request, time_us) of the tokens since the last call."""

    def next_time_us(self) -> int | None:
        """Return when something next happens."""

    def abort(self, request: int) -> None:
        """Drop a request."""

    def view(self) -> View:
        """Return the engine's state."""


class RealtimeEngine:
    """Hands out each token when its time has come, and says when to look again.

    The engine decides a step when the clock reaches the step's start, and knows then when its tokens are due;
    they wait here until then. All times are µs of the caller's clock, which must not go back.
    """

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._now_us = 0
        self._due: list[tuple[int, int, int]] = []  # (time, order of emission, request): a heap
        self._num_emitted = 0

    def submit(
        self,
        now_us: int,
        *,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
        is_guided: bool = False,
    ) -> tuple[int, int]:
        """Give the engine a request that arrives now; return its number and the arrival it was given.

        Steps that start at this very microsecond have been taken, so it arrives in the next one.
        """
        self._advance(now_us)
        arrival_us = self._now_us + 1
        number = self._engine.submit(
            arrival_us=arrival_us,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=priority,
            hash_ids=hash_ids,
            is_guided=is_guided,
        )
        return number, arrival_us

    def abort(self, now_us: int, request: int) -> None:
        """Drop a request; tokens of it that are on their way are not handed out any more."""
        self._advance(now_us)
        self._engine.abort(request)
        self._due = [token for token in self._due if token[2] != request]
        heapq.heapify(self._due)

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""
        self._advance(now_us)
        out = []
        while self._due and self._due[0][0] <= self._now_us:
            time_us, _, request = heapq.heappop(self._due)
            out.append((request, time_us))
        return out

    def view(self, now_us: int) -> View:
        """Return the engine's state now."""
        self._advance(now_us)
        return self._engine.view()

    def next_time_us(self) -> int | None:
        """Return when ``tokens`` should be called next, None when nothing is under way."""
        times = [self._due[0][0]] if self._due else []
        step_us = self._engine.next_time_us()
        return min([*times, step_us] if step_us is not None else times, default=None)

    def _advance(self, now_us: int) -> None:
        self._now_us = max(self._now_us, now_us)
        self._engine.advance(self._now_us + 1)
        requests, times = self._engine.take_tokens()
        for request, time_us in zip(requests.tolist(), times.tolist(), strict=True):
            heapq.heappush(self._due, (time_us, self._num_emitted, request))
            self._num_emitted += 1
