"""One attempt at a request on the wire, stamped as it goes, and the interface of the senders."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

Clock = Callable[[], int]
"""Nanoseconds of a monotonic clock, the same one for every stamp of a run."""

FailureStatus = Literal["error", "timeout", "aborted"]

monotonic_ns: Clock = time.monotonic_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request has no answer: TraceV2's status, and one line that says what happened."""

    status: FailureStatus
    message: str


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """One attempt at one request: what goes over the wire, and the stamps of what came back.

    Stamps are ns of the run's clock, None until it happens. ``blobs`` and ``stamps`` pair up: the bytes of one read
    and when they arrived; nothing is parsed before the end. ``ready_ns``: when the attempt was free to go.
    A failure keeps what came before it.
    """

    x_request_id: str
    ready_ns: int = 0
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    dispatched_ns: int | None = None
    connection_wait_ns: int = 0
    first_byte_ns: int | None = None
    http_status: int | None = None
    retry_after_s: float | None = None
    stamps: list[int] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    failure: Failure | None = None

    def fail(self, status: FailureStatus, message: str) -> None:
        """Record why the request has no answer; the first reason stands."""
        if self.failure is None:
            self.failure = Failure(status=status, message=one_line(message))

    def last_activity_ns(self) -> int:
        """Return when the exchange last moved: a read, the first byte, the dispatch, or its start."""
        if self.stamps:
            return self.stamps[-1]
        return self.first_byte_ns or self.dispatched_ns or self.ready_ns

    def next_attempt(self, ready_ns: int) -> Exchange:
        """Return a fresh exchange that sends the same again, free to go at ``ready_ns``."""
        return Exchange(
            x_request_id=self.x_request_id, ready_ns=ready_ns, body=self.body, headers=self.headers
        )


class Sender(Protocol):
    """Sends one request and stamps its exchange; may be called many times at once."""

    @property
    def library(self) -> str:
        """What speaks HTTP, for the header."""

    @property
    def clock_name(self) -> str:
        """Where stamps come from, for the header; may know better after the run."""

    async def send(self, exchange: Exchange) -> None:
        """Send ``exchange.body`` and read the answer to the end of its body.

        Fills the exchange. A request that fails is data: ``exchange.failure`` says so, nothing is raised.
        Cancelled, it drops the connection and leaves the stamps so far.
        """

    async def close(self) -> None:
        """Close every connection."""


_LONGEST_MESSAGE = 500


def one_line(text: str) -> str:
    """Return ``text`` on one line and of bounded length."""
    flat = " ".join(text.split())
    return flat if len(flat) <= _LONGEST_MESSAGE else flat[: _LONGEST_MESSAGE - 1] + "…"
