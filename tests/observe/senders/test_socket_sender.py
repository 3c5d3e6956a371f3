"""The plain-HTTP sender: whatever way an answer is cut or ended, and whenever the client gets to read it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from unittest import mock

import pytest

from observe import Exchange, parse_endpoint
from observe.senders.aiohttp_sender import AiohttpSender
from observe.senders.choose_sender import open_sender
from observe.senders.endpoint import Endpoint
from observe.senders.exchange import monotonic_ns
from observe.senders.receive_timestamps import Receiver
from observe.senders.socket_sender import SocketSender

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"9\r\ndata: a\n\n\r\nb\r\ndata: b\ndat\r\n4\r\na: c\r\n2\r\n\n\n\r\n0\r\n\r\n"
)
BODY = b"data: a\n\ndata: b\ndata: c\n\n"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def exchange(body: bytes = b"{}") -> Exchange:
    return Exchange(x_request_id="x-1", body=body)


async def read_request(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    size = next(int(line[16:]) for line in head.split("\r\n") if line.startswith("Content-Length: "))
    return head, await reader.readexactly(size)


async def sent(
    talk: Talk, *, number: int = 1, body: bytes = b"{}", kernel_stamps: bool = True
) -> list[Exchange]:
    """Send ``number`` requests in turn to a server that ``talk``s, and return what came of them."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    sender = SocketSender(
        parse_endpoint(f"http://127.0.0.1:{port}"), "/v1/completions", kernel_stamps=kernel_stamps
    )
    exchanges = [exchange(body) for _ in range(number)]
    for each in exchanges:
        await asyncio.wait_for(sender.send(each), 5)
    await sender.close()
    listener.close()
    return exchanges


@pytest.mark.parametrize("cut", range(1, len(CHUNKED)))
async def test_an_answer_cut_anywhere_is_the_same_answer(cut: int) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for part in (CHUNKED[:cut], CHUNKED[cut:]):
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    (got,) = await sent(talk)
    assert got.failure is None
    assert b"".join(got.blobs) == BODY
    assert len(got.stamps) == len(got.blobs) <= 2
    assert got.dispatched_ns is not None
    assert got.first_byte_ns is not None
    assert got.dispatched_ns <= got.first_byte_ns <= got.stamps[0]


