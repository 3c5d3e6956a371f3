"""Dask and Ray as one small interface: the workers there are, an object on each, and its methods called from here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from observe.machines.sender_relay import SenderRelay
from observe.settings import MachineCluster
from traces import ConfigError
from traces.console.cluster_library import PATIENCE_S, ClusterName, cluster_library, no_scheduler, refuse_dead


class RelayCalls(Protocol):
    """A relay far away."""

    async def ask(self, method: str, *values: object) -> Any:  # noqa: ANN401 - as the relay's method says
        """Return what the relay's method returns. Raises whatever the library makes of a worker that is gone."""


class WorkerCluster(Protocol):
    """A running cluster.

    ``workers``: the names of those that a sender can be on. ``quiet`` is held while two clocks are compared.
    """

    workers: Sequence[str]
    quiet: asyncio.Lock

    async def place(self, worker: str) -> RelayCalls:
        """Return a new relay on a worker."""

    async def has(self, worker: str) -> bool:
        """Return whether the cluster still has a worker; true where only its answers tell."""

    async def close(self) -> None:
        """Leave the cluster as it was."""


class DaskRelay:
    """A relay as an actor of Dask, which lives as long as the future of it."""

    def __init__(self, future: Any, actor: Any) -> None:  # noqa: ANN401 - of a library that may be absent
        self._future, self._actor = future, actor

    async def ask(self, method: str, *values: object) -> Any:  # noqa: ANN401
        """Return what the method returns."""
        return await getattr(self._actor, method)(*values)


class DaskCluster:
    """The workers of a Dask scheduler: one sender on each worker process."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401
        self._client = client
        self.workers: Sequence[str] = ()
        self.quiet = asyncio.Lock()

    @classmethod
    async def open(cls, library: Any, address: str) -> DaskCluster:  # noqa: ANN401
        """Join the cluster."""
        cluster = cls(await library.Client(address, asynchronous=True, timeout=PATIENCE_S))
        cluster.workers = sorted(await cluster._client.scheduler.ncores())
        cluster._client.direct_to_workers = await _all_reached(cluster.workers)
        return cluster

    async def place(self, worker: str) -> DaskRelay:
        """Return a new relay on a worker."""
        future = self._client.submit(
            SenderRelay, actor=True, workers=[worker], allow_other_workers=False, pure=False
        )
        return DaskRelay(future, await future)

    async def has(self, worker: str) -> bool:
        """Return whether the scheduler still knows the worker."""
        return worker in await self._client.scheduler.ncores()

    async def close(self) -> None:
        """Leave the scheduler."""
        await self._client.close()


async def _all_reached(addresses: Sequence[str]) -> bool:
    """Return whether each address takes a connection from here; else all calls go by the scheduler, twice the way."""
    places = [urlsplit(address) for address in addresses]
    try:
        async with asyncio.timeout(PATIENCE_S):
            for _, writer in await asyncio.gather(
                *(asyncio.open_connection(place.hostname, place.port) for place in places)
            ):
                writer.close()
    except (OSError, TimeoutError):
        return False
    return True


class RayRelay:
    """A relay as an actor of Ray."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401
        self._actor = actor

    async def ask(self, method: str, *values: object) -> Any:  # noqa: ANN401
        """Return what the method returns."""
        return await getattr(self._actor, method).remote(*values)


class RayCluster:
    """The nodes of a Ray cluster that have a core: one sender on each."""

    def __init__(self, library: Any) -> None:  # noqa: ANN401
        self._ray = library
        self.workers: Sequence[str] = ()
        self.quiet = asyncio.Lock()

    @classmethod
    async def open(cls, library: Any, address: str) -> RayCluster:  # noqa: ANN401
        """Join the cluster."""
        library.init(address=address, log_to_driver=False, logging_level="ERROR")
        cluster = cls(library)
        nodes = (node for node in library.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1)
        cluster.workers = sorted(node["NodeID"] for node in nodes)
        return cluster

    async def place(self, worker: str) -> RayRelay:
        """Return a new relay on a node."""
        strategies = import_module("ray.util.scheduling_strategies")
        where = strategies.NodeAffinitySchedulingStrategy(node_id=worker, soft=False)
        return RayRelay(self._ray.remote(SenderRelay).options(num_cpus=1, scheduling_strategy=where).remote())

    async def has(self, worker: str) -> bool:  # noqa: ARG002  as of ``WorkerCluster``
        """Return true: a call to an actor that is gone fails by itself."""
        return True

    async def close(self) -> None:
        """End the actors and leave."""
        self._ray.shutdown()


_OPEN: Final[Mapping[ClusterName, Callable[[Any, str], Awaitable[WorkerCluster]]]] = {
    "dask": DaskCluster.open,
    "ray": RayCluster.open,
}


@asynccontextmanager
async def joined(place: MachineCluster) -> AsyncIterator[WorkerCluster]:
    """Join a cluster for a while. Raises ConfigError where there is none, or none with a worker."""
    library = cluster_library(place.library, option=place.option)
    try:
        await asyncio.to_thread(refuse_dead, place.address)
        cluster: WorkerCluster = await _OPEN[place.library](library, place.address)
    except Exception as fault:  # whatever a library makes of what another kind of server says
        raise no_scheduler(place.address, fault, option=place.option) from fault
    try:
        if not cluster.workers:
            raise ConfigError(f"{place.option}: got a cluster without workers, expected at least one")
        yield cluster
    finally:
        await cluster.close()
