"""A server that sends given bytes and then ends as told, on bare sockets: nothing is buffered, nothing is late."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal

from observe.senders.aiohttp_sender import AiohttpSender
from observe.senders.endpoint import parse_endpoint
from observe.senders.exchange import AnswerLimit, Exchange, Sender, answer_limit
from observe.senders.socket_sender import SocketSender

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SENDERS: dict[str, Callable[[str], Sender]] = {
    "sockets": lambda url: SocketSender(parse_endpoint(url), "/v1/completions"),
    "aiohttp": lambda url: AiohttpSender(parse_endpoint(url), "/v1/completions"),
}


def loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops that a run may have."""
    import uvloop

    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is sent: ``first``, then ``again`` without end, if any. ``pieces``: in so many sends, a turn apart."""

    first: bytes = b""
    again: bytes = b""
    end: Literal["keep", "close", "reset"] = "close"
    reads_request: bool = True
    pieces: int = 1


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(text: str = "x", *, finish: str = "null", usage: str = "") -> bytes:
    said = f', "usage": {usage}' if usage else ""
    return f'data: {{"choices": [{{"index": 0, "text": "{text}", "finish_reason": {finish}}}]{said}}}\n\n'.encode()


GOOD = HEAD + chunk(event()) + chunk(event(finish='"length"')) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@asynccontextmanager
async def raw_server(answer: Callable[[int], Answer]) -> AsyncIterator[str]:
    """A server whose n-th connection-or-request gets ``answer(n)``; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    listener.setblocking(False)
    tasks: set[asyncio.Task[None]] = set()
    number = iter(range(1 << 30))

    async def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while await _answer(connection, lambda: answer(next(number))):
                pass

    async def accept() -> None:
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.create_task(serve(connection))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    accepting = asyncio.create_task(accept())
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for task in (accepting, *tasks):
            task.cancel()
        await asyncio.gather(accepting, *tasks, return_exceptions=True)
        listener.close()


async def _answer(connection: socket.socket, choose: Callable[[], Answer]) -> bool:
    """Answer one request; return whether the connection goes on."""
    loop = asyncio.get_running_loop()
    request = b""
    while b"\r\n\r\n" not in request:
        if not (more := await loop.sock_recv(connection, 1 << 16)):
            return False
        request += more
    told = choose()
    head, _, body = request.partition(b"\r\n\r\n")
    size = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0] or 0)
    while told.reads_request and len(body) < size:
        body += await loop.sock_recv(connection, 1 << 16)
    step = max(len(told.first) // told.pieces, 1)
    for start in range(0, len(told.first), step):
        await loop.sock_sendall(connection, told.first[start : start + step])
        if told.pieces > 1:
            await asyncio.sleep(0)
    while told.again:
        await loop.sock_sendall(connection, told.again)
    if told.end == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return told.end == "keep"


async def sent_to(
    answer: Callable[[int], Answer],
    open_sender: Callable[[str], Sender],
    *,
    number: int = 1,
    at_once: bool = False,
    body: bytes = b"{}",
    limit: AnswerLimit | None = None,
    within_s: float = 5.0,
) -> list[Exchange]:
    """Send ``number`` requests, in turn or at once; one that takes longer than ``within_s`` fails the test."""
    exchanges = [
        Exchange(x_request_id=f"x-{row}", body=body, limit=limit or answer_limit(8)) for row in range(number)
    ]
    async with raw_server(answer) as url:
        sender = open_sender(url)
        try:
            sends: list[Awaitable[None]] = [sender.send(each) for each in exchanges]
            if at_once:
                await asyncio.wait_for(asyncio.gather(*sends), within_s)
            else:
                for send in sends:
                    await asyncio.wait_for(send, within_s)
        finally:
            await sender.close()
    return exchanges
