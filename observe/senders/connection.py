"""One HTTP/1.1 connection on a bare socket: httptools frames the answer, the kernel stamps its bytes."""

from __future__ import annotations

import asyncio
import socket

import httptools

from observe.senders.exchange import MOST_HEADS, Clock, Exchange
from observe.senders.receive_timestamps import Receiver
from observe.senders.retry import retry_after_s

_ERROR_BODY = 64 << 10
"""Bytes of an error answer that are kept for its message."""

_LONGEST_HEAD = 1 << 20
"""Bytes that may come before the answer's head is complete."""

_READS_PER_TURN = 16
"""Reads of one socket before the loop gets its turn."""

_OK = 200
_FIRST_STATUS, _FIRST_FINAL_STATUS = 100, 200
_SWITCHING_PROTOCOLS = 101


class Connection:
    """One connection and the exchange on it, if any; also the receiver of httptools's callbacks."""

    def __init__(self, sock: socket.socket, receiver: Receiver, *, clock: Clock) -> None:
        self._sock = sock
        self._receiver = receiver
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange | None = None
        self._done: asyncio.Future[None] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._unsent = memoryview(b"")
        self._awaits_room = False
        self._pieces: list[bytes] = []
        self._has_length = False
        self._headed = False
        self._open = True
        self._num_received = 0
        self._num_heads = 0
        self._refused = ""  # why the bytes are not an answer, found within httptools's callbacks
        self._has_more = False  # bytes behind the answer's end, which no request asked for
        self.error_body = b""
        self.idle_since_ns = 0
        self._loop.add_reader(sock, self._on_readable)

    @property
    def is_reusable(self) -> bool:
        """Whether another request may go over it."""
        return self._open and self._exchange is None

    def has_ended(self) -> bool:
        """Return whether an idle connection has received anything: its end, or bytes that no request asked for."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            pass
        return True

    async def send(self, exchange: Exchange, head: bytes) -> None:
        """Send ``head`` and the exchange's body, return at the answer's end; faults are the exchange's.

        Cancelled, it closes the connection.
        """
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._has_length = self._headed = self._has_more = False
        self._num_received = self._num_heads = 0
        self._refused = ""
        self.error_body = b""
        self._done = self._loop.create_future()
        exchange.dispatched_ns = self._clock()
        self._unsent = memoryview(head + exchange.body)
        self._send_on()
        try:
            await self._done
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        """Release the socket; may be called again."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()

    # the socket's events

    def _send_on(self) -> None:
        """Write as much as the socket takes; continue when it takes more."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            if self._exchange is not None:
                self._exchange.sent_ns = self._clock()
        except (BlockingIOError, InterruptedError):
            if not self._awaits_room:
                self._awaits_room = True
                self._loop.add_writer(self._sock, self._send_on)
            return
        except OSError as fault:
            self._unsent = memoryview(b"")
            self._loop.call_soon(self._end_unsent, self._exchange, f"{type(fault).__name__}: {fault}")
        if self._awaits_room:
            self._awaits_room = False
            self._loop.remove_writer(self._sock)

    def _end_unsent(self, exchange: Exchange | None, reason: str) -> None:
        """Read what the server sent before it stopped reading the request, which is all that will come."""
        while self._open and exchange is not None and self._exchange is exchange:
            if not self._read_once():
                break
        if exchange is not None and self._exchange is exchange:
            self._break_off(reason)

    def _on_readable(self) -> None:
        """Read everything available: after an error of the socket, the loop may not call again."""
        for _ in range(_READS_PER_TURN):
            if not self._open or not self._read_once():
                return
        self._loop.call_soon(self._on_readable)

    def _read_once(self) -> bool:
        """Read once; return whether more may be there now."""
        exchange = self._exchange
        after_ns = 0 if exchange is None else exchange.last_activity_ns()
        try:
            received, stamp = self._receiver.receive(self._sock, after_ns=after_ns)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as fault:
            self._break_off(f"{type(fault).__name__}: {fault}")
            return False
        if exchange is None or not received:  # on an idle connection the server can only close
            self._at_end()
            return False
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = stamp
        self._parse(exchange, received, stamp)
        return self._open

    def _parse(self, exchange: Exchange, received: bytes, stamp: int) -> None:
        parser = self._parser
        assert parser is not None  # noqa: S101  send() made it
        fault = None
        try:
            parser.feed_data(received)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            fault = f"no HTTP: {error}"
        self._take_pieces(exchange, stamp)
        self._num_received += len(received)
        if self._exchange is None:
            if fault is not None or self._has_more:
                self.close()
        elif (excess := self._excess(exchange)) is not None:
            exchange.fail("error", excess)
            self._finish(reusable=False)
        elif fault is not None:
            self._break_off(fault)
        elif len(self.error_body) >= _ERROR_BODY:  # enough of a refusal: the rest is not waited for
            self._finish(reusable=False)

    def _take_pieces(self, exchange: Exchange, stamp: int) -> None:
        """Keep what the last read brought of the body."""
        if not self._pieces:
            return
        blob = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if exchange.http_status == _OK:
            exchange.take(blob, stamp)
        else:
            self.error_body += blob[: _ERROR_BODY - len(self.error_body)]

    def _excess(self, exchange: Exchange) -> str | None:
        """Return why the rest of the answer is not read, or None."""
        if self._refused:
            return self._refused
        if not self._headed and self._num_received > _LONGEST_HEAD:
            return f"the answer's head has more than {_LONGEST_HEAD >> 20} MiB"
        return exchange.excess(self._num_received)

    def _at_end(self) -> None:
        """Take the server's end of the connection: the answer's end, if nothing else would mark it."""
        if self._exchange is not None and self._headed and not self._has_length:
            self._finish(reusable=False)
        else:
            self._break_off("the server closed it")

    def _break_off(self, reason: str) -> None:
        """Close; fail the exchange, if there is one, with how far its answer had come."""
        exchange = self._exchange
        if exchange is not None:
            exchange.fail("error", f"{_how_far(exchange)} ({reason})")
        self._finish(reusable=False)

    def _finish(self, *, reusable: bool) -> None:
        self._exchange = None
        self._parser = None
        self.idle_since_ns = self._clock()
        if not reusable:
            self.close()
        done, self._done = self._done, None
        if done is not None and not done.done():
            done.set_result(None)

    # httptools's callbacks

    def on_message_begin(self) -> None:
        """Forget an interim head; note an answer that no request asked for."""
        self._has_length = False
        self._has_more = self._exchange is None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note whether the body's end is known from the headers, and the Retry-After time."""
        lowered = name.lower()
        if lowered in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif lowered == b"retry-after" and self._exchange is not None:
            self._exchange.retry_after_s = retry_after_s(value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Take the status; 1xx announces another head."""
        if self._exchange is None or self._parser is None:
            return
        status = self._parser.get_status_code()
        self._num_heads += 1
        if status >= _FIRST_FINAL_STATUS:
            self._exchange.http_status = status
            self._headed = True
        elif status == _SWITCHING_PROTOCOLS or status < _FIRST_STATUS:
            self._exchange.http_status = status
            self._refused = f"HTTP {status:03d}: expected an answer"
        elif self._num_heads > MOST_HEADS:
            self._refused = f"HTTP {status}: more than {MOST_HEADS} times, expected an answer"

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        if self._exchange is not None:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """End the exchange; the connection is free again unless either side wants it closed."""
        if self._headed and self._exchange is not None:
            assert self._parser is not None  # noqa: S101  a callback comes from it
            keep = self._parser.should_keep_alive() and not self._unsent
            self._finish(reusable=keep)


def _how_far(exchange: Exchange) -> str:
    if exchange.stamps:
        size = sum(len(blob) for blob in exchange.blobs)
        return f"connection lost in the middle of the answer, after {size} bytes"
    if exchange.first_byte_ns is not None:
        return "connection lost before the first event"
    return "connection closed before an answer"
