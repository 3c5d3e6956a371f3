"""One attempt at a request on the wire, stamped as it goes, and the interface of the senders."""

from __future__ import annotations

import time
from collections.abc import Callable
from lazy_dataclasses import dataclass, field
from typing import Literal, Protocol

Clock = Callable[[], int]
"""Nanoseconds of a monotonic clock, the same one for every stamp of a run."""

FailureStatus = Literal["error", "timeout", "aborted", "cancelled"]

monotonic_ns: Clock = time.monotonic_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFailure:
    """Why a request has no answer: TraceV2's status, and one line that says what happened.

    ``is_clients``: the client, not the server, is the cause.
    """

    status: FailureStatus
    message: str
    is_clients: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimit:
    """How long an answer may be: bytes and lines of its body. Any real one is far below."""

    num_bytes: int
    num_lines: int


def answer_limit(max_tokens: int) -> AnswerLimit:
    """Return the limit for an answer with a requested ``max_tokens``.

    An event of vLLM has some 300 bytes and two lines, most often one token; other servers' have a few times that.
    The constant parts leave room for padding, comments and whatever an answer opens or ends with.
    """
    return AnswerLimit(num_bytes=(16 << 20) + (4 << 10) * max_tokens, num_lines=(16 << 10) + 64 * max_tokens)


_USUAL_LIMIT = answer_limit(4096)

MOST_HEADS = 32
"""Heads of one answer: interim ones (1xx) before the final one."""

MOST_HELD_BYTES = 4 << 30
"""Memory of all answers that are not read yet; 1,000 at once of a million tokens each take a third of it."""

_BLOB_BYTES = 120
"""Memory of a blob besides its bytes: the object, its stamp, and their list entries."""


@dataclass(slots=True, kw_only=True)
class Held:
    """Memory of a run's answers that are not read yet: ``num_bytes`` of ``num_answers``."""

    most_bytes: int = MOST_HELD_BYTES
    num_bytes: int = 0
    num_answers: int = 0

    def has_no_room_for(self, num_bytes: int) -> bool:
        """Return whether they take too much, and an answer of this many bytes is one of the larger ones."""
        return self.num_bytes > self.most_bytes and num_bytes * self.num_answers >= self.num_bytes


@dataclass(slots=True)
class LastPoll:
    """Until when (``ns``) a run's loop is known to have read all that had come; a run keeps it up to date."""

    ns: int = 0


