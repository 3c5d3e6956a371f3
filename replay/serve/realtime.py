"""A simulated engine kept in step with a clock that its caller reads."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sim import Engine, Outcomes, View

if TYPE_CHECKING:
    from sim.cluster import Exit


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSender:
    """What a request's headers say of its sender; empty where they do not."""

    session: str = ""
    slo_class: str = ""
    tenant: str = ""


NOBODY = RequestSender()


class Realtime(Protocol):
    """What serves requests in real time: one engine, or a fleet behind a router.

    Requests have numbers from 0; all times are µs of the caller's clock, which must not go back.
    """

    def submit(
        self,
        now_us: int,
        *,
        prompt_tokens: int,
        output_tokens: int,
        priority: int = 0,
        hash_ids: Sequence[int] = (),
        is_guided: bool = False,
        client: RequestSender = NOBODY,
    ) -> tuple[int, int]:
        """Take a request that arrives now; return its number and the arrival it was given."""

    def abort(self, now_us: int, request: int) -> None:
        """Drop a request."""

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""

    def views(self, now_us: int) -> Sequence[View | None]:
        """Return each engine's state now, None of one that is not there."""

    def states(self) -> list[str]:
        """Return what each instance of a fleet is (``INSTANCE_STATES``); empty for a single engine."""

    def next_time_us(self) -> int | None:
        """Return when ``tokens`` should be called next, None when nothing is under way."""

    def outcome(self, request: int) -> Outcomes:
        """Return what became of a request so far, one row."""

    def exits(self) -> list[tuple[int, Exit]]:
        """Return the requests that have left without an answer, and by which way, once each."""

    def computed_prompts(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, engine) of prompts that were computed for another engine to answer, once each."""

    def instance_of(self, request: int) -> int | None:
        """Return the number of the engine that answers a request; None while it has none."""

    def forget(self, request: int) -> None:
        """Free a request's row: nothing asks about it any more."""

    def is_cached(self, hash_id: int) -> bool:
        """Return whether a prefix cache has this content."""


class RealtimeEngine:
    """Hands out each token when its time has come, and says when to look again.

    The engine decides a step when the clock reaches the step's start, and knows then when its tokens are due;
    they wait here until then. All times are µs of the caller's clock, which must not go back.
    """

    def __init__(self, engine: Engine) -> None:
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
        client: RequestSender = NOBODY,  # noqa: ARG002 - one engine has no choice
    ) -> tuple[int, int]:
        """Give the engine a request that arrives now; return its number and the arrival it was given.

        Steps that start at this very microsecond have been taken, so it arrives in the next one.
        """
        self.advance(now_us)
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
        self.advance(now_us)
        self._engine.abort(request)
        self._due = [token for token in self._due if token[2] != request]
        heapq.heapify(self._due)
        self.forget(request)

    def tokens(self, now_us: int) -> list[tuple[int, int]]:
        """Return (request, time_us) of the tokens whose time has come, in order of time."""
        self.advance(now_us)
        out = []
        while self._due and self._due[0][0] <= self._now_us:
            time_us, _, request = heapq.heappop(self._due)
            out.append((request, time_us))
        return out

    def views(self, now_us: int) -> list[View]:
        """Return the engine's state now, in a list of one."""
        self.advance(now_us)
        return [self._engine.view()]

    def outcome(self, request: int) -> Outcomes:
        """Return what became of a request so far, one row."""
        return self._engine.outcomes(slice(request, request + 1))

    def exits(self) -> list[tuple[int, Exit]]:
        """Return none: an engine answers every request that it has taken."""
        return []

    def computed_prompts(self, now_us: int) -> list[tuple[int, int]]:  # noqa: ARG002 - there is no other engine
        """Return none: an engine alone computes prompts for itself."""
        return []

    def states(self) -> list[str]:
        """Return nothing: an engine alone is there."""
        return []

    def instance_of(self, request: int) -> int:  # noqa: ARG002 - there is one
        """Return 0."""
        return 0

    def forget(self, request: int) -> None:
        """Free the request's row for another request."""
        self._engine.forget(request)

    def is_cached(self, hash_id: int) -> bool:
        """Return whether the engine's prefix cache has this content."""
        return self._engine.num_cached_blocks([hash_id]) == 1

    def next_time_us(self) -> int | None:
        """Return when ``tokens`` should be called next, None when nothing is under way."""
        times = [self._due[0][0]] if self._due else []
        step_us = self._engine.next_time_us()
        return min([*times, step_us] if step_us is not None else times, default=None)

    def advance(self, now_us: int) -> None:
        """Take every step that starts by now; their tokens wait for their time."""
        self._now_us = max(self._now_us, now_us)
        self._engine.advance(self._now_us + 1)
        requests, times = self._engine.take_tokens()
        for request, time_us in zip(requests.tolist(), times.tolist(), strict=True):
            heapq.heappush(self._due, (time_us, self._num_emitted, request))
            self._num_emitted += 1
