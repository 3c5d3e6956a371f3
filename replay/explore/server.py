"""Opening and closing the page: its socket, its token, signals."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from replay.explore.app import Place, make_app
from replay.explore.desk import Desk
from replay.explore.worker import Begun
from traces.console.listening import bound_socket

HOST = "127.0.0.1"
TOKEN_BYTES = 24
SILENT = logging.getLogger("vtwin.explore")
"""aiohttp's log of clients that do not speak HTTP is discarded."""
SILENT.setLevel(logging.CRITICAL + 1)
SHUTDOWN_PATIENCE_S = 0.5


@asynccontextmanager
async def exploring(begun: Begun, *, port: int = 0, state: str = "") -> AsyncIterator[Place]:
    """Serve the page while the context lasts; port 0 picks a free one. ConfigError on a taken port."""
    listener = bound_socket(HOST, port)
    place = Place(port=listener.getsockname()[1], token=secrets.token_urlsafe(TOKEN_BYTES), state=state)
    desk = Desk(begun)
    runner = web.AppRunner(
        make_app(place, desk), access_log=None, logger=SILENT, shutdown_timeout=SHUTDOWN_PATIENCE_S
    )
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()  # which closes the socket in the end
        desk.begin()
        yield place
    finally:
        await runner.cleanup()
        desk.close()


def run_page(begun: Begun, *, announce: Callable[[Place], None], port: int = 0, state: str = "") -> None:
    """Serve the page until SIGINT or SIGTERM; ``announce`` is called once it answers. ConfigError on a taken port."""

    async def until_told() -> None:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.set)
        async with exploring(begun, port=port, state=state) as place:
            announce(place)
            await told.wait()

    asyncio.run(until_told())
