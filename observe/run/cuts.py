"""Answers that the workload cuts: the connection is closed after a time from sending, or after so many tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from observe.plan.send_plan import CutAfter
from observe.response.stream_reader import StreamReader
from observe.senders.exchange import Clock, Exchange, Sender
from observe.senders.request_kinds import AsCompletion

_SHORTEST_WAIT_S = 0.0005


async def send_until_cut(
    sender: Sender,
    exchange: Exchange,
    cut: CutAfter,
    *,
    clock: Clock,
    as_completion: AsCompletion | None = None,
) -> None:
    """Send as ``sender`` does; close the connection at the cut, unless the answer is whole before.

    The exchange's failure is then ``cancelled``.
    """
    reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if cut.tokens is not None:
        reader = StreamReader(as_completion=as_completion)
        exchange.watch = TokenWatch(
            cut.tokens, lambda: reached.set_result(None), reader, beside=exchange.watch
        )
    sending = asyncio.create_task(sender.send(exchange))
    try:
        await _until_cut(sending, reached, exchange, cut, clock=clock)
        if not sending.done():
            exchange.fail("cancelled", "")
    finally:
        exchange.watch = None
        if not sending.done():
            sending.cancel()
            await asyncio.wait([sending])
    if not sending.cancelled():
        sending.result()


async def _until_cut(
    sending: asyncio.Task[None],
    reached: asyncio.Future[None],
    exchange: Exchange,
    cut: CutAfter,
    *,
    clock: Clock,
) -> None:
    """Return when the answer has ended, or is to be cut."""
    while not sending.done() and not reached.done():
        wait_s = None
        if cut.time_us is not None:
            after_ns = cut.time_us * 1000
            sent_ns = exchange.dispatched_ns
            left_ns = after_ns if sent_ns is None else sent_ns + after_ns - clock()
            if left_ns <= 0:
                return
            wait_s = max(left_ns / 1e9, _SHORTEST_WAIT_S)
        await asyncio.wait([sending, reached], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)


class TokenWatch:
    """Reads an answer as it comes, and calls ``reached`` once, when so many tokens of it are there.

    ``beside``: another watch of the same answer.
    """

    def __init__(
        self,
        tokens: int,
        reached: Callable[[], None],
        reader: StreamReader,
        *,
        beside: Callable[[bytes, int], None] | None = None,
    ) -> None:
        self._tokens = tokens
        self._reached = reached
        self._reader: StreamReader | None = reader
        self._beside = beside

    def __call__(self, blob: bytes, stamp: int) -> None:
        """Take the bytes of one read."""
        if self._beside is not None:
            self._beside(blob, stamp)
        if self._reader is None:
            return
        self._reader.take(blob, stamp)
        if self._reader.num_tokens_so_far >= self._tokens:
            self._reader = None
            self._reached()
