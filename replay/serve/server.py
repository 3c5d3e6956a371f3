"""Opening and closing the served twin: sockets, signals, the clock."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from aiohttp import web

from replay.serve.app import Site, make_app
from replay.serve.twin import Twin
from replay.twin.config import TwinConfig
from sim import Engine
from traces.errors import ConfigError

DEFAULT_MODEL = "vtwin"

SHUTDOWN_PATIENCE_S = 0.5
"""How long running responses may take to notice that the server ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A server that answers. ``url`` has the port it was given."""

    url: str
    model: str
    twin: Twin


@asynccontextmanager
async def serving(
    config: TwinConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    model: str = DEFAULT_MODEL,
    api_key: str | None = None,
    request_metrics: bool = False,
) -> AsyncIterator[Listening]:
    """Serve ``config`` while the context lasts; port 0 picks a free one. ConfigError on a taken port."""
    _warm_up(config)
    started_ns = time.monotonic_ns()
    twin = Twin(config.engine, config.latency, clock_us=lambda: (time.monotonic_ns() - started_ns) // 1000)
    site = Site(
        config=config,
        model=model,
        twin=twin,
        api_key=api_key,
        request_metrics=request_metrics,
        created=int(time.time()),
    )
    runner = web.AppRunner(
        make_app(site),
        access_log=None,
        handler_cancellation=True,  # a handler learns that its client is gone, and aborts the request
        shutdown_timeout=SHUTDOWN_PATIENCE_S,
    )
    listener = _bound_socket(host, port)
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()  # which closes the socket in the end
        name = f"[{host}]" if ":" in host else host
        yield Listening(url=f"http://{name}:{listener.getsockname()[1]}", model=model, twin=twin)
    finally:
        await runner.cleanup()
        twin.close()


def run_server(
    config: TwinConfig,
    *,
    announce: Callable[[Listening], None],
    host: str,
    port: int,
    model: str = DEFAULT_MODEL,
    api_key: str | None = None,
    request_metrics: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` is called once the server answers."""

    async def until_told() -> None:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.set)
        options = {"model": model, "api_key": api_key, "request_metrics": request_metrics}
        async with serving(config, host=host, port=port, **options) as listening:  # type: ignore[arg-type]
            announce(listening)
            await told.wait()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(until_told())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where it is installed: its timers keep to 0.5 ms, asyncio's run 1 ms late."""
    with suppress(ImportError):
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return None


def _bound_socket(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"--host, --port: got {host}:{port} ({reason}), expected an address to listen on"
        ) from error


def _warm_up(config: TwinConfig) -> None:
    """Compile and run the engine once, so that the first request does not pay for it."""
    engine = Engine(config.engine, config.latency, record="tokens")
    prompt = min(2, config.engine.max_model_len - 1)
    engine.submit(arrival_us=0, prompt_tokens=prompt, output_tokens=1)
    engine.advance(10**12)
    engine.take_tokens()
    engine.outcomes()
