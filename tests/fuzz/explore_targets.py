"""What reaches the page of ``vtwin explore``: strangers are refused whatever they send, any question is answered."""

from __future__ import annotations

import asyncio
import logging
import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
from aiohttp import web
from hypothesis import strategies as st

from replay.explore.asked_run import AskedRun
from replay.explore.desk import Desk, OpenPage
from replay.explore.page_app import FILES, MOST_SETTINGS, PagePlace, make_app, question_of
from replay.explore.question_process import Begun
from replay.explore.state_answers import StateAnswers
from tests.fuzz.target import Target, damaged
from tests.twins import EIGHT_SEATS
from traces import ConfigError, TraceError
from traces.console.listening import bound_socket
from traces.workload import WorkloadOptions

_TOKEN = "a-token"  # noqa: S105 - of these inputs
_QUIET = logging.getLogger("tests.fuzz.explore")
_QUIET.setLevel(logging.CRITICAL + 1)
_PATIENCE_S = 0.25
"""What has no answer by then is taken for a request that is not whole."""

_HEAD = b"GET /a-token/%s HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n"
_OPENING = (
    b"Origin: http://127.0.0.1:PORT\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_ASKED = b'{"what":"turn","turn":1,"state":{"rate":"5"}}'
_FRAME = bytes([0x81, 0x80 | len(_ASKED), 0, 0, 0, 0]) + _ASKED  # a text, whole, with a mask of zeros
_REQUESTS = (
    _HEAD % b"" + b"\r\n",
    _HEAD % b"page.js" + b"Origin: http://localhost:PORT\r\nAccept: */*\r\n\r\n",
    _HEAD % b"socket" + _OPENING,
    _HEAD % b"socket" + _OPENING + _FRAME,
    b"POST /a-token/ HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: 2\r\n\r\n{}",
)
_STRANGE = (
    *(
        b"/",
        b"//",
        b"/a-token",
        b"/A-TOKEN/",
        b"/a%2dtoken/",
        b"/../a-token/",
        b"/%ED%A0%80/",
        b"/a-token/%00",
    ),
    *(b"evil.example", b"evil.example:PORT", b"localhost:PORT", b"[::1]:PORT", b"127.0.0.1", b"null"),
    *(b"http://evil.example", b"https://127.0.0.1:PORT", b"HTTP/1.0", b"HTTP/2.0", b"POST", b"OPTIONS"),
    *(b"Transfer-Encoding: chunked", b"Content-Length: 99999999999", b"Expect: 100-continue", b"Host: x"),
    *(bytes([0x81, 0xFF]), bytes([0x82, 0x80, 0, 0, 0, 0]), bytes([0x88, 0x80, 0, 0, 0, 0]), b"\xc1\xff"),
)
_QUESTIONS = (
    _ASKED,
    b'{"what": "form", "turn": 0, "state": {}}',
    b'{"what": "turn", "turn": 2, "state": {"max_num_seqs": "4", "slo_ttft": "500", "instances": "2"}}',
    b'{"what": "document", "turn": 3, "state": {"routing": "random", "instances": "2", "num_requests": "9"}}',
    b'{"what": "turn", "turn": 5, "state": {"twin.latency.model": "roofline", "twin.hardware.gpu": "H100", '
    b'"twin.latency.model_config": "Qwen/Qwen2.5-7B-Instruct", "twin.engine.max_num_seqs": "64", "rate": "4"}}',
    b'{"what": "form", "turn": 6, "state": {"twin.latency.model": "blackbox"}}',
    b'{"what": "build", "turn": 4, "state": {"latency.model": "roofline", "hardware.gpu": "H100", '
    b'"latency.model_config": "Qwen/Qwen2.5-7B-Instruct", "engine.max_num_seqs": "64"}}',
)
_WORDS = (
    *(b"turn", b"form", b"document", b"build", b"further", b"state", b"what", b"rate", b"sessions", b"tp"),
    *(
        b"gpu",
        b"model",
        b"instances",
        b"engine.block_size",
        b"twin.engine.block_size",
        b"twin.",
        b"mine.py:Model",
        b"../twin.yaml",
        b"cost: [x",
    ),
    *(b'"\\u0000"', b'"\\u2028"', b'"1e-9"', b'"0x10"', b'" 5 "', b'"\xd9\xa3"'),
)


class _NotedDesk(Desk):
    """A desk that computes nothing, and keeps what reaches it."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__(Begun(asked=AskedRun(config=Path("twin.yaml"), workload=WorkloadOptions())))
        self.kept: list[tuple[OpenPage, str, int, Mapping[str, str]]] = []

    def ask(self, page: OpenPage, what: str, turn: int, state: Mapping[str, str]) -> None:
        """Keep a question."""
        self.kept.append((page, what, turn, state))


def _is_question(what: str, turn: int, state: Mapping[str, str]) -> None:
    """Raise AssertionError on what no page of vtwin's asks."""
    assert what in ("form", "turn", "document", "build")
    assert isinstance(turn, int)
    assert len(state) <= MOST_SETTINGS
    assert all(isinstance(text, str) for pair in state.items() for text in pair)


@asynccontextmanager
async def _page() -> AsyncIterator[int]:
    """Serve a page whose desk computes nothing; yield its port."""
    listener = bound_socket("127.0.0.1", 0)
    port = int(listener.getsockname()[1])
    desk = _NotedDesk()
    app = make_app(PagePlace(port=port, token=_TOKEN), desk)
    runner = web.AppRunner(app, access_log=None, logger=_QUIET, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield port
    finally:
        await runner.cleanup()
    for _, what, turn, state in desk.kept:
        _is_question(what, turn, state)


async def _sent(port: int, data: bytes) -> bytes:
    """Return what is answered to these bytes first; nothing where they are no whole request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await asyncio.wait_for(reader.read(1 << 16), _PATIENCE_S)
    except (TimeoutError, ConnectionError):
        return b""
    finally:
        writer.close()


def _is_own(data: bytes, port: int) -> bool:
    """Return whether bytes ask for one of the page's files or its socket, at its address, from no other page."""
    head = data.partition(b"\r\n\r\n")[0]
    names = "|".join(re.escape(name) for name in (*FILES, "socket"))
    here = rb"(?:127\.0\.0\.1|localhost):%d" % port
    asked = re.search(rb"(?:GET|HEAD) \S*/a(?:-|%%2[dD])token/(?:%s)[?# ]" % names.encode(), head)
    host = re.search(rb"(?im)^host:[ \t]*%s[ \t]*\r?$" % here, head)
    origins = re.findall(rb"(?im)^origin:[ \t]*([^\r\n]*)", head)
    are_own = all(re.fullmatch(rb"http://%s[ \t]*" % here, each) for each in origins[:1])
    return asked is not None and host is not None and are_own


async def _asked(data: bytes) -> None:
    async with _page() as port:
        sent = data.replace(b"PORT", b"%d" % port)
        answer = await _sent(port, sent)
        status = re.match(rb"HTTP/\d\.\d (\d{3}) ", answer)
        assert not answer or status is not None, answer[:80]
        if status is not None:
            assert int(status[1]) < 500, answer[:80]
            assert int(status[1]) >= 400 or int(status[1]) == 100 or _is_own(sent, port), (sent, answer[:80])
        well = (_HEAD % b"" + b"\r\n").replace(b"PORT", b"%d" % port)
        assert (await _sent(port, well) or b"HTTP/1.1 200").startswith(b"HTTP/1.1 200")  # still answers


def _request(data: bytes) -> None:
    """Any bytes on the page's port: no fault of the server, and nothing given to who may not have it."""
    asyncio.run(_asked(data))


def _question(data: bytes) -> None:
    """Any text on the page's socket: it is none of the page's, or has messages that can be sent."""
    asked = question_of(data.decode(errors="replace"))
    if asked is None:
        return
    _is_question(*asked)
    what, turn, state = asked
    with tempfile.TemporaryDirectory() as folder:
        (config := Path(folder) / "twin.yaml").write_text(EIGHT_SEATS)
        first = AskedRun(config=config, workload=WorkloadOptions(rate=5, num_requests=20))
        try:
            messages = [each for each in StateAnswers(first, None).to(what, state) if each is not None]
        except (ConfigError, TraceError) as refused:
            assert "got" in str(refused) or "expected" in str(refused)
            return
        for each in messages:
            assert orjson.loads(orjson.dumps({**each, "turn": turn}))["turn"] == turn


@st.composite
def _strangers(draw: st.DrawFn) -> bytes:
    """Draw a whole request that is right but for one thing: its path, its host or its origin."""
    path, host, origin = b"/a-token/", b"127.0.0.1:PORT", b"http://localhost:PORT"
    which = draw(st.sampled_from(("path", "host", "origin")))
    if which == "path":
        path = draw(st.sampled_from((b"/", b"//", b"/a-toke/", b"/a-tokens/", b"/A-TOKEN/", b"/%ED%A0%80/")))
    elif which == "host":
        host = draw(st.sampled_from((b"evil.example:PORT", b"127.0.0.1", b"[::1]:PORT", b"localhost:1", b"")))
    else:
        origin = draw(st.sampled_from((b"null", b"http://evil.example", b"https://localhost:PORT", b"")))
    name = draw(st.sampled_from((b"", b"page.js")))
    return b"GET %s%s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\n\r\n" % (path, name, host, origin)


_ODD = st.sampled_from((None, True, -1, 5, 1.5, "", "5", "form", [], {}, ["5"], {"rate": 5}, {"rate": None}))


@st.composite
def _odd_questions(draw: st.DrawFn) -> bytes:
    """Draw a question with one of its parts of another kind."""
    said: dict[str, object] = {"what": "turn", "turn": 1, "state": {"rate": "5"}}
    said[draw(st.sampled_from(("what", "turn", "state")))] = draw(_ODD)
    return orjson.dumps(said)


TARGETS = [
    Target("explore-request", _strangers() | damaged(_REQUESTS, tokens=_STRANGE), _request),
    Target(
        "explore-question", _odd_questions() | damaged(_QUESTIONS, tokens=_WORDS, most_edits=3), _question
    ),
]
