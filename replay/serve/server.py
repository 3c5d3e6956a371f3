"""Opening and closing the served twin, or a fleet of them: sockets, signals, the clock."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from aiohttp import web

from replay.console import ready
from replay.numbers.argument_ranges import PORT
from replay.serve.app import Site, make_app
from replay.serve.prometheus import lateness
from replay.serve.request_limits import RequestLimits
from replay.serve.senders import open_cluster
from replay.serve.twin import Twin, engines_of
from replay.twin.config_read import twin_of
from replay.twin.twin_config import TwinConfig
from sim import InvalidConfig
from sim.cluster import AlwaysAdmit, ClusterConfig, LiveCluster
from traces import ConfigError
from traces.console.listening import bound_socket
from traces.strict.arguments import TEXT, TWIN, takes
from traces.strict.tell import tell

DEFAULT_MODEL = "vtwin"
DEFAULT_LIMITS = RequestLimits()

SILENT = logging.getLogger("vtwin.serve")
"""aiohttp's log of clients that do not speak HTTP/1.1 is discarded: routers that probe for HTTP/2 get a 400."""
SILENT.setLevel(logging.CRITICAL + 1)

SHUTDOWN_PATIENCE_S = 0.5
"""How long running responses may take to notice that the server ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """A server that answers. ``url`` has the port it was given; ``name``: the instance's, if it is one of several."""

    url: str
    model: str
    twin: Twin
    name: str = ""


class ServeOptions(TypedDict, total=False):
    """Where and how to answer: address (127.0.0.1, port 0 for a free one), model, key, limits."""

    host: str
    port: int
    model: str
    api_key: str | None
    request_metrics: bool
    limits: RequestLimits


@takes(config=TWIN, host=TEXT, port=PORT, model=TEXT)
@asynccontextmanager
async def serving(
    config: TwinConfig | str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    model: str = DEFAULT_MODEL,
    api_key: str | None = None,
    request_metrics: bool = False,
    limits: RequestLimits = DEFAULT_LIMITS,
) -> AsyncIterator[Listening]:
    """Serve ``config`` while the context lasts; port 0 picks a free one. ConfigError on a taken port.

    One server is a cluster of one, a fleet answers behind its router. ConfigError on a twin that cannot be served.
    """
    config = twin_of(config)
    cluster = config.cluster
    if any(pool.engine.session_kv_ttl_us for pool in cluster.pools):
        raise ConfigError(
            "engine.session_kv_ttl_us: got a time to serve with, expected 0: clients do not name the round before"
        )
    try:
        _warm_up(open_cluster(cluster, num_keys=2))
        twin = Twin(cluster, clock_us=_clock())
    except InvalidConfig as error:  # what a cluster cannot do live, or a user's own routing function
        raise ConfigError(f"cluster.{error}") from error
    site = Site(
        engines=engines_of(cluster),
        vllm_version=config.vllm_version,
        model=model,
        twin=twin,
        api_key=api_key,
        request_metrics=request_metrics,
        created=int(time.time()),
        is_fleet=not config.is_plain_server,
        may_refuse=_may_refuse(cluster),
        limits=limits,
    )
    async with _listening(site, host=host, port=port) as listening:
        yield listening


@asynccontextmanager
async def serving_instances(
    config: TwinConfig, **options: Unpack[ServeOptions]
) -> AsyncIterator[list[Listening]]:
    """Serve each instance of the cluster as a server of its own, at ``port`` and those after it; there is no router.

    Port 0 picks free ones. ``options``: as of ``serving``. Raises ConfigError on a taken port.
    """
    names, first_port = list(config.cluster.instance_names), options.get("port", 0)
    async with AsyncExitStack() as stack:
        servers: list[Listening] = []
        for pool in config.cluster.pools:
            own_names, names = names[: pool.num_slots], names[pool.num_slots :]
            alone = replace(config, engine=pool.engine, latency=pool.latency, asked_cluster=None)
            for name in own_names[: pool.num_at_first]:
                own = ServeOptions(**options)
                own["port"] = first_port + len(servers) if first_port else 0
                server = await stack.enter_async_context(serving(alone, **own))
                servers.append(replace(server, name=name))
        yield servers


def _may_refuse(cluster: ClusterConfig) -> bool:
    """Return whether a request may end without an answer."""
    return (
        cluster.flow_control is not None or cluster.changes or not isinstance(cluster.admission, AlwaysAdmit)
    )


@asynccontextmanager
async def _listening(site: Site, *, host: str, port: int) -> AsyncIterator[Listening]:
    """Answer while the context lasts."""
    runner = web.AppRunner(
        make_app(site),
        access_log=None,
        logger=SILENT,
        auto_decompress=False,  # as in vLLM, a compressed body is not JSON; and a broken one would never end
        handler_cancellation=True,  # a handler learns that its client is gone, and aborts the request
        shutdown_timeout=SHUTDOWN_PATIENCE_S,
    )
    listener = bound_socket(host, port)
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()  # which closes the socket in the end
        name = f"[{host}]" if ":" in host else host
        yield Listening(url=f"http://{name}:{listener.getsockname()[1]}", model=site.model, twin=site.twin)
    finally:
        await runner.cleanup()
        site.twin.close()


@takes(config=TWIN)
def run_server(
    config: TwinConfig | str | Path,
    *,
    announce: Callable[[Listening], None],
    port_per_instance: bool = False,
    **options: Unpack[ServeOptions],
) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` is called for each server once it answers.

    ``port_per_instance``: each instance of the cluster as a server of its own. ``options``: as of ``serving``.
    """
    config = twin_of(config)

    async def until_told() -> None:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.set)
        async with AsyncExitStack() as stack:
            if port_per_instance:
                servers = await stack.enter_async_context(serving_instances(config, **options))
            else:
                servers = [await stack.enter_async_context(serving(config, **options))]
            for server in servers:
                announce(server)
            await _first_of(told, *(server.twin.failed for server in servers))
            if (
                late := lateness([each.send_lag for server in servers for each in server.twin.metrics])
            ) is not None:
                tell(f"serve: {late}")
            failures = [server.twin.failure for server in servers if server.twin.failure is not None]
        if failures:
            raise ConfigError(f"cluster.{failures[0]}") from failures[0]

    ready.prepare_engine(config, has_gateway=True, takes_any=True)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(until_told())


def _clock() -> Callable[[], int]:
    """Return a clock that counts µs from now."""
    started_ns = time.monotonic_ns()
    return lambda: (time.monotonic_ns() - started_ns) // 1000


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where it is installed: its timers keep to 0.5 ms, asyncio's run 1 ms late."""
    with suppress(ImportError):
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
        return factory
    return None


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of these has been set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for each in waiting:
        each.cancel()


def _warm_up(cluster: LiveCluster) -> None:
    """Compile and load the code that serves, so that the first request does not wait for it."""
    now_us = -1
    number, _ = cluster.submit(now_us, prompt_tokens=1, output_tokens=2, hash_ids=[1])
    dropped, _ = cluster.submit(now_us, prompt_tokens=1, output_tokens=1)
    cluster.abort(now_us, dropped)
    for _ in range(100):
        next_us = cluster.next_time_us()
        if next_us is None:
            break
        now_us = max(now_us, next_us)
        cluster.tokens(now_us)
        cluster.computed_prompts(now_us)
        if any(gone == number for gone, _ in cluster.exits()):
            break
    cluster.outcome(number)
    cluster.views(now_us)
    cluster.forget(number)
    cluster.load_removals()
