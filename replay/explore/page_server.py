"""Opening and closing the page: its socket, its token, signals."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from replay.explore.asked_run import AskedRun
from replay.explore.desk import Desk
from replay.explore.page_app import PagePlace, make_app
from replay.explore.question_process import Begun
from replay.numbers.argument_ranges import LOAD, PORT
from traces.console.listening import bound_socket
from traces.strict.arguments import PATH, TEXT, takes
from traces.workload import WorkloadOptions

HOST = "127.0.0.1"
TOKEN_BYTES = 24
SILENT = logging.getLogger("vtwin.explore")
"""aiohttp's log of clients that do not speak HTTP is discarded."""
SILENT.setLevel(logging.CRITICAL + 1)
SHUTDOWN_PATIENCE_S = 0.5


@takes(config=PATH, workload=LOAD, slo=TEXT, routing=TEXT, port=PORT)
@asynccontextmanager
async def exploring(
    config: str | Path,
    workload: WorkloadOptions,
    *,
    slo: str | None = None,
    instances: int | None = None,
    routing: str | None = None,
    port: int = 0,
) -> AsyncIterator[PagePlace]:
    """Serve the page of a twin and a load while the context lasts; ``link`` of what it yields opens it.

    ``slo``: limits of each request, ``"ttft=500ms"``. Port 0 picks a free one. Raises ConfigError on a taken port.
    """
    asked = AskedRun(config=Path(config), workload=workload, slo=slo, instances=instances, routing=routing)
    async with serving_page(Begun(asked=asked), port=port) as place:
        yield place


@asynccontextmanager
async def serving_page(begun: Begun, *, port: int = 0, state: str = "") -> AsyncIterator[PagePlace]:
    """Serve the page while the context lasts; ``state``: in its link. Raises ConfigError on a taken port."""
    listener = bound_socket(HOST, port)
    place = PagePlace(port=listener.getsockname()[1], token=secrets.token_urlsafe(TOKEN_BYTES), state=state)
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


def run_page(begun: Begun, *, announce: Callable[[PagePlace], None], port: int = 0, state: str = "") -> None:
    """Serve the page until SIGINT or SIGTERM; ``announce`` is called once it answers. ConfigError on a taken port."""

    async def until_told() -> None:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.set)
        async with serving_page(begun, port=port, state=state) as place:
            announce(place)
            await told.wait()

    asyncio.run(until_told())
