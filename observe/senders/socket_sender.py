"""The plain-HTTP sender: HTTP/1.1 on bare sockets, httptools for the framing, stamps from the kernel.

A response costs a wake-up, a read and httptools's callbacks; no stream objects, no task beside the request's
own. TLS, proxies and credentials in the URL are aiohttp's business (``observe.senders.choose_sender``).
"""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import urlsplit

import httptools

from observe.senders.endpoint import Endpoint
from observe.senders.exchange import Clock, Exchange, monotonic_ns
from observe.senders.receive_timestamps import Receiver
from observe.senders.retry import retry_after_s

_KEEPALIVE_NS = 4_000_000_000
"""How long an idle connection is kept: below uvicorn's 5 s, so that the server never closes it first."""

_ERROR_BODY = 64 << 10
"""Bytes of an error answer that are kept for its message."""

_OK = 200
_FIRST_FINAL_STATUS = 200


class SocketSender:
    """Sends over TCP, connections reused, at most recently used first. Made within a running loop."""

    library = "sockets and httptools"

    def __init__(
        self, endpoint: Endpoint, path: str, *, clock: Clock = monotonic_ns, kernel_stamps: bool = True
    ) -> None:
        parts = urlsplit(endpoint.url(path))
        self._endpoint = endpoint
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._head = _head(endpoint, target=parts.path, host=parts.netloc)
        self._clock = clock
        self._receiver = Receiver(clock=clock, kernel=kernel_stamps)
        self._idle: list[Connection] = []
        self._addresses: list[tuple[int, tuple[object, ...]]] = []

    @property
    def clock_name(self) -> str:
        """Where the stamps come from, in words."""
        return self._receiver.describe()

    async def send(self, exchange: Exchange) -> None:
        """Send one request, stamp what comes back, and read its body to the end (see ``Sender``)."""
        connection = self._take_idle()
        if connection is None:
            try:
                connection = await self._open(exchange)
            except OSError as fault:
                exchange.fail("error", self._endpoint.redact(self._unreachable(fault)))
                return
        head = b"%b%bx-request-id: %b\r\nContent-Length: %d\r\n\r\n" % (
            self._head,
            _lines(exchange.headers),
            exchange.x_request_id.encode("latin-1", "replace"),
            len(exchange.body),
        )
        try:
            await connection.exchange_on(exchange, head)
        finally:
            if connection.is_reusable:
                self._idle.append(connection)
            else:
                connection.close()
        if exchange.failure is None and exchange.http_status != _OK:
            exchange.fail("error", self._endpoint.redact(refusal(exchange, connection.error_body)))

    async def close(self) -> None:
        """Close every idle connection; one under way closes with its request."""
        while self._idle:
            self._idle.pop().close()
        self._receiver.close()

    def _take_idle(self) -> Connection | None:
        """Return a connection that the server has kept, or None; drop those idle for too long."""
        oldest_ns = self._clock() - _KEEPALIVE_NS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.idle_since_ns >= oldest_ns:
                return connection
            connection.close()
        return None

    async def _open(self, exchange: Exchange) -> Connection:
        """Return a new connection; the exchange learns how long that took. Raises OSError."""
        since = self._clock()
        loop = asyncio.get_running_loop()
        if not self._addresses:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = [(family, address) for family, _, _, _, address in found]
        for family, address in list(self._addresses):
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._receiver.prepare(sock)
                await loop.sock_connect(sock, address)
            except OSError:
                sock.close()
                if (family, address) == self._addresses[-1]:
                    raise
                continue
            except asyncio.CancelledError:
                sock.close()
                raise
            self._addresses = [(family, address)]  # the one that answers, for the rest of the run
            exchange.connection_wait_ns += self._clock() - since
            return Connection(sock, self._receiver, clock=self._clock)
        raise AssertionError("a host that resolves has an address")

    def _unreachable(self, fault: OSError) -> str:
        if isinstance(fault, socket.gaierror):
            return f"cannot resolve {self._host}"
        return f"cannot connect to {self._host}:{self._port}: {fault.strerror or fault}"


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
        self.error_body = b""
        self.idle_since_ns = 0
        self._loop.add_reader(sock, self._on_readable)

    @property
    def is_reusable(self) -> bool:
        """Whether another request may go over it."""
        return self._open and self._exchange is None

    async def exchange_on(self, exchange: Exchange, head: bytes) -> None:
        """Send ``head`` and the exchange's body, return at the answer's end; faults are the exchange's.

        Cancelled, it closes the connection.
        """
        self._exchange = exchange
        self._parser = httptools.HttpResponseParser(self)
        self._has_length = self._headed = False
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
        """Hand the socket as much as it takes; come back when it takes more."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            if not self._awaits_room:
                self._awaits_room = True
                self._loop.add_writer(self._sock, self._send_on)
            return
        except OSError:
            self._unsent = memoryview(b"")  # the server may have answered all the same: the reader will tell
        if self._awaits_room:
            self._awaits_room = False
            self._loop.remove_writer(self._sock)

    def _on_readable(self) -> None:
        exchange = self._exchange
        after_ns = 0 if exchange is None else exchange.last_activity_ns()
        try:
            received, stamp = self._receiver.receive(self._sock, after_ns=after_ns)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as fault:
            self._break_off(f"{type(fault).__name__}: {fault}")
            return
        if exchange is None or not received:  # idle, the server says nothing but goodbye
            self._at_end()
            return
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = stamp
        self._parse(exchange, received, stamp)

    def _parse(self, exchange: Exchange, received: bytes, stamp: int) -> None:
        parser = self._parser
        assert parser is not None  # noqa: S101  exchange_on() made it
        fault = None
        try:
            parser.feed_data(received)
        except httptools.HttpParserError as error:
            fault = f"no HTTP: {error}"
        if self._pieces:
            blob = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            if exchange.http_status == _OK:
                exchange.blobs.append(blob)
                exchange.stamps.append(stamp)
            elif len(self.error_body) < _ERROR_BODY:
                self.error_body += blob[:_ERROR_BODY]
        if fault is not None and self._exchange is not None:
            self._break_off(fault)

    def _at_end(self) -> None:
        """Take the server's end of the connection: the answer's end, if nothing else would mark it."""
        if self._exchange is not None and self._headed and not self._has_length:
            self._finish(reusable=False)
        else:
            self._break_off("the server closed it")

    def _break_off(self, reason: str) -> None:
        """Close; fail the exchange, if one is under way, with how far its answer had come."""
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

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note whether the body says where it ends, and when to ask again."""
        lowered = name.lower()
        if lowered in (b"content-length", b"transfer-encoding"):
            self._has_length = True
        elif lowered == b"retry-after" and self._exchange is not None:
            self._exchange.retry_after_s = retry_after_s(value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Take the status; 1xx announces another head."""
        assert self._exchange is not None and self._parser is not None  # noqa: S101
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL_STATUS:
            self._exchange.http_status = status
            self._headed = True

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """End the exchange; the connection is free again unless either side wants it closed."""
        if self._headed:
            assert self._parser is not None  # noqa: S101  a callback comes from it
            keep = self._parser.should_keep_alive() and not self._unsent
            self._finish(reusable=keep)


def refusal(exchange: Exchange, body: bytes) -> str:
    """Return one line for an answer that is no 200."""
    said = body.decode("utf-8", "replace").strip()
    return f"HTTP {exchange.http_status}: {said}" if said else f"HTTP {exchange.http_status} without a body"


def _how_far(exchange: Exchange) -> str:
    if exchange.stamps:
        size = sum(len(blob) for blob in exchange.blobs)
        return f"connection broke off in the middle of the answer, after {size} bytes"
    if exchange.first_byte_ns is not None:
        return "connection broke off before the first event"
    return "connection closed before an answer"


def _head(endpoint: Endpoint, *, target: str, host: str) -> bytes:
    """Return the request's head but for what each request has of its own, the empty line included."""
    given = {
        name: value for name, value in endpoint.all_headers().items() if name.lower() != "content-length"
    }
    lines = [f"POST {target or '/'} HTTP/1.1"]
    if not any(name.lower() == "host" for name in given):
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in given.items()]
    return "".join(line + "\r\n" for line in lines).encode("latin-1", "replace")


def _lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return headers that one request has of its own."""
    return b"".join(f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in headers)
