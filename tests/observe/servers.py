"""A small OpenAI-compatible server over raw asyncio streams: deterministic, and able to commit every fault.

What is sent when is decided by ``Behaviour``; a fault may be limited to some requests by number. The server
logs what it received: a test can look at the schedule and at the use of connections from the other end.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from observe import Settings, observe_with, parse_endpoint
from observe.observation import Observation
from tests.observe import kind_answers
from traces import Trace

Fault = Literal[
    "status 500",
    "status 429",
    "status 400",
    "reset after two events",
    "stall before the head",
    "stall after two events",
    "die before the head",
    "die after two events",
    "end after two events",
    "malformed event",
    "error event",
    "html",
    "redirect",
    "slow head",
    "enormous line",
    "tools only",
    "endless",
    "fewer results",
    "empty results",
    "no object",
]
METRICS = """\
# HELP vllm:num_preemptions_total Preemptions.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="tiny"} %d
vllm:generation_tokens_total{engine="0",model_name="tiny"} %d
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.7e9
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 0.0
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="512"} 1.0
"""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How the server answers. Times in s; ``fault_on``: the numbers of the requests it befalls; None: all."""

    model: str = "tiny"
    ttft_s: float = 0.0
    itl_s: float = 0.0
    tokens_per_event: int = 1
    num_at_once: int | None = None
    """Further requests wait for one of these to end."""
    role: Literal["none", "early", "with"] = "none"
    empty_first: bool = False
    usage: Literal["each", "last", "never", "zeros"] = "each"
    held_s: float | None = None
    """A proxy on the way hands on what has come by every so many s; inf: at the end."""
    hidden: int = 0
    """The first tokens are reasoning that is counted and not sent."""
    first_event: int | None = None
    ends_with: Mapping[int, str] = field(default_factory=dict)
    """The finish_reason of the requests of these numbers, after half of their tokens."""
    all_but_cached: int | None = None
    """All but so many tokens of a prompt are found in the prefix cache."""
    num_cold: int = 0
    """The first requests, whose first token takes ten times as long."""
    reasoning_key: str = "reasoning_content"
    wants_completion_limit: bool = False
    cut: int | None = None
    fault: Fault | None = None
    fault_on: frozenset[int] | None = None
    status: dict[str, int] = field(default_factory=dict)
    is_vllm: bool = True
    rejects: tuple[str, ...] = ()
    text_prompts_only: bool = False
    tokenize: bool = False
    long_words_are_two: bool = False
    early_words_are_three: bool = False
    """Words before "d" in the alphabet."""
    overhead: int = 5
    close_after_answer: bool = False
    close_on_next: bool = False
    retry_after: str | None = None
    names_tokens: bool = True
    reasoning: bool = False
    num_reasoning: int = 0
    """The first events of a chat or a response that are reasoning."""
    part_tokens: int = 0
    """Of each image or sound of a chat."""
    num_calls: int = 0
    """The tools that a response calls."""
    extras: bool = True
    fewer_tokens: int = 0
    new_fingerprint_from: int | None = None
    raw: Mapping[int, bytes] = field(default_factory=dict)
    """The whole answer, head and all, to the requests of these numbers; the connection is closed after it."""