_LINES_OF_ONE_EVENT = 2
"""A data line, and the empty one that ends the event."""
_EARLY_READS = 64
"""The first event with text comes within as many; of later reads nothing needs to be kept."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """One attempt at one request: the bytes sent, and the stamps of those received.

    Stamps are ns of the run's clock, None until it happens. ``blobs`` and ``stamps`` pair up: the bytes of one read
    and when they arrived; nothing is parsed before the end. ``ready_ns``: when the attempt was free to go.
    ``polled``: of reads with several events, by their place, until when the loop had surely read all that had come: the
    kernel stamps a read's last byte, and of a busy client's read the first event may have come as early as that.
    ``dns_ns``, ``connect_ns``, ``tls_ns``: how long a new connection's name, TCP and TLS took, None of what it had not;
    ``sent_ns``: when the machine had taken the request's last byte.
    A failure keeps what came before it. ``num_bytes`` and ``num_lines`` count the blobs, against ``limit``;
    ``num_held_bytes`` is this one's part of ``held``, until ``let_go``. ``watch`` sees each read as it comes.
    """

    x_request_id: str
    ready_ns: int = 0
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    dispatched_ns: int | None = None
    sent_ns: int | None = None
    connection_wait_ns: int = 0
    dns_ns: int | None = None
    connect_ns: int | None = None
    tls_ns: int | None = None
    first_byte_ns: int | None = None
    http_status: int | None = None
    retry_after_s: float | None = None
    stamps: list[int] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    failure: ExchangeFailure | None = None
    limit: AnswerLimit = _USUAL_LIMIT
    num_bytes: int = 0
    num_lines: int = 0
    held: Held = field(default_factory=Held)
    num_held_bytes: int = 0
    last_poll: LastPoll = field(default_factory=LastPoll)
    polled: dict[int, int] = field(default_factory=dict)
    watch: Callable[[bytes, int], None] | None = None

    def fail(self, status: FailureStatus, message: str, *, is_clients: bool = False) -> None:
        """Record why the request has no answer; the first reason stands."""
        if self.failure is None:
            self.failure = ExchangeFailure(status=status, message=one_line(message), is_clients=is_clients)

    def note_handshake(self, took_ns: int | None) -> None:
        """Take a new connection's TLS handshake, None where it had none, out of the time of its TCP connection."""
        if took_ns is not None and self.connect_ns is not None:
            self.tls_ns, self.connect_ns = took_ns, max(self.connect_ns - took_ns, 0)

    def take(self, blob: bytes, stamp: int) -> None:
        """Keep the bytes of one read."""
        num_lines = blob.count(b"\n") + blob.count(b"\r")
        if num_lines > _LINES_OF_ONE_EVENT and len(self.blobs) < _EARLY_READS:
            self.polled[len(self.blobs)] = self.last_poll.ns
        self.blobs.append(blob)
        self.stamps.append(stamp)
        self.num_bytes += len(blob)
        self.num_lines += num_lines
        taken = len(blob) + _BLOB_BYTES
        self.held.num_answers += self.num_held_bytes == 0
        self.num_held_bytes += taken
        self.held.num_bytes += taken
        if self.watch is not None:
            self.watch(blob, stamp)

    def let_go(self) -> None:
        """Drop the blobs: they have been read, or will not be."""
        self.held.num_bytes -= self.num_held_bytes
        self.held.num_answers -= self.num_held_bytes > 0
        self.num_held_bytes = 0
        self.blobs = []

    def excess(self, num_received: int = 0) -> str | None:
        """Return why the answer is longer than any can be, or None; ``num_received``: its framing included."""
        most = self.limit
        if self.num_lines > most.num_lines:
            return f"endless answer: more than {most.num_lines:,} lines"
        if self.num_bytes > most.num_bytes or num_received > 2 * most.num_bytes:
            return f"endless answer: more than {most.num_bytes:,} bytes"
        if self.held.has_no_room_for(self.num_held_bytes):
            return f"answers too large: all in flight took more than {self.held.most_bytes:,} bytes of memory"
        return None

    def last_activity_ns(self) -> int:
        """Return when the exchange last moved: a read, the first byte, the dispatch, or its start."""
        if self.stamps:
            return self.stamps[-1]
        return self.first_byte_ns or self.dispatched_ns or self.ready_ns

    def next_attempt(self, ready_ns: int) -> Exchange:
        """Return a fresh exchange that sends the same again, free to go at ``ready_ns``; this one's blobs go."""
        self.let_go()
        return Exchange(
            x_request_id=self.x_request_id,
            ready_ns=ready_ns,
            body=self.body,
            headers=self.headers,
            limit=self.limit,
            held=self.held,
        )


class Sender(Protocol):
    """Sends one request and stamps its exchange; may be called many times at once."""

    @property
    def library(self) -> str:
        """The HTTP library, for the header."""

    @property
    def clock_name(self) -> str:
        """The clock of the stamps, for the header; may be exact only after the run."""

    async def send(self, exchange: Exchange) -> None:
        """Send ``exchange.body`` and read the answer to the end of its body.

        Fills the exchange. A request that fails is data: ``exchange.failure`` says so, nothing is raised.
        Cancelled, it drops the connection and leaves the stamps so far.
        """

    async def close(self) -> None:
        """Close every connection."""


_LONGEST_MESSAGE = 500


def one_line(text: str) -> str:
    """Return ``text`` on one line and of bounded length, control characters as escapes."""
    flat = " ".join(text.split())
    flat = flat if len(flat) <= _LONGEST_MESSAGE else flat[: _LONGEST_MESSAGE - 1] + "…"
    if flat.isprintable():
        return flat
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in flat
    )
