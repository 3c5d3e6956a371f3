"""The page is this machine's alone: its token, its host, its origin, its messages."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, WSMsgType, WSServerHandshakeError

from replay.explore.asked_run import AskedRun
from replay.explore.desk import Desk
from replay.explore.page_app import FILES, MOST_BYTES, PagePlace, make_app, question_of
from replay.explore.question_process import Begun
from tests.twins import EIGHT_SEATS
from traces.workload import WorkloadOptions

TOKEN = "a-token"  # noqa: S105 - of this test


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[PagePlace]:
    """A page whose processes have not begun: no request of these tests asks anything."""
    from aiohttp import web

    from traces.console.listening import bound_socket

    (tmp_path / "twin.yaml").write_text(EIGHT_SEATS)
    asked = AskedRun(config=tmp_path / "twin.yaml", workload=WorkloadOptions(rate=5, num_requests=50))
    listener = bound_socket("127.0.0.1", 0)
    place = PagePlace(port=listener.getsockname()[1], token=TOKEN)
    desk = Desk(Begun(asked=asked))
    runner = web.AppRunner(make_app(place, desk), access_log=None)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    yield place
    await runner.cleanup()
    desk.close()


async def status_of(place: PagePlace, path: str, **headers: str) -> int:
    async with (
        ClientSession() as session,
        session.get(f"http://127.0.0.1:{place.port}{path}", headers=headers) as got,
    ):
        return got.status


async def test_the_link_opens_the_page_and_its_files(place: PagePlace) -> None:
    for name in FILES:
        async with ClientSession() as session, session.get(place.link + name) as got:
            assert got.status == 200
            assert "script-src 'self'" in got.headers["Content-Security-Policy"]
            assert got.headers["Referrer-Policy"] == "no-referrer"
            text = await got.text()
            assert (
                "http://" not in text.replace("`ws://", "").replace("http://www.w3.org", "")
                or name == "uPlot.js"
            )
    assert await status_of(place, f"/{TOKEN}/page.html") == 404


async def test_without_the_token_nothing_is_answered(place: PagePlace) -> None:
    for path in ("/", "/page.js", "/other-token/", "/other-token/socket", f"/{TOKEN}", f"/{TOKEN}x/", "//"):
        assert await status_of(place, path) == 403, path


async def test_another_host_or_origin_is_refused(place: PagePlace) -> None:
    path = f"/{TOKEN}/"
    assert await status_of(place, path, Host=f"localhost:{place.port}") == 200
    for host in ("evil.example", f"evil.example:{place.port}", "127.0.0.1", "127.0.0.1:1"):
        assert await status_of(place, path, Host=host) == 403, host
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{place.port}"):
        assert await status_of(place, path, Origin=origin) == 403, origin


async def test_no_file_beside_the_page_s_is_given(place: PagePlace) -> None:
    for name in ("../cli.py", "..%2Fcli.py", "%2e%2e/cli.py", "uPlot.LICENSE", "page.css/x"):
        assert await status_of(place, f"/{TOKEN}/{name}") in (403, 404), name


async def test_a_socket_needs_the_page_s_own_origin(place: PagePlace) -> None:
    url = f"ws://127.0.0.1:{place.port}/{TOKEN}/socket"
    async with ClientSession() as session:
        for headers in ({}, {"Origin": "http://evil.example"}):
            with pytest.raises(WSServerHandshakeError) as refused:
                await session.ws_connect(url, headers=headers)
            assert refused.value.status == 403
        async with session.ws_connect(url, headers={"Origin": f"http://127.0.0.1:{place.port}"}) as socket:
            await socket.send_str("nothing that the page says")
            assert (await socket.receive()).type is WSMsgType.CLOSE


async def test_a_message_that_is_too_long_ends_its_socket(place: PagePlace) -> None:
    url, own = f"ws://127.0.0.1:{place.port}/{TOKEN}/socket", {"Origin": f"http://127.0.0.1:{place.port}"}
    async with ClientSession() as session, session.ws_connect(url, headers=own) as socket:
        await socket.send_str(json.dumps({"what": "turn", "turn": 1, "state": {"rate": "1" * MOST_BYTES}}))
        assert (await socket.receive()).type is WSMsgType.CLOSE


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "nul", '{"what": "turn"}', '{"what": "run", "turn": 1, "state": {}}'),
        *('{"what": "turn", "turn": "1", "state": {}}', '{"what": "turn", "turn": 1, "state": []}'),
        *(
            '{"what": "turn", "turn": 1, "state": {"rate": 5}}',
            '{"what": "turn", "turn": 1, "state": {}, "more": 1}',
        ),
        '{"what": "further", "turn": 1, "state": {}}',
        json.dumps({"what": "turn", "turn": 1, "state": {str(each): "" for each in range(101)}}),
    ],
)
def test_only_the_page_s_questions_are_read(text: str) -> None:
    assert question_of(text) is None


def test_a_state_is_texts_by_names() -> None:
    text = '{"what": "turn", "turn": 3, "state": {"rate": "5"}}'
    assert question_of(text) == ("turn", 3, {"rate": "5"})
