"""One request on the wire: what was stamped while it went, and the interface of whatever sends it."""

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
    """The stamps of one request under way, in ns of the run's clock; None until it happens.

    ``blobs`` and ``stamps`` pair up: the bytes of one read and when they were there. Nothing is parsed before
    the end. A failure keeps whatever came before it. ``number``: how many were let go before it.
    ``ready_ns`` is when the request was free to go: its due time, or later where a cap on concurrency held it
    back, or where it was retried. ``is_paced``: the plan, not an answer, says when it is due.
    ``input_tokens``: of the prompt, where only the run knows them. ``is_resting``: it has failed and waits to be
    sent again. ``num_blobs_seen``, ``num_events_seen``: how far the display has counted.
    """

    index: int
    number: int = 0
    due_ns: int
    ready_ns: int
    x_request_id: str
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    dispatched_ns: int | None = None
    connection_wait_ns: int = 0
    first_byte_ns: int | None = None
    end_ns: int | None = None
    http_status: int | None = None
    stamps: list[int] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    failure: Failure | None = None
    is_paced: bool = True
    input_tokens: int | None = None
    num_attempts: int = 1
    retry_after_s: float | None = None
    is_resting: bool = False
    num_blobs_seen: int = 0
    num_events_seen: int = 0

    def renew(self, ready_ns: int) -> None:
        """Forget what came of the last attempt, for another one that is free to go at ``ready_ns``."""
        self.num_attempts += 1
        self.ready_ns = ready_ns
        self.dispatched_ns = self.first_byte_ns = self.http_status = self.retry_after_s = None
        self.connection_wait_ns = 0
        self.stamps, self.blobs = [], []
        self.num_blobs_seen = self.num_events_seen = 0
        self.failure = None
        self.is_resting = False

    def fail(self, status: FailureStatus, message: str) -> None:
        """Record why the request has no answer; the first reason stands."""
        if self.failure is None:
            self.failure = Failure(status=status, message=one_line(message))

    def last_activity_ns(self) -> int:
        """Return when the exchange last moved: a read, the first byte, the dispatch, or its start."""
        if self.stamps:
            return self.stamps[-1]
        return self.first_byte_ns or self.dispatched_ns or self.ready_ns


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
