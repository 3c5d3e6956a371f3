"""A server of known response times, in a process of its own: ``python -m observe.selfcheck.reference_server``.

Token k of an answer is due ``first_us + k * gap_us`` after its request was whole, on absolute deadlines; a
``coalesced`` answer goes out in one write. What it did is kept per request, in ns of CLOCK_MONOTONIC, which all
processes of a machine share, and told at ``/_log``. ``/_behave`` sets the times and forgets the log. It supports only
the HTTP that the load generator needs.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
import sys
from functools import lru_cache
from lazy_dataclasses import asdict, dataclass
from typing import cast

import orjson

from observe.run.pacer import make_alarm
from observe.senders.exchange import monotonic_ns

MODEL = "truth"
CHAT_TOKENS = 256
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """When tokens are due after a request, in µs; ``coalesced``: all in one write, at ``first_us``."""

    first_us: int = 20_000
    gap_us: int = 5_000
    coalesced: bool = False


@dataclass(slots=True, kw_only=True)
class Log:
    """One answer, in ns: when its first token was due, and when its first and its last were written."""

    first_due_ns: int
    first_ns: int = 0
    last_ns: int = 0


class ReferenceServer:
    """The server: how it answers, what is due, what it did. Made within a running loop."""

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.logs: dict[str, Log] = {}
        self._due: list[tuple[int, int, StreamedAnswer]] = []
        self._numbers = itertools.count()
        self._alarm = make_alarm(self._wake_due, monotonic_ns)

    def at(self, due_ns: int, answer: StreamedAnswer) -> None:
        """Continue ``answer`` at ``due_ns``."""
        heapq.heappush(self._due, (due_ns, next(self._numbers), answer))
        if self._due[0][0] == due_ns:
            self._alarm.set(due_ns)

    def _wake_due(self) -> None:
        while self._due and self._due[0][0] <= monotonic_ns():
            answer = heapq.heappop(self._due)[2]
            answer.go_on()
        if self._due:
            self._alarm.set(self._due[0][0])


class StreamedAnswer:
    """One streamed answer under way."""

    def __init__(
        self, server: ReferenceServer, transport: asyncio.WriteTransport, *, name: str, body: bytes
    ) -> None:
        asked = orjson.loads(body)
        self._server = server
        self._transport = transport
        self._chunks = chunks_of(_num_tokens(asked), asked["max_tokens"], chat="messages" in asked)
        self._next = 0
        behaviour = server.behaviour
        first_ns = monotonic_ns() + behaviour.first_us * 1000
        self._gap_ns = behaviour.gap_us * 1000
        self._log = Log(first_due_ns=first_ns)
        self._coalesced = behaviour.coalesced
        server.logs[name or f"unnamed-{len(server.logs)}"] = self._log
        server.at(first_ns, self)

    def go_on(self) -> None:
        """Write the tokens due now, and schedule the next."""
        if self._transport.is_closing():
            return
        chunks, log = self._chunks, self._log
        last = len(chunks) - 1
        if self._next == 0:
            log.first_ns = monotonic_ns()
        if self._coalesced or self._next == last:
            log.last_ns = monotonic_ns()
            self._transport.write(_HEAD + b"".join(chunks) if self._next == 0 else chunks[last])
            return
        self._transport.write(_HEAD + chunks[0] if self._next == 0 else chunks[self._next])
        self._next += 1
        self._server.at(log.first_due_ns + self._next * self._gap_ns, self)


def _num_tokens(asked: dict[str, object]) -> int:
    """Return what a prompt counts: its ids, its words, and for a chat, whatever it shows, always as much."""
    prompt = asked.get("prompt")
    if isinstance(prompt, str):
        return len(prompt.split())
    return len(prompt) if isinstance(prompt, list) else CHAT_TOKENS


@lru_cache(maxsize=256)
def chunks_of(prompt: int, tokens: int, *, chat: bool = False) -> tuple[bytes, ...]:
    """Return one HTTP chunk per token, as vLLM words it; usage, [DONE] and the end go with the last."""
    events = [_event(prompt, done, whole=done == tokens, chat=chat) for done in range(1, tokens + 1)]
    usage = _usage(prompt, tokens)
    closing = {"id": "cmpl-1", "object": "text_completion", "model": MODEL, "choices": [], "usage": usage}
    events[-1] += _chunk(b"data: %b\n\n" % orjson.dumps(closing)) + _chunk(b"data: [DONE]\n\n") + _chunk(b"")
    return tuple(events)


def _event(prompt: int, done: int, *, whole: bool, chat: bool) -> bytes:
    reason = "length" if whole else None
    said: dict[str, object] = {"delta": {"content": " word"}} if chat else {"text": " word"}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    event = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL, "choices": [choice]}
    return _chunk(b"data: %b\n\n" % orjson.dumps(event | {"usage": _usage(prompt, done)}))


def _usage(prompt: int, done: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + done, "completion_tokens": done}


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Speaking(asyncio.Protocol):
    """One connection of the server."""

    def __init__(self, server: ReferenceServer) -> None:
        self._server = server
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end]
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            size = end + 4 + int(fields.get(b"content-length", b"0"))
            if len(self._received) < size:
                return
            body, self._received = self._received[end + 4 : size], self._received[size:]
            self._answer(head.split(b" ", 2)[1].decode(), fields.get(b"x-request-id", b"").decode(), body)

    def _answer(self, path: str, name: str, body: bytes) -> None:
        if path in ("/v1/completions", "/v1/chat/completions"):
            StreamedAnswer(self._server, self._transport, name=name, body=body)
            return
        said: object = None
        if path == "/v1/models":
            said = {"data": [{"id": MODEL, "owned_by": "vllm", "max_model_len": 1 << 20}]}
        elif path == "/_behave":
            self._server.behaviour = Behaviour(**orjson.loads(body))
            self._server.logs.clear()
            said = {}
        elif path == "/_log":
            said = {name: asdict(log) for name, log in self._server.logs.items()}
        status = b"404 Not Found" if said is None else b"200 OK"
        data = orjson.dumps(said)
        self._transport.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(data), data))


async def serve() -> None:
    """Serve on a free port of this machine, print it, and end when stdin does."""
    loop = asyncio.get_running_loop()
    server = ReferenceServer()
    listener = await loop.create_server(lambda: Speaking(server), "127.0.0.1", 0, backlog=4096)
    gc.disable()
    print(listener.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - the parent reads it
    await loop.run_in_executor(None, sys.stdin.read)
    listener.close()


if __name__ == "__main__":
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
