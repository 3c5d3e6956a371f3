"""The phases of HTTP, on both senders, against servers whose delays are known."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from observe import Exchange, parse_endpoint
from observe.senders import name_resolution
from observe.senders.aiohttp_sender import AiohttpSender
from observe.senders.exchange import Sender
from observe.senders.socket_sender import SocketSender
from tests.observe.senders.test_tls import made
from tests.observe.senders.test_tls import pytestmark as needs_openssl

DELAY_NS = 200_000_000
MORE_NS = 100_000_000
"""How much a busy machine may add, or take for the phase before; what has no delay takes less."""
certificates = made  # the fixture
SENDERS: tuple[Callable[..., Sender], ...] = (SocketSender, AiohttpSender)
both = pytest.mark.parametrize("kind", SENDERS, ids=["sockets", "aiohttp"])
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n"

Answer = Callable[[socket.socket], None]


def pause() -> None:
    time.sleep(DELAY_NS / 1e9)


def read(connection: socket.socket) -> None:
    """Read one request whole."""
    got = b""
    while b"\r\n\r\n" not in got:
        some = connection.recv(1 << 16)
        if not some:
            raise ConnectionError("the client is done")
        got += some
    head, _, body = got.partition(b"\r\n\r\n")
    sizes = [int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    left = sum(sizes) - len(body)
    while left > 0:
        left -= len(connection.recv(1 << 20)) or left


def at_once(connection: socket.socket) -> None:
    read(connection)
    connection.sendall(HEAD + b"data: a\n\n" + b"data: bc\n\n\n")


def late_reading(connection: socket.socket) -> None:
    connection.recv(1, socket.MSG_PEEK)
    pause()
    at_once(connection)


def late_first_byte(connection: socket.socket) -> None:
    read(connection)
    pause()
    connection.sendall(HEAD + b"data: a\n\n" + b"data: bc\n\n\n")


def late_end(connection: socket.socket) -> None:
    read(connection)
    connection.sendall(HEAD + b"data: a\n\n")
    pause()
    connection.sendall(b"data: bc\n\n\n")


@contextmanager
def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answer one connection after the other; with TLS, each handshake begins late."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 19)  # what is not read is not taken either

    def work() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listener.accept()
                with plain, suppress(OSError):
                    if tls is not None:
                        pause()
                    with plain if tls is None else tls.wrap_socket(plain, server_side=True) as connection:
                        while True:
                            answer(connection)

    Thread(target=work, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def sent(kind: Callable[..., Sender], url: str, *, body: bytes = b"{}", number: int = 1) -> list[Exchange]:
    """Return ``number`` requests that were sent in turn; all were answered."""

    async def send() -> list[Exchange]:
        sender = kind(parse_endpoint(url, verify_tls=False), "/v1/completions")
        exchanges = [Exchange(x_request_id="x", body=body) for _ in range(number)]
        for each in exchanges:
            await asyncio.wait_for(sender.send(each), 10)
        await sender.close()
        return exchanges

    exchanges = asyncio.run(send())
    assert [each.failure for each in exchanges] == [None] * number
    return exchanges


def phases(exchange: Exchange) -> dict[str, int]:
    """Return what a request had, ns, and check that from its dispatch on nothing is missing."""
    dispatched, first, sent_ns = exchange.dispatched_ns, exchange.first_byte_ns, exchange.sent_ns
    assert dispatched is not None
    assert first is not None
    assert sent_ns is not None
    assert dispatched <= sent_ns
    new = {"dns": exchange.dns_ns, "connect": exchange.connect_ns, "tls": exchange.tls_ns}
    assert sum(each or 0 for each in new.values()) <= exchange.connection_wait_ns
    found = {name: each for name, each in new.items() if each is not None}
    return {
        **found,
        "send": sent_ns - dispatched,
        "wait": max(first - sent_ns, 0),
        "receive": exchange.stamps[-1] - first,
    }


def check(found: dict[str, int], late: str, *, also: tuple[str, ...] = ()) -> None:
    """Check that one phase took the delay and the others nothing, and which there are."""
    assert set(found) == {"send", "wait", "receive", late, *also}
    assert abs(found[late] - DELAY_NS) < MORE_NS
    assert all(took < MORE_NS for name, took in found.items() if name != late)


@both
@pytest.mark.parametrize(
    ("answer", "late", "size"),
    [(late_reading, "send", 8 << 20), (late_first_byte, "wait", 2), (late_end, "receive", 2)],
    ids=["send", "wait", "receive"],
)
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
def test_a_late_server_shows_in_the_phase_in_which_it_is_late(
    kind: Callable[..., Sender], answer: Answer, late: str, size: int
) -> None:
    with serving(answer) as port:
        first, again = sent(kind, f"http://127.0.0.1:{port}", body=b"x" * size, number=2)
    check(phases(first), late, also=("connect",))
    check(phases(again), late)  # over the same connection: none is opened


@both
def test_a_slow_look_up_is_of_the_request_that_waited_for_it(
    kind: Callable[..., Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def slow(_: str, *more: object, **named: object) -> object:
        pause()
        return real("127.0.0.1", *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(name_resolution.socket, "getaddrinfo", slow)
    with serving(at_once) as port:
        first, again = sent(kind, f"http://named.example:{port}", number=2)
    check(phases(first), "dns", also=("connect",))
    assert set(phases(again)) == {"send", "wait", "receive"}


@both
def test_a_full_queue_of_connections_shows_as_a_slow_connect(kind: Callable[..., Sender]) -> None:
    """Linux drops a SYN that finds the queue full; the client's kernel sends it again after a second (RFC 6298)."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = listener.getsockname()[1]
    before = socket.create_connection(("127.0.0.1", port))

    def accept() -> None:
        pause()
        listener.accept()[0].close()
        with listener.accept()[0] as connection:
            at_once(connection)

    answering = Thread(target=accept, daemon=True)
    answering.start()
    found = phases(sent(kind, f"http://127.0.0.1:{port}")[0])
    answering.join(5)
    before.close()
    listener.close()
    assert set(found) == {"connect", "send", "wait", "receive"}
    assert 0.9e9 < found["connect"] < 2e9
    assert sum(found.values()) - found["connect"] < MORE_NS


@needs_openssl
def test_a_slow_handshake_is_told_apart_from_the_connection(certificates: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "good.pem", certificates / "good.key")
    with serving(at_once, tls=context) as port:
        first, again = sent(AiohttpSender, f"https://127.0.0.1:{port}", number=2)
    check(phases(first), "tls", also=("connect",))
    assert set(phases(again)) == {"send", "wait", "receive"}
