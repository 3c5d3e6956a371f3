"""What runs on a worker of a cluster: it starts a sender there, and carries the messages between it and the client.

The sender is a process of its own, the one of ``observe.processes``: the worker's own threads cannot delay its stamps,
and it ends when the worker does. Everything here is called from far: arguments and answers are plain values.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time

from observe.processes.child_process import ended_words, start_child
from traces import tool_version

LEASE_S = 15.0
"""A client that has asked for nothing for so long is gone: its sender ends."""
_HEAR_S = 0.5
"""How long ``hear`` waits for a message: the client then knows that this machine is there."""
_END_S = 5.0
_PIECE = 1 << 20


class SenderRelay:
    """An actor of Dask or Ray. ``hire`` first; made in any thread, called in the loop of its worker."""

    def __init__(self) -> None:
        self._heard_s = time.monotonic()

    async def introduce(self) -> tuple[str, str]:
        """Return vtwin's version here, and the machine's name."""
        return tool_version(), socket.gethostname()

    async def clock(self) -> int:
        """Return this machine's CLOCK_MONOTONIC, ns."""
        return time.monotonic_ns()

    async def hire(self) -> None:
        """Start the sender."""
        self._child, ours = start_child()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        self._watching = asyncio.create_task(self._watch())

    async def tell(self, message: bytes) -> None:
        """Hand the sender a message."""
        with contextlib.suppress(ConnectionError):  # it has ended, which ``hear`` says
            self._writer.write(message)
            await self._writer.drain()

    async def hear(self) -> bytes | None:
        """Return what the sender has said since; empty after a moment of silence, None once it is gone."""
        self._heard_s = time.monotonic()
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._reader.read(_PIECE), _HEAR_S) or None
        return b""

    async def end(self) -> str:
        """End the sender, if it has not ended by itself; return how it ended."""
        self._watching.cancel()
        self._writer.close()
        until = time.monotonic() + _END_S
        while self._child.poll() is None and time.monotonic() < until:
            await asyncio.sleep(0.01)
        if self._child.poll() is None:
            self._child.kill()
        return ended_words(self._child.wait())

    async def _watch(self) -> None:
        """Leave the sender alone once the client is gone: it then drops its requests and ends."""
        while time.monotonic() - self._heard_s < LEASE_S:
            await asyncio.sleep(1)
        self._writer.close()
