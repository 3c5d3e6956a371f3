"""Opening and closing the served twin, or a fleet of them: sockets, signals, the clock."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from aiohttp import web

from replay.serve.app import Site, make_app
from replay.serve.fleet import RealtimeFleet
from replay.serve.limits import Limits
from replay.serve.queued_fleet import QueuedFleet
from replay.serve.realtime import Realtime, RealtimeEngine
from replay.serve.twin import Twin
from replay.twin.config import TwinConfig
from sim import Engine
from sim.cluster.config import ClusterConfig, Pool
from traces.errors import ConfigError

DEFAULT_MODEL = "vtwin"
DEFAULT_LIMITS = Limits()

SILENT = logging.getLogger("vtwin.serve")
"""What aiohttp says of clients that do not speak HTTP/1.1 (routers probe for HTTP/2) is for nobody: they get a 400."""
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
    limits: Limits


@asynccontextmanager
async def serving(
    config: TwinConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    model: str = DEFAULT_MODEL,
    api_key: str | None = None,
    request_metrics: bool = False,
    limits: Limits = DEFAULT_LIMITS,
) -> AsyncIterator[Listening]:
    """Serve ``config`` while the context lasts; port 0 picks a free one. ConfigError on a taken port.

    With a cluster the server answers as the fleet behind its router.
    """
    cluster = config.cluster
    if cluster is not None:
        check_can_serve(cluster)
    pools = [Pool(engine=config.engine, latency=config.latency)] if cluster is None else list(cluster.pools)
    for pool in pools:
        _warm_up(pool)
    engines = tuple(pool.engine for pool in pools for _ in range(pool.instances))
    clock_us = _clock()

    def serves(num_keys: int) -> Realtime:
        if cluster is None:
            return RealtimeEngine(Engine(config.engine, config.latency, record="tokens"))
        kind = RealtimeFleet if cluster.flow_control is None else QueuedFleet
        return kind(cluster, num_keys=num_keys)

    has_queue, delay_us = False, 0
    if cluster is not None:
        has_queue = cluster.flow_control is not None
        _warm_up_gateway(QueuedFleet if has_queue else RealtimeFleet, cluster)
        delay_us = cluster.latency.admission_us + (0 if has_queue else cluster.latency.routing_us)
    site = Site(
        engines=engines,
        vllm_version=config.vllm_version,
        model=model,
        twin=Twin(engines, serves, clock_us=clock_us),
        api_key=api_key,
        request_metrics=request_metrics,
        created=int(time.time()),
        delay_s=delay_us / 1e6,
        has_queue=has_queue,
        limits=limits,
    )
    async with _listening(site, host=host, port=port) as listening:
        yield listening


@asynccontextmanager
async def serving_instances(
    config: TwinConfig, **options: Unpack[ServeOptions]
) -> AsyncIterator[list[Listening]]:
    """Serve each instance of the cluster as a server of its own, at ``port`` and those after it; nobody routes.

    Port 0 picks free ones. ``options``: as of ``serving``. Raises ConfigError on a taken port.
    """
    assert config.cluster is not None  # noqa: S101 - the caller has made sure
    names, first_port = iter(config.cluster.instance_names), options.get("port", 0)
    async with AsyncExitStack() as stack:
        servers: list[Listening] = []
        for pool in config.cluster.pools:
            alone = replace(config, engine=pool.engine, latency=pool.latency, cluster=None)
            for _ in range(pool.instances):
                own = ServeOptions(**options)
                own["port"] = first_port + len(servers) if first_port else 0
                server = await stack.enter_async_context(serving(alone, **own))
                servers.append(replace(server, name=next(names)))
        yield servers


def check_can_serve(cluster: ClusterConfig) -> None:
    """Raise ConfigError on what only a simulation of a whole trace can do."""
    refused = {
        "autoscaler": any(pool.autoscaler is not None for pool in cluster.pools),
        "failures": cluster.failures is not None,
        "retries": cluster.retries is not None,
        "pools: roles prefill and decode": any(pool.role != "shared" for pool in cluster.pools),
        "snapshot_interval_us: different intervals": len(
            {getattr(cluster.snapshot_interval_us, name) for name in ("queue", "kv", "cache")}
        )
        > 1,
    }
    for what, is_asked in refused.items():
        if is_asked:
            raise ConfigError(f"cluster.{what}: got it with serve, expected none: replay and run simulate it")


@asynccontextmanager
async def _listening(site: Site, *, host: str, port: int) -> AsyncIterator[Listening]:
    """Answer while the context lasts."""
    runner = web.AppRunner(
        make_app(site),
        access_log=None,
        logger=SILENT,
        handler_cancellation=True,  # a handler learns that its client is gone, and aborts the request
        shutdown_timeout=SHUTDOWN_PATIENCE_S,
    )
    listener = _bound_socket(host, port)
    try:
        await runner.setup()
        await web.SockSite(runner, listener).start()  # which closes the socket in the end
        name = f"[{host}]" if ":" in host else host
        yield Listening(url=f"http://{name}:{listener.getsockname()[1]}", model=site.model, twin=site.twin)
    finally:
        await runner.cleanup()
        site.twin.close()


def run_server(
    config: TwinConfig,
    *,
    announce: Callable[[Listening], None],
    port_per_instance: bool = False,
    **options: Unpack[ServeOptions],
) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` is called for each server once it answers.

    ``port_per_instance``: each instance of the cluster as a server of its own. ``options``: as of ``serving``.
    """

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
            await told.wait()

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


def _bound_socket(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise ConfigError(
            f"--host, --port: got {host}:{port} ({reason}), expected an address to listen on"
        ) from error


def _warm_up(pool: Pool) -> None:
    """Compile and run the engine once, so that the first request does not pay for it."""
    engine = Engine(pool.engine, pool.latency, record="tokens")
    prompt = min(2, pool.engine.max_model_len - 1)
    engine.submit(arrival_us=0, prompt_tokens=prompt, output_tokens=1)
    engine.advance(10**12)
    engine.take_tokens()
    engine.outcomes()


def _warm_up_gateway(kind: type[RealtimeFleet | QueuedFleet], cluster: ClusterConfig) -> None:
    """Load what a gateway runs, so that the first request does not wait half a second for it."""
    fleet = kind(cluster, num_keys=2)
    taken = [fleet.submit(0, prompt_tokens=1, output_tokens=1) for _ in range(2)]
    if taken[1] is not None:
        fleet.abort(0, taken[1][0])
    while (next_us := fleet.next_time_us()) is not None:
        fleet.tokens(next_us)
        fleet.exits()
