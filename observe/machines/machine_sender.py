"""A sender on another machine, as one of a ``ProcessGroup``."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from observe.machines.clocks import ClockOffset, RoundTrip, offset_of
from observe.machines.clusters import RelayCalls, WorkerCluster
from observe.processes.messages import CounterReport, Done, Refused, receive
from observe.processes.partition import Share
from observe.processes.process_group import GroupMember
from observe.senders.exchange import monotonic_ns
from traces import ConfigError, ProcessInfo, cut, tool_version

Said = TypeVar("Said")

START_S = 60.0
"""How long a worker may take to begin: it may have to import everything first."""
SILENCE_S = 10.0
"""A machine that has not answered for so long is lost; one that the cluster misses is lost at once."""
_LOOK_S = 0.7
_TRIPS = 100


class MachineSender:
    """A sender on ``worker``; see ``GroupMember``. ``name``: the machine's and the worker's."""

    def __init__(self, share: Share, *, cluster: WorkerCluster, worker: str) -> None:
        self.share = share
        self.done: Done | None = None
        self.refused: Refused | None = None
        self.name: str | None = worker
        self._cluster, self._worker = cluster, worker
        self._reader = asyncio.StreamReader()
        self._to_tell: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._clock: ClockOffset | None = None
        self._drift_ns: int | None = None
        self._outcome: str | None = None
        self._has_ended = False

    @property
    def offset_ns(self) -> int:
        """The machine's CLOCK_MONOTONIC less ours."""
        return 0 if self._clock is None else self._clock.offset_ns

    async def start(self) -> str:
        """Start the sender, compare the clocks, and say who it is. Raises ConfigError."""
        try:
            self._clock = await self._unless_lost(self._hired(), within_s=START_S)
        except ConfigError:
            raise
        except (
            Exception
        ) as fault:  # whatever the libraries make of a worker without vtwin, or one that is gone
            said = cut(f"{type(fault).__name__}: {fault}")
            raise ConfigError(
                f"{self.name}: got {said}, expected a worker with vtwin {tool_version()}"
            ) from fault
        self._tasks = [asyncio.create_task(self._tell_in_turn()), asyncio.create_task(self._listen())]
        error_ms = self._clock.error_ns / 1e6
        return f"{self.name}: its clock is ours {self.offset_ns / 1e9:+.6f} s, to {error_ms:.2f} ms"

    def tell(self, message: bytes) -> None:
        """Send a message, if the machine is still there."""
        self._to_tell.put_nowait(message)

    async def hear(self) -> object:
        """Return the next message, its times by our clock; None if the sender is gone."""
        said = await receive(self._reader)
        return self._by_our_clock(said) if isinstance(said, CounterReport) else said

    def kill(self) -> None:
        """Give the sender up."""
        self._lose("did not end when it was told to")

    async def end(self) -> None:
        """End the sender, if it has not ended by itself, and compare the clocks again."""
        if self._has_ended or not self._tasks:
            return
        self._has_ended = True
        if self._outcome is None:
            with contextlib.suppress(Exception):  # a machine that is lost now cannot be asked
                again = await self._unless_lost(self._compare_clocks(), within_s=SILENCE_S)
                self._drift_ns = again.offset_ns - self.offset_ns
                self._outcome = await self._unless_lost(self._relay.ask("end"), within_s=SILENCE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def outcome(self) -> str:
        """Return how a sender ended that did not finish its job."""
        return self._outcome or "was lost"

    def described(self, info: ProcessInfo) -> ProcessInfo:
        """Return its result with the machine and its clock."""
        assert self._clock is not None  # noqa: S101  it was started
        return replace(
            info,
            machine=self.name,
            clock_offset_us=self._clock.offset_ns / 1000,
            clock_error_us=self._clock.error_ns / 1000,
            clock_drift_us=None if self._drift_ns is None else self._drift_ns / 1000,
        )

    async def _hired(self) -> ClockOffset:
        """Place the relay, have it start the sender, and return how far its clock is from ours."""
        self._relay: RelayCalls = await self._cluster.place(self._worker)
        version, host = await self._relay.ask("introduce")
        if version != tool_version():
            raise ConfigError(f"{self._worker}: got vtwin {version}, expected {tool_version()} as here")
        self.name = f"{host}, {self._worker}"
        await self._relay.ask("hire")
        return await self._compare_clocks()

    async def _compare_clocks(self) -> ClockOffset:
        async with (
            self._cluster.quiet
        ):  # one machine at a time: a question that waits for another's has a longer way
            trips = [
                RoundTrip(monotonic_ns(), await self._relay.ask("clock"), monotonic_ns())
                for _ in range(_TRIPS)
            ]
        return offset_of(trips)

    async def _tell_in_turn(self) -> None:
        while True:
            with contextlib.suppress(Exception):  # ``_listen`` says that it is gone
                await self._relay.ask("tell", await self._to_tell.get())

    async def _listen(self) -> None:
        """Take what the sender says until it is gone, or the machine."""
        try:
            while (said := await self._unless_lost(self._relay.ask("hear"), within_s=SILENCE_S)) is not None:
                self._reader.feed_data(said)
            self._reader.feed_eof()
        except Exception:
            self._lose("was lost")

    async def _unless_lost(self, asked: Coroutine[Any, Any, Said], *, within_s: float) -> Said:
        """Return what was asked for. Raises OSError once the cluster has lost the worker, or is silent for so long."""
        asking = asyncio.ensure_future(asked)
        until_ns = monotonic_ns() + round(within_s * 1e9)
        while not asking.done():
            await asyncio.wait([asking], timeout=_LOOK_S)
            if not asking.done() and (monotonic_ns() > until_ns or not await self._cluster.has(self._worker)):
                asking.cancel()
                raise OSError("the worker is gone")
        return asking.result()

    def _lose(self, outcome: str) -> None:
        self._outcome = self._outcome or outcome
        if not self._reader.at_eof():
            self._reader.feed_eof()

    def _by_our_clock(self, report: CounterReport) -> CounterReport:
        tails = dict(report.tails)
        for name in (name for name in tails if name.endswith("_ns")):
            moments = array("q", tails[name])
            tails[name] = array("q", (moment - self.offset_ns for moment in moments)).tobytes()
        return replace(report, tails=tails)


def machine_senders(shares: Sequence[Share], *, cluster: WorkerCluster) -> list[GroupMember]:
    """Return who sends each share: the first workers of a cluster, where there are more of them than shares."""
    return [
        MachineSender(share, cluster=cluster, worker=worker)
        for share, worker in zip(shares, cluster.workers, strict=False)
    ]
