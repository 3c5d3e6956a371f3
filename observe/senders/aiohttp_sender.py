"""The aiohttp sender: one session, connections reused, whole blobs read and stamped, nothing parsed."""

from __future__ import annotations

import asyncio
import ssl
import sys
from types import SimpleNamespace
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection

from observe.senders.endpoint import Endpoint
from observe.senders.exchange import MOST_HEADS, Clock, Exchange, monotonic_ns
from observe.senders.name_resolution import Resolver, unresolved
from observe.senders.retry import retry_after_s
from observe.senders.shortage import is_own_shortage, own_shortage

_KEEPALIVE_S = 4.0
"""How long an idle connection is kept: below uvicorn's 5 s, so that the server never closes it first."""

_TURNS = 2 if sys.version_info >= (3, 12) else 0
"""Turns of the event loop before a request, in which a connection is seen to be closed that the server closed behind
its answer. From Python 3.12 on aiohttp writes at once; before, it leaves the turns by itself."""

_READ_BUFFER = 1 << 20
"""Bytes aiohttp takes in before it pauses the socket; its default of 64 KiB throttles long streams."""

_ERROR_BODY = 64 << 10
"""Bytes of an error answer that are kept for its message."""


class _EndlessHeadsError(aiohttp.ClientError):
    """More interim heads (1xx) than any server sends."""


class _Answer(aiohttp.ClientResponse):
    """An answer whose interim heads are counted, since aiohttp skips any number of them."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read heads up to the final one. Raises _EndlessHeadsError."""
        protocol = connection.protocol
        assert protocol is not None  # noqa: S101  the connection has just been made
        read, num_heads = protocol.read, 0

        async def counted() -> Any:  # noqa: ANN401  a head and its body, of types of aiohttp's own
            nonlocal num_heads
            num_heads += 1
            if num_heads > MOST_HEADS:
                raise _EndlessHeadsError(f"HTTP 1xx: more than {MOST_HEADS} times, expected an answer")
            return await read()

        protocol.read = counted  # type: ignore[method-assign]  # the one way in
        try:
            return await super().start(connection)
        finally:
            del protocol.read


class _Body(aiohttp.BytesPayload):
    """A request's body, which stamps when it is dispatched, when all of it has been sent, and the handshake before."""

    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        super().__init__(exchange.body)
        self._exchange = exchange
        self._clock = clock

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the body, return when the machine has taken its last byte."""
        exchange, transport = self._exchange, writer.transport
        if transport is not None:
            transport.set_write_buffer_limits(high=0)  # drained is then sent
            if exchange.connect_ns is not None:
                exchange.note_handshake(getattr(transport.get_extra_info("ssl_object"), "handshake_ns", None))
        exchange.dispatched_ns = self._clock()
        await super().write_with_length(writer, content_length)
        await writer.drain()
        exchange.sent_ns = self._clock()


class AiohttpSender:
    """Sends over plain HTTP or TLS, through the environment's proxy unless the server is this machine."""

    library = "aiohttp"
    clock_name = "CLOCK_MONOTONIC, stamped per read"

    def __init__(self, endpoint: Endpoint, path: str, *, clock: Clock = monotonic_ns) -> None:
        self._endpoint = endpoint
        self._url = endpoint.url(path)
        self._headers = endpoint.all_headers(path)
        self._clock = clock
        self._resolver = Resolver(clock=clock)
        self._session = open_session(endpoint, traces=[self._stamping()], resolver=self._resolver)

    async def send(self, exchange: Exchange) -> None:
        """Send one request, stamp what comes back, and read its body to the end (see ``Sender``)."""
        headers = {**self._headers, **dict(exchange.headers), "x-request-id": exchange.x_request_id}
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        try:
            async with self._session.post(
                self._url,
                data=_Body(exchange, self._clock),
                headers=headers,
                trace_request_ctx=exchange,
                allow_redirects=False,  # a redirect would be timed as the server's
            ) as response:
                exchange.first_byte_ns = self._clock()
                exchange.http_status = response.status
                exchange.retry_after_s = retry_after_s(response.headers.get("Retry-After", ""))
                if response.status == 200:
                    await self._read(response, exchange)
                elif response.status < 200:
                    response.close()  # a switch of protocols: no answer will come
                    exchange.fail("error", f"HTTP {response.status:03d}: expected an answer")
                else:
                    said = await read_some(response.content, _ERROR_BODY)
                    exchange.fail("error", self._refusal(response.status, said))
        except (aiohttp.ClientError, ssl.SSLError, OSError, TimeoutError) as fault:
            reason = own_shortage(fault) if is_own_shortage(fault) else describe(fault, exchange)
            exchange.fail("error", self._endpoint.redact(reason), is_clients=is_own_shortage(fault))

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    async def _read(self, response: aiohttp.ClientResponse, exchange: Exchange) -> None:
        """Stamp blob after blob to the body's end, which lets the connection be used again."""
        content, clock = response.content, self._clock
        _end_with_connection(response)
        try:
            while blob := await content.readany():
                exchange.take(blob, clock())
                if (excess := exchange.excess()) is not None:
                    exchange.fail("error", excess)
                    response.close()
                    return
        except aiohttp.ClientError:
            # What came in the same turn of the loop as the break is still in the reader, behind the fault.
            left = b"".join(getattr(content, "_buffer", ()))
            if left:
                exchange.take(left, clock())
            raise

    def _refusal(self, status: int, body: bytes) -> str:
        said = body.decode("utf-8", "replace").strip()
        return self._endpoint.redact(f"HTTP {status}: {said}" if said else f"HTTP {status} without a body")

    def _stamping(self) -> aiohttp.TraceConfig:
        """Return the hooks that stamp how long a request waits for its connection."""
        clock = self._clock
        hooks = aiohttp.TraceConfig()

        async def begin_wait(_: object, context: SimpleNamespace, __: object) -> None:
            context.waiting_since = clock()

        async def end_wait(_: object, context: SimpleNamespace, __: object) -> None:
            exchange: Exchange = context.trace_request_ctx
            took_ns = clock() - context.waiting_since
            exchange.connection_wait_ns += took_ns
            exchange.dns_ns = self._resolver.found_after(context.waiting_since)
            exchange.connect_ns = took_ns - (exchange.dns_ns or 0)

        hooks.on_connection_create_start.append(begin_wait)
        hooks.on_connection_create_end.append(end_wait)
        return hooks


