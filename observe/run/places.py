"""Places of a client with a cap: of requests in flight, and of those in prefill, which have no first token yet."""

from __future__ import annotations

import asyncio

from observe.response.stream_reader import StreamReader
from observe.run.cuts import TokenWatch
from observe.run.sent_request import SentRequest
from observe.senders.exchange import Clock
from observe.senders.request_kinds import AsCompletion
from observe.settings import Limits


class CappedPlaces:
    """A request takes a place of each kind before it is sent.

    It has the one in prefill until its first token is there, the one in flight to its end; a request that fails before
    its first token, and is sent again, has both until then.
    """

    def __init__(self, limits: Limits, *, clock: Clock, as_completion: AsCompletion | None) -> None:
        self._clock = clock
        self._as_completion = as_completion
        self._in_flight = _places(limits.max_concurrency)
        self._in_prefill = _places(limits.prefill_concurrency)
        self._prefilling: set[int] = set()

    async def take(self, row: int, due_ns: int) -> int:
        """Wait until there is room; return when there was: the delay is the cap's, not the client's."""
        waited = False
        for places in (self._in_flight, self._in_prefill):
            if places is not None:
                waited |= places.locked()
                await places.acquire()
        if self._in_prefill is not None:
            self._prefilling.add(row)
        return max(self._clock(), due_ns) if waited else due_ns

    def watch(self, request: SentRequest) -> None:
        """Let the place in prefill go at the first token of the attempt that is about to be sent."""
        if request.row in self._prefilling:
            reader = StreamReader(as_completion=self._as_completion)
            request.exchange.watch = TokenWatch(1, lambda: self._leave_prefill(request.row), reader)

    def leave(self, row: int) -> None:
        """Let go what a request that has ended still has."""
        self._leave_prefill(row)
        if self._in_flight is not None:
            self._in_flight.release()

    def _leave_prefill(self, row: int) -> None:
        if self._in_prefill is not None and row in self._prefilling:
            self._prefilling.discard(row)
            self._in_prefill.release()


def _places(number: int | None) -> asyncio.Semaphore | None:
    return None if number is None else asyncio.Semaphore(number)