async def test_requests_share_a_connection_and_each_carries_its_own_head() -> None:
    heads: list[str] = []
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(3):
            heads.append((await read_request(reader))[0])
            writer.write(CHUNKED)

    exchanges = await sent(talk, number=3)
    assert connections == 1
    assert [got.connection_wait_ns > 0 for got in exchanges] == [True, False, False]
    assert heads[0].startswith("POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "x-request-id: x-1\r\n" in heads[0]


@pytest.mark.parametrize(
    ("answer", "body", "said"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\ndata: a\n\n", b"data: a\n\n", None),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc", None),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc", None),
        (b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy", b"", "HTTP 503: busy"),
        (b"HTTP/1.1 204 No\r\n\r\n", b"", "HTTP 204 without a body"),
        (b"nonsense\r\n\r\n", b"", "no HTTP: "),
        (b"", b"", "connection closed before an answer (the server closed it)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", b"abc", "in the middle of the answer, after 3"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"", "lost before the first event"),
    ],
)
async def test_the_end_of_an_answer_is_told_from_a_break(
    answer: bytes, body: bytes, said: str | None
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)

    (got,) = await sent(talk)
    assert b"".join(got.blobs) == body
    if said is None:
        assert got.failure is None
    else:
        assert got.failure is not None
        assert said in got.failure.message


async def test_a_body_larger_than_the_socket_takes_is_sent_whole() -> None:
    large = b"x" * (16 << 20)
    received: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append((await read_request(reader))[1])
        writer.write(CHUNKED)

    (got,) = await sent(talk, body=large)
    assert got.failure is None
    assert received == [large]


async def test_a_connection_that_was_closed_while_idle_is_not_used_again() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)

    async def pausing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        await writer.drain()

    listener = await asyncio.start_server(_closing(pausing), "127.0.0.1", 0)
    sender = SocketSender(
        parse_endpoint(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"), "/v1/completions"
    )
    for _ in range(3):
        got = exchange()
        await sender.send(got)
        assert got.failure is None
        assert got.connection_wait_ns > 0
        while sender._idle and sender._idle[0].is_reusable:  # until the server's close has arrived
            await asyncio.sleep(0)
    await sender.close()
    listener.close()


def _closing(talk: Talk) -> Talk:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await talk(reader, writer)
        writer.close()

    return serve


async def test_a_cancelled_request_drops_its_connection() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        come.set()
        assert await reader.read() == b""
        assert not writer.is_closing()
        gone.set()

    come, gone = asyncio.Event(), asyncio.Event()
    listener = await asyncio.start_server(_closing(talk), "127.0.0.1", 0)
    sender = SocketSender(
        parse_endpoint(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"), "/v1/completions"
    )
    task = asyncio.create_task(sender.send(exchange()))
    await asyncio.wait_for(come.wait(), 5)
    task.cancel()
    await asyncio.wait_for(gone.wait(), 5)
    await sender.close()
    listener.close()


async def test_a_busy_client_still_knows_when_the_bytes_came() -> None:
    """The loop is blocked for 0.2 s after the answer was written; only the kernel can know when it came."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        await writer.drain()
        time.sleep(0.2)  # the loop's thread is what must not run: no injected clock can stand for it
        await reader.read()  # a goodbye at once would be stamped in the answer's place

    asking = stamping_receiver()
    (by_kernel,) = await sent(talk)
    (by_clock,) = await sent(talk, kernel_stamps=False)
    asking.close()
    assert by_kernel.stamps[0] - (by_kernel.dispatched_ns or 0) < 150_000_000
    assert by_clock.stamps[0] - (by_clock.dispatched_ns or 0) > 200_000_000


def test_a_wall_clock_that_was_set_does_not_reach_the_stamps() -> None:
    receiver = stamping_receiver()
    client, server = _pair()
    receiver.prepare(client)
    before = monotonic_ns()
    server.send(b"x")
    hour_ns = 3_600_000_000_000
    for shift in (-hour_ns, hour_ns):
        server.send(b"x")
        now = time.time_ns()
        with mock.patch("observe.senders.receive_timestamps.time.time_ns", return_value=now + shift):
            _, stamp = receiver.receive(client, after_ns=before)
        assert before <= stamp <= monotonic_ns()
        server.send(b"x")
    assert receiver.num_clock_stamps == 2
    receiver.close()
    client.close()
    server.close()


def test_a_core_taken_away_between_the_two_clocks_does_not_make_time_run_backwards() -> None:
    """The clocks are first read 5 ms apart: taken as one moment, the bytes would be older than those before."""
    receiver = stamping_receiver()
    client, server = _pair()
    receiver.prepare(client)
    server.send(b"x")
    _, before = receiver.receive(client, after_ns=0)
    lost_ns = iter([5_000_000])  # of the first reading, before the monotonic clock
    num_kernel_stamps = receiver.num_kernel_stamps
    server.send(b"y")
    sent = monotonic_ns()
    receiver._clock = lambda: monotonic_ns() - next(lost_ns, 0)
    _, stamp = receiver.receive(client, after_ns=before)
    assert before <= stamp
    assert abs(stamp - sent) < 3_000_000
    assert receiver.num_kernel_stamps == num_kernel_stamps + 1
    receiver.close()
    client.close()
    server.close()


def test_the_header_says_how_many_stamps_are_the_kernels() -> None:
    receiver = Receiver()
    assert receiver.describe() == "CLOCK_MONOTONIC, by the kernel's receive stamps (SO_TIMESTAMPNS)"
    receiver.num_kernel_stamps, receiver.num_clock_stamps = 7, 3
    assert receiver.describe().endswith("; 3 of 10 reads by the client")
    receiver.close()
    plain = Receiver(kernel=False)
    assert plain.describe() == "CLOCK_MONOTONIC, stamped per read"
    plain.close()


def stamping_receiver() -> Receiver:
    """Return a receiver whose kernel stamps already: it begins a moment after it was first asked to."""
    receiver = Receiver()
    client, server = _pair()
    receiver.prepare(client)
    while receiver.num_kernel_stamps == 0:
        server.send(b"x")
        receiver.receive(client, after_ns=0)
    client.close()
    server.close()
    receiver.num_clock_stamps = 0
    return receiver


def _pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        return client, listener.accept()[0]


@pytest.mark.parametrize(
    ("url", "proxy", "expected"),
    [
        ("http://10.0.0.1:8000", None, SocketSender),
        ("http://127.0.0.1:8000", "http://proxy:3128", SocketSender),
        ("http://10.0.0.1:8000", "http://proxy:3128", AiohttpSender),
        ("https://10.0.0.1", None, AiohttpSender),
        ("http://me:secret@10.0.0.1", None, AiohttpSender),
    ],
)
async def test_tls_proxies_and_logins_are_aiohttps_business(
    url: str, proxy: str | None, *, expected: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("observe.senders.choose_sender.getproxies", lambda: {"http": proxy} if proxy else {})
    sender = open_sender(Endpoint(base=url), "/v1/completions")
    assert type(sender) is expected
    await sender.close()


async def test_a_connection_that_was_idle_for_too_long_is_not_used_again() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await read_request(reader)
                writer.write(CHUNKED)
        gone.release()

    gone = asyncio.Semaphore(0)
    passed_ns = 0
    listener = await asyncio.start_server(_closing(talk), "127.0.0.1", 0)
    sender = SocketSender(
        parse_endpoint(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"),
        "/v1/completions",
        clock=lambda: monotonic_ns() + passed_ns,
    )
    waits: list[bool] = []
    for pause_s in (0, 3, 5):
        passed_ns += pause_s * 1_000_000_000
        got = exchange()
        await sender.send(got)
        assert got.failure is None
        waits.append(got.connection_wait_ns > 0)
    assert waits == [True, False, True]
    await sender.close()
    await asyncio.wait_for(gone.acquire(), 5)  # both connections' server sides have seen the end
    await asyncio.wait_for(gone.acquire(), 5)
    listener.close()