@dataclass(kw_only=True)
class Received:
    """One generation request as the server saw it."""

    number: int
    connection: int
    at_ns: int
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    connection_use: int = 0
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    token_ids: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class FakeServer:
    """The running server."""

    behaviour: Behaviour
    url: str = ""
    requests: list[Received] = field(default_factory=list)
    num_connections: int = 0
    generated: int = 0
    asked: list[str] = field(default_factory=list)
    on_request: Callable[[Received], None] = lambda _: None
    echo_headers: bool = False
    adapters: tuple[str, ...] = ()
    more_metrics: Callable[[], str] = lambda: ""
    die: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)  # replaced by ``serving``
    seats: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    _arrivals: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def received(self, number: int) -> None:
        """Return once ``number`` generation requests have come."""
        async with self._arrivals:
            await self._arrivals.wait_for(lambda: len(self.requests) >= number)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        connection = self.num_connections
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._serve_one(reader, writer, connection):
                pass
        writer.close()

    async def _serve_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        first, *lines = head.decode().split("\r\n")
        path = first.split(" ")[1]
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.asked.append(path)
        if path in ("/v1/completions", "/v1/chat/completions") or path in kind_answers.PATHS:
            number = len(self.requests)
            received = Received(
                number=number,
                connection=connection,
                at_ns=time.monotonic_ns(),
                path=path,
                headers=headers,
                body=_asked(headers, body),
                connection_use=sum(each.connection == connection for each in self.requests),
            )
            self.requests.append(received)
            async with self._arrivals:
                self._arrivals.notify_all()
            self.on_request(received)
            if path in kind_answers.PATHS:
                await self._answer_kind(writer, received)
                return True
            return await Answering(self, writer, received).answer()
        status, answer = self._answer_question(path, json.loads(body) if body else {})
        if self.echo_headers:
            status, answer = self._echo(path, headers, status, answer)
        writer.write(whole_answer(status, answer))
        await writer.drain()
        return True

    async def _answer_kind(self, writer: asyncio.StreamWriter, received: Received) -> None:
        """Answer a request that is no completion."""
        behaviour, path = self.behaviour, received.path
        hit = behaviour.fault_on is None or received.number in behaviour.fault_on
        prompt = received.body.get("input")
        if behaviour.text_prompts_only and isinstance(prompt, list) and not isinstance(prompt[0], str | dict):
            writer.write(whole_answer(422, "input: expected a string"))
        elif behaviour.fault == "status 500" and hit:
            writer.write(whole_answer(500, '{"error": {"message": "boom"}}'))
        elif path in kind_answers.STREAMED:
            await kind_answers.write_streamed(
                writer,
                path,
                received.body,
                ttft_s=behaviour.ttft_s,
                itl_s=behaviour.itl_s,
                reasoning=behaviour.num_reasoning,
                calls=behaviour.num_calls,
                fails=behaviour.fault == "error event" and hit,
            )
        else:
            await asyncio.sleep(behaviour.ttft_s)
            missing, empty = (
                behaviour.fault == "fewer results" and hit,
                behaviour.fault == "empty results" and hit,
            )
            said = kind_answers.pooled(path, received.body, missing=int(missing), empty=empty)
            writer.write(
                whole_answer(200, "[]" if behaviour.fault == "no object" and hit else json.dumps(said))
            )
        await writer.drain()

    def _echo(self, path: str, headers: dict[str, str], status: int, answer: str) -> tuple[int, str]:
        """Say again, in answers about the server, what the client sent for it alone."""
        said = " ".join(headers.values())
        if path == "/version":
            return 200, json.dumps({"version": said[:150]})
        if path == "/metrics":
            label = said.replace('"', "").replace("\\", "")
            return 200, f'{answer}vllm:num_preemptions_total{{team="{label}"}} 5\n'
        return status, answer

    def _answer_question(self, path: str, body: dict[str, Any]) -> tuple[int, str]:
        behaviour = self.behaviour
        if path in behaviour.status:
            return behaviour.status[path], f"no {path} for you"
        owner = "vllm" if behaviour.is_vllm else "someone"
        answers = {
            "/v1/models": json.dumps(
                {
                    "data": [
                        {"id": self.behaviour.model, "owned_by": owner, "max_model_len": 4096},
                        *({"id": name, "owned_by": owner, "parent": "tiny"} for name in self.adapters),
                    ]
                }
            ),
            "/version": json.dumps({"version": "0.32.0"}),
        }
        if behaviour.is_vllm:
            answers["/metrics"] = METRICS % (len(self.requests), self.generated) + self.more_metrics()
        if path == "/tokenize" and behaviour.tokenize:
            return 200, json.dumps(self._tokenize(body))
        return (200, answers[path]) if path in answers else (404, "not found")

    def _tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens = self.tokens_of(body)
        return {"count": len(tokens), "max_model_len": 4096, "tokens": tokens}

    def tokens_of(self, body: dict[str, Any]) -> list[int]:
        """One template: two tokens before the text, the rest of the overhead behind it."""
        if "messages" not in body:
            prompt = body["prompt"]
            return prompt if isinstance(prompt, list) else self._text_tokens(prompt)
        said = [message["content"] for message in body["messages"]]
        text = " ".join(each if isinstance(each, str) else each[0]["text"] for each in said)
        parts = sum(len(each) - 1 for each in said if isinstance(each, list)) * self.behaviour.part_tokens
        return [1, 2, *self._text_tokens(text), *range(3, 1 + self.behaviour.overhead), *[9] * parts]

    def _text_tokens(self, text: str) -> list[int]:
        split, early = self.behaviour.long_words_are_two, self.behaviour.early_words_are_three
        pieces = []
        for word in text.split(" "):
            if early and "a" < word < "d":
                pieces += [word[:1], word[1:2], word[2:]]
            else:
                pieces += [word[:4], word[4:]] if split and len(word) > 6 else [word]
        return [zlib.crc32(piece.encode()) % 1000 + 10 for piece in pieces]