def _end_with_connection(response: aiohttp.ClientResponse) -> None:
    """End a body with its connection: after broken framing, aiohttp may leave the body's reader waiting."""
    content = response.content
    if response.connection is None or response.connection.protocol is None:  # released: the body is whole
        return

    def end(connection_end: asyncio.Future[None] | None = None) -> None:
        if connection_end is not None and not connection_end.cancelled():
            connection_end.exception()  # retrieved, or asyncio complains of it
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("broken framing"))

    closed = response.connection.protocol.closed
    if closed is None:
        end()
    else:
        closed.add_done_callback(end)


def open_session(
    endpoint: Endpoint,
    *,
    traces: list[aiohttp.TraceConfig] | None = None,
    resolver: Resolver | None = None,
    total_s: float | None = None,
) -> aiohttp.ClientSession:
    """Return a session with no limit on connections, nor on time but ``total_s``. Needs a running loop."""
    connector = aiohttp.TCPConnector(
        limit=0,
        ttl_dns_cache=None,  # resolved once for the run
        resolver=resolver or Resolver(),
        keepalive_timeout=_KEEPALIVE_S,
        ssl=_verification(endpoint),
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=total_s, connect=None, sock_connect=None, sock_read=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        read_bufsize=_READ_BUFFER,
        trace_configs=traces or [],
        trust_env=not endpoint.is_loopback,
        response_class=_Answer,
    )


def _verification(endpoint: Endpoint) -> ssl.SSLContext | bool:
    """Return what the connector takes for ``ssl``; who speaks no TLS loads nothing of it."""
    if not endpoint.base.startswith("https:"):
        return True
    from observe.senders.tls import verification

    return verification(endpoint)


async def read_some(content: aiohttp.StreamReader, most: int) -> bytes:
    """Return the body's first bytes, at most ``most`` of them."""
    said = b""
    while len(said) < most and (blob := await content.readany()):
        said += blob
    return said[:most]


def describe(fault: BaseException, exchange: Exchange | None = None) -> str:
    """Return one line for a transport's fault: what broke, and how far the answer had come."""
    if (cause := _connect_fault(fault)) is not None:
        return cause
    if isinstance(fault, _EndlessHeadsError):
        return str(fault)
    if exchange is not None and exchange.stamps:
        size = sum(len(blob) for blob in exchange.blobs)
        return f"connection lost in the middle of the answer, after {size} bytes ({_words(fault)})"
    if exchange is not None and exchange.first_byte_ns is not None:
        return f"connection lost before the first event ({_words(fault)})"
    if isinstance(fault, aiohttp.ServerDisconnectedError | ConnectionResetError | aiohttp.ClientOSError):
        return f"connection closed before an answer ({_words(fault)})"
    return _words(fault)


def _connect_fault(fault: BaseException) -> str | None:
    """Return why no connection came about, or None when one did."""
    if isinstance(fault, ssl.SSLError | aiohttp.ClientSSLError) or "[SSL" in repr(fault):
        from observe.senders.tls import tls_fault

        return tls_fault(fault)
    if isinstance(fault, aiohttp.ClientConnectorDNSError):
        return unresolved(fault.host, fault.os_error)
    if isinstance(fault, aiohttp.ClientConnectorError):
        return f"cannot connect to {fault.host}:{fault.port}: {fault.os_error.strerror or fault.os_error}"
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    return None


def _words(fault: BaseException) -> str:
    return f"{type(fault).__name__}: {fault}" if str(fault) else type(fault).__name__
