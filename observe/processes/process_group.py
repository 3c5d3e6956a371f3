"""Several processes that send one plan together: started, commanded, and their counts added up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from observe.plan.send_plan import PREBUILD_BYTES, SendPlan
from observe.processes.child_process import ended_words, start_child
from observe.processes.messages import (
    Abort,
    ChildJob,
    Command,
    CounterReport,
    Done,
    Drain,
    Lines,
    Ready,
    Refused,
    StartSignal,
    packed,
    receive,
)
from observe.processes.partition import Share, partition_cap, partition_plan
from observe.processes.progress_reports import ProgressTotals, add_up
from observe.record.live_trace import LiveTrace
from observe.record.recorder import AnswerCounts
from observe.result.client_verdict import process_info
from observe.run.dispatch import RunFacts
from observe.run.run_counts import Progress
from observe.senders.exchange import monotonic_ns
from observe.settings import Settings
from traces import ConfigError, ProcessInfo, TraceError

_LEAD_NS = 200_000_000
"""Time from the message to the start: each process has read it by then, on a busy machine too."""

_LEAD_OF_MACHINES_NS = 1_000_000_000
"""The same where the message passes a scheduler on its way to other machines."""

_ABORT_GRACE_S = 10.0
"""How long a process may take to report its results after it was told to drop everything."""


class GroupMember(Protocol):
    """A sender of the group, here or on another machine. ``name``: the machine's, None for this one."""

    share: Share
    done: Done | None
    refused: Refused | None
    name: str | None

    @property
    def offset_ns(self) -> int:
        """Its clock less ours."""

    async def start(self) -> str | None:
        """Start it; return a line on it, if there is something to say. Raises ConfigError."""

    def tell(self, message: bytes) -> None:
        """Send a message, if it is still there."""

    async def hear(self) -> object:
        """Return its next message, times by our clock; None if it is gone."""

    def kill(self) -> None:
        """End it at once."""

    async def end(self) -> None:
        """End it, if it has not ended by itself."""

    def outcome(self) -> str:
        """Return how it ended, if it did not finish its job."""

    def described(self, info: ProcessInfo) -> ProcessInfo:
        """Return its result with what only the group knows of it."""