def _asked(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return the fields of a request, JSON or a form."""
    kind = headers.get("content-type", "")
    return kind_answers.form_of(body, kind) if kind.startswith("multipart") else dict(json.loads(body))


class Answering:
    """One answer under way."""

    def __init__(self, server: FakeServer, writer: asyncio.StreamWriter, received: Received) -> None:
        self.server = server
        self.writer = writer
        self.received = received
        self.chat = received.path.endswith("chat/completions")
        behaviour = server.behaviour
        hit = behaviour.fault_on is None or received.number in behaviour.fault_on
        self.behaviour = behaviour if hit else replace(behaviour, fault=None)
        body = received.body
        asked = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
        self.total = max(asked - behaviour.fewer_tokens, 1)
        self.reason = behaviour.ends_with.get(received.number)
        if self.reason is not None:
            self.total = max(self.total // 2, 1)
        self.prompt = len(server.tokens_of(received.body))

    async def answer(self) -> bool:
        """Answer; return whether the connection goes on."""
        behaviour = self.behaviour
        raw = behaviour.raw.get(self.received.number)
        if self.server.echo_headers and raw is None and behaviour.fault is None:
            raw = self._echoed(self.received.number % 5)
        if raw is not None:
            self.writer.write(raw)
            await self.writer.drain()
            self.writer.close()
            return False
        if behaviour.close_on_next and self.received.connection_use > 0:
            self.writer.transport.abort()  # it had made up its mind to close when the request came
            return False
        if (early := self._without_a_stream()) is not None:
            self.writer.write(early)
            await self.writer.drain()
            return True
        if behaviour.fault == "stall before the head":
            await asyncio.Event().wait()
        if behaviour.fault == "die before the head":
            self.writer.transport.abort()
            return False
        if not self.received.body.get("stream"):
            usage = {"prompt_tokens": self.prompt, "completion_tokens": self.total}
            choice: dict[str, Any] = {"message": {"content": "a"}} if self.chat else {"text": "a"}
            if self._names_tokens:
                self.received.token_ids = [self._token_id(number) for number in range(self.total)]
                choice["token_ids"] = self.received.token_ids
            said = {"choices": [{**choice, "finish_reason": "length"}], "usage": usage}
            await asyncio.sleep(behaviour.ttft_s)
            self.writer.write(whole_answer(200, json.dumps(said, indent=1)))
            await self.writer.drain()
            return True
        return await self._stream()

    def _echoed(self, way: int) -> bytes | None:
        """Return an answer that says the request's headers again: in a refusal, an error, an event, a name."""
        said = " ".join(f"{name}: {value}" for name, value in self.received.headers.items())
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
        values = [
            value for name, value in self.received.headers.items() if name not in ("content-type", "host")
        ]
        choice = {"text": "x", "finish_reason": max(values, key=len)[:150]}
        named = {"choices": [choice], "system_fingerprint": " ".join(values)[:190]}
        return {
            0: whole_answer(401, said),
            1: head + b"data: " + json.dumps({"error": {"message": said}}).encode() + b"\n\n",
            2: head + b"data: " + json.dumps(named).encode() + b"\n\n",
            3: head + f"data: {said}\n\n".encode(),
        }.get(way)

    def _without_a_stream(self) -> bytes | None:
        """Return an answer that is none of the model's, or None."""
        refusal = self._refusal()
        if refusal is not None:
            return whole_answer(*refusal, retry_after=self.behaviour.retry_after)
        if self.behaviour.fault == "redirect":
            return b"HTTP/1.1 307 Go\r\nLocation: /v1/completions?again\r\nContent-Length: 0\r\n\r\n"
        if self.behaviour.fault == "html":
            return whole_answer(200, "<html>welcome</html>", kind="text/html")
        return None

    def _refusal(self) -> tuple[int, str] | None:
        behaviour, body = self.behaviour, self.received.body
        status = behaviour.status.get(self.received.path)
        if status is not None:
            return status, f"no {self.received.path} for you"
        if behaviour.fault == "status 500":
            echo = str(self.received.headers) if self.server.echo_headers else ""
            return 500, '{"error": {"message": "boom"}}' + echo
        plain = {
            "status 429": "too many requests",
            "status 400": '{"object": "error", "message": "too long"}',
        }
        if behaviour.fault in plain:
            return int(behaviour.fault.split()[1]), plain[behaviour.fault]
        known = {**body, **body.get("stream_options", {})}
        rejected = next((name for name in behaviour.rejects if name in known), None)
        if rejected is not None:
            return 400, f"unknown parameter {rejected}"
        if behaviour.wants_completion_limit and "max_tokens" in body:
            return 400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        is_refused = behaviour.text_prompts_only and isinstance(body.get("prompt"), list)
        return (422, "prompt: expected a string") if is_refused else None

    @property
    def _names_tokens(self) -> bool:
        return bool(self.received.body.get("return_token_ids")) and self.server.behaviour.names_tokens

    def _token_id(self, number: int) -> int:
        """Tokens of an answer: no two answers are alike."""
        return 4000 + (self.received.number * 37 + number) % 96

    async def _stream(self) -> bool:
        if self.behaviour.fault == "slow head":
            for piece in (b"HTTP/1.1 200", b" OK\r\nContent-Type: text/event", b"-stream\r\nTransfer-Enco"):
                self.writer.write(piece)
                await self.writer.drain()
                await asyncio.sleep(0.02)
            self.writer.write(b"ding: chunked\r\n\r\n")
        else:
            self._write_head()
        async with self.server.seats:
            return await self._write_events()

    def _write_head(self) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )

    async def _write_events(self) -> bool:
        for number, (event, pause) in enumerate(self._as_handed_on(self._events())):
            if pause:
                await self.writer.drain()
                await asyncio.sleep(pause)
            if (
                number == 2
                and self.behaviour.fault is not None
                and not await self._commit(self.behaviour.fault)
            ):
                return False
            await self._write(event)
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        if self.behaviour.close_after_answer:
            self.writer.close()
            return False
        return True

    def _as_handed_on(self, events: list[tuple[bytes, float]]) -> list[tuple[bytes, float]]:
        """Return what a proxy on the way makes of the events: clumps, each with the pause before it."""
        held_s = self.behaviour.held_s
        if held_s is None:
            return events
        clumps: dict[float, bytes] = {}
        end = sum(pause for _, pause in events)
        now = before = 0.0
        for event, pause in events:
            now += pause
            due = min((now // held_s + 1) * held_s, end)
            clumps[due] = clumps.get(due, b"") + event
        found = []
        for due, piece in clumps.items():
            found.append((piece, due - before))
            before = due
        return found

    async def _commit(self, fault: Fault) -> bool:
        """Commit what happens in mid-stream; return whether the stream goes on."""
        if fault == "stall after two events":
            await self.writer.drain()
            await asyncio.Event().wait()
        if fault == "die after two events":
            await self.writer.drain()
            self.writer.close()
            return False
        if fault == "reset after two events":
            await self.writer.drain()
            await asyncio.sleep(0.05)  # or the reset would overtake what was written
            self.writer.transport.abort()
            return False
        if fault == "end after two events":
            self.writer.write(b"0\r\n\r\n")
            await self.writer.drain()
            self.writer.close()
            return False
        if fault == "malformed event":
            await self._write(b"data: {oops\n\n")
        if fault == "enormous line":
            await self._write(b": " + b"x" * 3_000_000 + b"\n\n")
            await self._write(b'data: {"choices": [], "padding": "' + b"y" * 3_000_000 + b'"}\n\n')
        while fault == "endless":
            await self._write(b'data: {"choices": [{"text": "x"}]}\n\n' * 50)
            await self.writer.drain()
        if fault == "error event":
            await self._write(b'data: {"error": {"message": "engine died"}}\n\n')
        return True

    def _events(self) -> list[tuple[bytes, float]]:
        """Every event and the pause before it."""
        behaviour = self.behaviour
        events: list[tuple[bytes, float]] = []
        if self.chat and behaviour.role == "early":
            events.append((self._event({"delta": {"role": "assistant", "content": ""}}, 0), 0.0))
        if behaviour.empty_first:
            events.append((self._event(self._choice(""), 0), 0.0))
        cold = self.received.number < behaviour.num_cold
        done, pause = 0, behaviour.ttft_s * (10 if cold else 1)
        while done < self.total:
            size = behaviour.tokens_per_event
            size = behaviour.first_event if behaviour.first_event and not done else size
            step = min(size, self.total - done)
            is_first = done == 0
            done += step
            if done <= behaviour.hidden:
                pause += behaviour.itl_s
                continue
            choice = self._choice("x" * step, first=is_first or done <= behaviour.num_reasoning)
            if self._names_tokens:
                choice["token_ids"] = [self._token_id(number) for number in range(done - step, done)]
                self.received.token_ids += choice["token_ids"]
            choice["finish_reason"] = (self.reason or "length") if done == self.total else None
            for index in range(self.received.body.get("n", 1)):
                events.append((self._event({**choice, "index": index}, done), 0.0 if index else pause))
            pause = behaviour.itl_s
        if behaviour.usage != "never":
            usage: dict[str, Any] = {"prompt_tokens": self.prompt, "completion_tokens": self.total}
            usage["completion_tokens"] *= self.received.body.get("n", 1)
            if behaviour.usage == "zeros":
                usage = {"prompt_tokens": 0, "completion_tokens": 0}
            elif behaviour.extras:
                kept = behaviour.all_but_cached
                usage["prompt_tokens_details"] = {"cached_tokens": 0 if kept is None else self.prompt - kept}
            if behaviour.hidden:
                usage["completion_tokens_details"] = {"reasoning_tokens": behaviour.hidden}
            closing: dict[str, Any] = {
                "choices": [],
                "usage": usage,
            }
            if behaviour.extras:
                closing["system_fingerprint"] = self._fingerprint()
                closing["metrics"] = {
                    "queue_time_ms": 1.5,
                    "time_to_first_token_ms": 2,
                    "generation_time_ms": 3,
                }
            events.append((b"data: " + json.dumps(closing).encode() + b"\n\n", 0.0))
        events.append((b"data: [DONE]\n\n", 0.0))
        return events

    def _fingerprint(self) -> str:
        changed = self.behaviour.new_fingerprint_from
        return "fp-2" if changed is not None and self.received.number >= changed else "fp-1"

    def _choice(self, text: str, *, first: bool = False) -> dict[str, Any]:
        if not self.chat:
            return {"text": text}
        role = {"role": "assistant"} if first and self.behaviour.role == "with" else {}
        if (self.behaviour.reasoning or self.behaviour.num_reasoning) and first:
            said: object = text
            if self.behaviour.reasoning_key == "reasoning_details":
                said = [{"type": "reasoning.text", "text": text}]
            if self.behaviour.reasoning_key == "thinking_blocks":
                said = [{"type": "thinking", "thinking": text}]
            return {"delta": {**role, self.behaviour.reasoning_key: said}}
        if self.behaviour.fault == "tools only":
            return {"delta": {**role, "tool_calls": [{"index": 0, "function": {"arguments": text}}]}}
        return {"delta": {**role, "content": text}}

    def _event(self, choice: dict[str, Any], done: int) -> bytes:
        event: dict[str, Any] = {"choices": [{"index": 0, "finish_reason": None, **choice}]}
        if self.behaviour.usage == "each":
            event["usage"] = {"prompt_tokens": self.prompt, "completion_tokens": done}
        return b"data: " + json.dumps(event).encode() + b"\n\n"

    async def _write(self, event: bytes) -> None:
        """Write one event, in HTTP chunks of ``cut`` bytes; remember when a text event went out."""
        if b'"text": "x' in event or b'"content": "x' in event:
            now = time.monotonic_ns()
            self.received.first_token_ns = self.received.first_token_ns or now
            self.received.last_token_ns = now
            self.server.generated += 1
        size = self.behaviour.cut or len(event)
        for start in range(0, len(event), size):
            piece = event[start : start + size]
            self.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            if self.behaviour.cut:
                await self.writer.drain()
                await asyncio.sleep(0)


def whole_answer(
    status: int, body: str, *, kind: str = "application/json", retry_after: str | None = None
) -> bytes:
    data = body.encode()
    again = b"" if retry_after is None else b"Retry-After: %b\r\n" % retry_after.encode()
    return b"HTTP/1.1 %d Said\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status,
        kind.encode(),
        again,
        len(data),
        data,
    )


@asynccontextmanager
async def serving(behaviour: Behaviour | None = None) -> AsyncIterator[FakeServer]:
    """A server on a free port of this loop; what it still answers when the block ends is cancelled."""
    server = FakeServer(behaviour=behaviour or Behaviour())
    if server.behaviour.num_at_once is not None:
        server.seats = asyncio.Semaphore(server.behaviour.num_at_once)
    answering: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        answering.add(task)
        try:
            await server.serve(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            answering.discard(task)

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"

    async def die() -> None:
        listener.close()
        for task in list(answering):
            task.cancel()
        await asyncio.gather(*answering, return_exceptions=True)

    server.die = die
    try:
        yield server
    finally:
        await die()


@contextmanager
def serving_in_thread(behaviour: Behaviour | None = None) -> Iterator[FakeServer]:
    """The same server on a loop and a thread of its own, for what blocks the test's thread."""
    started, stop = threading.Event(), asyncio.Event()
    servers: list[FakeServer] = []

    async def serve() -> None:
        async with serving(behaviour) as server:
            servers.append(server)
            loops.append(asyncio.get_running_loop())
            started.set()
            await stop.wait()

    loops: list[asyncio.AbstractEventLoop] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    started.wait()
    try:
        yield servers[0]
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join()


async def observed(
    server: FakeServer,
    trace: Trace,
    *,
    output: Path | None = None,
    tell: Callable[[str], None] | None = None,
    **how: object,
) -> Observation:
    """Observe ``trace`` at the server; ``how``: settings that are not the default."""
    settings = replace(Settings(endpoint=parse_endpoint(server.url)), **how)  # type: ignore[arg-type]
    return await observe_with(trace, settings, output=output, tell=tell)
