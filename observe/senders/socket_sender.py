"""The socket sender: HTTP/1.1 without TLS on bare sockets, stamped by the kernel.

A response costs a wake-up, a read and httptools's callbacks; no stream objects, no task but the request's own. TLS,
proxies and credentials in the URL are left to aiohttp (``observe.senders.choose_sender``).
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from observe.senders.connection import Connection
from observe.senders.endpoint import Endpoint
from observe.senders.exchange import Clock, Exchange, monotonic_ns
from observe.senders.name_resolution import Address, Resolver, unresolved
from observe.senders.receive_timestamps import Receiver
from observe.senders.shortage import is_own_shortage, own_shortage

_KEEPALIVE_NS = 4_000_000_000
"""How long an idle connection is kept: below uvicorn's 5 s, so that the server never closes it first."""

_OK = 200


class SocketSender:
    """Sends over TCP, reusing the most recently used connection first. Made within a running loop."""

    library = "sockets and httptools"

    def __init__(
        self, endpoint: Endpoint, path: str, *, clock: Clock = monotonic_ns, kernel_stamps: bool = True
    ) -> None:
        parts = urlsplit(endpoint.url(path))
        self._endpoint = endpoint
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        headers = endpoint.all_headers(path)
        self._head = _head(headers, target=parts.path, host=parts.netloc)
        self._clock = clock
        self._receiver = Receiver(clock=clock, kernel=kernel_stamps)
        self._idle: list[Connection] = []
        self._resolver = Resolver(clock=clock)
        self._addresses: list[Address] = []

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
                said = self._endpoint.redact(self._unreachable(fault))
                exchange.fail("error", said, is_clients=is_own_shortage(fault))
                return
        head = b"%b%bx-request-id: %b\r\nContent-Length: %d\r\n\r\n" % (
            self._head,
            _lines(exchange.headers),
            exchange.x_request_id.encode("latin-1", "replace"),
            len(exchange.body),
        )
        try:
            await connection.send(exchange, head)
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
            if (
                connection.is_reusable
                and connection.idle_since_ns >= oldest_ns
                and not connection.has_ended()
            ):
                return connection
            connection.close()
        return None

    async def _open(self, exchange: Exchange) -> Connection:
        """Return a new connection, and note in the exchange how long that took. Raises OSError."""
        since = self._clock()
        loop = asyncio.get_running_loop()
        if not self._addresses:
            self._addresses = await self._resolver.addresses(self._host, self._port)
            exchange.dns_ns = self._resolver.found_after(since)
        connecting_since = self._clock()
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
            now = self._clock()
            exchange.connect_ns = now - connecting_since
            exchange.connection_wait_ns += now - since
            return Connection(sock, self._receiver, clock=self._clock)
        raise AssertionError("a host that resolves has an address")

    def _unreachable(self, fault: OSError) -> str:
        if is_own_shortage(fault):
            return own_shortage(fault)
        if isinstance(fault, socket.gaierror):
            return unresolved(self._host, fault)
        return f"cannot connect to {self._host}:{self._port}: {fault.strerror or fault}"


def refusal(exchange: Exchange, body: bytes) -> str:
    """Return one line for an answer other than 200."""
    said = body.decode("utf-8", "replace").strip()
    return f"HTTP {exchange.http_status}: {said}" if said else f"HTTP {exchange.http_status} without a body"


def _head(headers: Mapping[str, str], *, target: str, host: str) -> bytes:
    """Return the request's head without the headers that differ between requests, the empty line included."""
    given = {name: value for name, value in headers.items() if name.lower() != "content-length"}
    lines = [f"POST {target or '/'} HTTP/1.1"]
    if not any(name.lower() == "host" for name in given):
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in given.items()]
    return "".join(line + "\r\n" for line in lines).encode("latin-1", "replace")


def _lines(headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return the headers of a single request."""
    return b"".join(f"{name}: {value}\r\n".encode("latin-1", "replace") for name, value in headers)
