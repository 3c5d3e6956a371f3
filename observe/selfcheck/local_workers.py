"""A Dask scheduler and workers on this machine, for the self-check of a load that workers send."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from observe.settings import MachineCluster
from traces import ServerError
from traces.console.cluster_library import cluster_library

NUMBER: Final = 2
_START_S: Final = 60.0
_LOOK_S: Final = 0.1
_END_S: Final = 10.0
_COMMON: Final = ("--no-dashboard", "--protocol", "tcp", "--host", "127.0.0.1")


@asynccontextmanager
async def local_workers(number: int = NUMBER) -> AsyncIterator[MachineCluster]:
    """Start a scheduler and so many workers, each a process of its own; end them on leaving.

    Raises ConfigError without Dask, ServerError where they do not come up.
    """
    library = cluster_library("dask", option="selfcheck")
    with tempfile.TemporaryDirectory(prefix="vtwin-selfcheck-") as name:
        folder = Path(name)
        scheduler = await _started("dask_scheduler", folder, "--port", "0")
        workers: list[asyncio.subprocess.Process] = []
        try:
            workers += [
                await _started("dask_worker", folder, "--nthreads", "1", "--no-nanny") for _ in range(number)
            ]
            address = await asyncio.wait_for(_address(folder, library, number), _START_S)
            yield MachineCluster(library="dask", address=address)
        except TimeoutError as fault:
            raise ServerError(
                f"selfcheck: got no {number} workers of Dask in {_START_S:g} s, expected them"
            ) from fault
        finally:
            for process in (*workers, scheduler):
                await _ended(process)


async def _started(module: str, folder: Path, *words: str) -> asyncio.subprocess.Process:
    """Start a part of the cluster, which says and reads its address in a file in ``folder``."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", f"distributed.cli.{module}", *_COMMON, *words),
        *("--scheduler-file", str(folder / "scheduler.json")),
        *(("--local-directory", str(folder)) if module == "dask_worker" else ()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _address(folder: Path, library: object, number: int) -> str:
    """Return the scheduler's address once so many workers are there."""
    while not (folder / "scheduler.json").is_file():
        await asyncio.sleep(_LOOK_S)
    client = await library.Client(  # type: ignore[attr-defined]  # a library that may be absent has no types here
        scheduler_file=str(folder / "scheduler.json"), asynchronous=True, timeout=_START_S
    )
    try:
        await client.wait_for_workers(number)
        return str(client.scheduler.address)
    finally:
        await client.close()


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a part of the cluster, if it has not ended."""
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _END_S)
    except TimeoutError:
        process.kill()
        await process.wait()