class WorkerProcess:
    """One process of this machine: the connection to it, and its messages."""

    name: str | None = None
    offset_ns = 0

    def __init__(self, share: Share) -> None:
        self.share = share
        self.done: Done | None = None
        self.refused: Refused | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> str | None:
        """Start the process."""
        self.process, ours = start_child()
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        return None

    def tell(self, message: bytes) -> None:
        """Send a message, if the process is still there."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(message)

    async def hear(self) -> object:
        """Return the next message, None if the process is gone."""
        assert self._reader is not None  # noqa: S101  it was started
        return await receive(self._reader)

    def kill(self) -> None:
        """Kill the process."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    async def end(self) -> None:
        """End the process, if it has not ended by itself."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        if self.process is not None:
            if self.done is None:
                self.kill()
            await asyncio.to_thread(self.process.wait)

    def outcome(self) -> str:
        """Return how a process ended that did not finish its job."""
        return ended_words(None if self.process is None else self.process.returncode)

    def described(self, info: ProcessInfo) -> ProcessInfo:
        """Return the result as it is."""
        return info


class ProcessGroup:
    """A ``Executor`` of several processes; the files of ``live`` have been begun. Made within a running loop.

    ``members_of``: who sends the shares, on other machines; None: processes of this one. ``tell`` takes lines on them.
    Raises ConfigError for a cap on concurrency that leaves a process without any.
    """

    sends_here = False

    def __init__(
        self,
        plan: SendPlan,
        settings: Settings,
        *,
        live: LiveTrace,
        progress: Progress,
        id_prefix: str,
        members_of: Callable[[Sequence[Share]], list[GroupMember]] | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._live = live
        self._id_prefix = id_prefix
        self._progress = progress
        self._tell = tell
        self.lead_ns = _LEAD_NS if members_of is None else _LEAD_OF_MACHINES_NS
        shares = partition_plan(plan, settings.processes)
        self._workers = [WorkerProcess(each) for each in shares] if members_of is None else members_of(shares)
        limits, number = settings.limits, len(self._workers)
        self._caps = list(
            zip(
                partition_cap(limits.max_concurrency, number, option="--max-concurrency"),
                partition_cap(limits.prefill_concurrency, number, option="--prefill-concurrency"),
                strict=True,
            )
        )
        self._sum = ProgressTotals(progress, len(self._workers))
        self._interrupted = False
        self._stopped: str | None = None
        self._aborted = asyncio.Event()
        self._on_outcome: Callable[[bool], None] = lambda _: None
        self.library = "sockets and httptools"
        self.clock_name = "CLOCK_MONOTONIC"
        self.cpu_s = 0.0

    @property
    def answer_counts(self) -> AnswerCounts:
        """The quality of the answers, as far as the processes have reported."""
        return add_up([member.done.answer_counts for member in self._workers if member.done is not None])

    @property
    def processes(self) -> tuple[ProcessInfo, ...]:
        """Each process's result."""
        return tuple(
            member.described(
                process_info(member.share.of(self._plan), seen, facts=None, outcome=member.outcome())
                if member.done is None
                else member.done.info
            )
            for member, seen in zip(self._workers, self._sum.each, strict=True)
        )

    def report_outcomes(self, on_outcome: Callable[[bool], None]) -> None:
        """Call ``on_outcome`` for each request that ends, a moment later."""
        self._on_outcome = on_outcome

    async def make_ready(self) -> None:
        """Start the processes and let each build its bodies. Raises RuntimeError where one does not come up."""
        plan_without_bodies = replace(self._plan, built={})
        for line in await asyncio.gather(*(member.start() for member in self._workers)):
            if line is not None:
                self._tell(line)
        for member, (cap, in_prefill) in zip(self._workers, self._caps, strict=True):
            limits = replace(self._settings.limits, max_concurrency=cap, prefill_concurrency=in_prefill)
            job = ChildJob(
                plan=plan_without_bodies,
                share=member.share,
                settings=replace(
                    self._settings,
                    limits=limits,
                    machines=None,
                    engine_log=None,
                    scrape_s=None,
                    scrapes_vllm=False,
                ),
                path=None if member.name is not None else os.fspath(self._live.path),
                id_prefix=self._id_prefix,
                prebuild_bytes=PREBUILD_BYTES // len(self._workers),
            )
            member.tell(packed(job))
        await asyncio.gather(*(self._await_ready(member) for member in self._workers))

    async def execute(self, start_ns: int) -> RunFacts:
        """Start all processes at one moment and wait for the last (see ``Executor``)."""
        cpu_before = time.process_time()
        for progress in (self._progress, *self._sum.each):
            progress.start_ns = start_ns
        for member in self._workers:
            member.tell(packed(StartSignal(start_ns=start_ns + member.offset_ns)))
        listening = [
            asyncio.create_task(self._listen(place, member)) for place, member in enumerate(self._workers)
        ]
        killing = asyncio.create_task(self._kill_after_grace())
        try:
            await asyncio.wait(listening)
        finally:
            killing.cancel()
        for task in listening:
            task.result()
        await asyncio.gather(*(member.end() for member in self._workers))
        told = [member.done.cpu_s for member in self._workers if member.done is not None]
        self.cpu_s = time.process_time() - cpu_before + sum(told)
        self._sum.finish()
        self._progress.end_ns = monotonic_ns()
        refused = next((member.refused for member in self._workers if member.refused), None)
        if refused is not None:
            raise TraceError(refused.message)
        self._mark_lost(start_ns)
        return self._facts(start_ns)

    def drain(self) -> None:
        """Tell every process to send nothing more."""
        self._interrupted = True
        self._tell_all(Drain())

    def stop(self, reason: str) -> None:
        """Do the same because of a result of the run."""
        self._stopped = reason
        self._tell_all(Drain(reason=reason))

    def abort(self) -> None:
        """Tell every process to drop its requests in flight."""
        self._tell_all(Abort())
        self._aborted.set()

    async def close(self) -> None:
        """End the processes that have not ended."""
        await asyncio.gather(*(member.end() for member in self._workers))

    def _facts(self, start_ns: int) -> RunFacts:
        """Return the run's facts; CPU time is of all processes that reported."""
        told = [member.done.facts for member in self._workers if member.done is not None]
        assert self._progress.end_ns is not None  # noqa: S101  the run has ended
        return RunFacts(
            duration_ns=max((facts.duration_ns for facts in told), default=self._progress.end_ns - start_ns),
            cpu_s=sum(facts.cpu_s for facts in told),
            interrupted=self._interrupted,
            stopped=self._stopped,
        )

    def _tell_all(self, command: Command) -> None:
        message = packed(command)
        for member in self._workers:
            member.tell(message)

    def _mark_lost(self, start_ns: int) -> None:
        """Put on record what members that were lost have not told of, as far as it was due: nobody knows the rest."""
        assert self._progress.end_ns is not None  # noqa: S101  the run has ended
        end_us = (self._progress.end_ns - start_ns) // 1000
        for member in (member for member in self._workers if member.done is None):
            rows = [row for chain in member.share.chains for row in chain]
            due = [row for row in rows if (self._plan.due_us[row] or 0) <= end_us]
            self._progress.status["aborted"] += self._live.mark_lost(
                due, f"its sender {member.outcome()}: whether it was sent is not known"
            )

    async def _await_ready(self, member: GroupMember) -> None:
        said = await member.hear()
        if isinstance(said, Refused):
            raise TraceError(said.message)
        if said is None:
            await member.end()
            if member.name is not None:
                raise ConfigError(f"{member.name}: {member.outcome()} before the run, expected it to stay")
            raise RuntimeError(f"a process of the load generator {member.outcome()} before the run")
        assert isinstance(said, Ready)  # noqa: S101  the protocol
        self.library, self.clock_name = said.library, said.clock_name

    async def _listen(self, place: int, member: GroupMember) -> None:
        """Read a process's messages until it is gone; a failed write in one ends the run for all."""
        while (said := await member.hear()) is not None:
            if isinstance(said, CounterReport):
                self._sum.take(place, said)
                for ok in said.outcomes:
                    self._on_outcome(ok)
            elif isinstance(said, Lines):
                self._take_lines(member, said)
            elif isinstance(said, Done):
                member.done = said
                self.clock_name = said.clock_name
            elif isinstance(said, Refused):
                member.refused = said
                self.abort()
        if member.done is None and member.refused is None:
            await member.end()
            self._tell(f"{member.name or f'process {place + 1}'} {member.outcome()}: the others go on")

    def _take_lines(self, member: GroupMember, lines: Lines) -> None:
        """Add the rows of another machine to the trace."""
        try:
            self._live.append_lines(lines.rows, lines.events)
        except TraceError as fault:
            member.refused = member.refused or Refused(message=str(fault))
            self.abort()

    async def _kill_after_grace(self) -> None:
        """Kill the processes that have not ended a while after they were told to drop everything."""
        await self._aborted.wait()
        await asyncio.sleep(_ABORT_GRACE_S)
        for member in self._workers:
            member.kill()
