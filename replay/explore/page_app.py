"""The HTTP side of the page: who may ask, the page's files, and a socket over which states come and answers go."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from lazy_dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from aiohttp import WSMsgType, web

from replay.explore.desk import Desk

ASSETS = Path(__file__).with_name("assets")
FILES: Mapping[str, str] = {
    "": "page.html",
    "page.css": "page.css",
    "page.js": "page.js",
    "charts.js": "charts.js",
    "uPlot.css": "uPlot.min.css",
    "uPlot.js": "uPlot.iife.min.js",
}
"""What is served, by its address below the token."""
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
SAFE: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Headers of every answer: no script or style but the page's own, no other page around it, no address told."""
MOST_BYTES = 64 * 1024
"""The longest message that a page may send."""
MOST_SETTINGS = 100
MOST_PAGES = 16
"""Pages that may be open at a time."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePlace:
    """Where the page is: its port, the token in its link, and the state that it begins with."""

    port: int
    token: str
    state: str = ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a browser on this machine calls it."""
        return (f"127.0.0.1:{self.port}", f"localhost:{self.port}")

    @property
    def link(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self.port}/{self.token}/" + (f"#{self.state}" if self.state else "")

    def admits(self, request: web.Request) -> bool:
        """Return whether a request names this place as its host, comes from its pages, and knows the token."""
        origin = request.headers.get("Origin")
        is_own = origin is None or origin in {f"http://{each}" for each in self.hosts}
        is_here = request.headers.get("Host", "") in self.hosts
        given = request.match_info.get("token", "").encode()
        return is_own and is_here and hmac.compare_digest(given, self.token.encode())


@dataclass(slots=True)
class OpenPages:
    """The pages that are open."""

    number: int = 0
    sockets: set[web.WebSocketResponse] = field(default_factory=set)


PLACE = web.AppKey("place", PagePlace)
DESK = web.AppKey("desk", Desk)
OPEN = web.AppKey("open", OpenPages)


def make_app(place: PagePlace, desk: Desk) -> web.Application:
    """Return the application: files and a socket below the token, and 403 for everything else."""
    app = web.Application(middlewares=[_guard], client_max_size=MOST_BYTES)
    app[PLACE], app[DESK], app[OPEN] = place, desk, OpenPages()
    app.router.add_get("/{token}/socket", _socket)
    app.router.add_get("/{token}/{name:[A-Za-z.]*}", _file)
    app.on_shutdown.append(_close_pages)
    return app


@web.middleware
async def _guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer only requests of the page's own; add the headers that keep strangers' scripts out."""
    place = request.app[PLACE]
    if not place.admits(request):
        return web.Response(
            status=403, text="expected the link that vtwin explore printed, with its token\n", headers=SAFE
        )
    try:
        response = await handler(request)
    except web.HTTPException as refused:
        return web.Response(status=refused.status, text=f"{refused.reason}\n", headers=SAFE)
    if not response.prepared:
        response.headers.update(SAFE)
    return response


async def _file(request: web.Request) -> web.StreamResponse:
    name = FILES.get(request.match_info["name"])
    if name is None:
        raise web.HTTPNotFound
    path = ASSETS / name
    return web.Response(body=path.read_bytes(), content_type=TYPES[path.suffix], charset="utf-8")


async def _socket(request: web.Request) -> web.StreamResponse:
    """Take a page's states and send their answers; one that comes from elsewhere names no origin of ours."""
    pages, desk = request.app[OPEN], request.app[DESK]
    if request.headers.get("Origin") is None:
        raise web.HTTPForbidden
    if len(pages.sockets) >= MOST_PAGES:
        raise web.HTTPTooManyRequests
    socket = web.WebSocketResponse(max_msg_size=MOST_BYTES, heartbeat=30.0, compress=False)
    try:
        await socket.prepare(request)
    except UnicodeEncodeError:  # a header that is no UTF-8, which aiohttp's own refusal repeats
        raise web.HTTPBadRequest from None
    pages.sockets.add(socket)
    page = desk.join(socket.send_str)
    try:
        async for message in socket:
            asked = question_of(message.data) if message.type is WSMsgType.TEXT else None
            if asked is None:
                await socket.close(code=1008, message=b"expected a question of the page's own")
                break
            desk.ask(page, *asked)
    finally:
        pages.sockets.discard(socket)
        desk.leave(page)
    return socket


def question_of(text: str) -> tuple[str, int, dict[str, str]] | None:
    """Return what a page asks, its number, and a state: texts by names; None where a message is anything else."""
    try:
        said: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(said, dict) or said.keys() != {"what", "turn", "state"}:
        return None
    what, turn, state = said["what"], said["turn"], said["state"]
    if (
        what not in ("form", "turn", "document", "build")
        or not isinstance(turn, int)
        or not isinstance(state, dict)
    ):
        return None
    if len(state) > MOST_SETTINGS or not all(isinstance(each, str) for each in state.values()):
        return None
    return what, turn, state


async def _close_pages(app: web.Application) -> None:
    for socket in list(app[OPEN].sockets):
        await socket.close(code=1001, message=b"vtwin explore has ended")
