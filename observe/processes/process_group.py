"""Several processes that send one plan together: started, commanded, and their counts added up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from observe.plan.send_plan import PREBUILD_BYTES, SendPlan
from observe.processes.messages import (
    Abort,
    ChildJob,
    Command,
    CounterReport,
    Done,
    Drain,
    Ready,
    Refused,
    StartSignal,
    packed,
    receive,
)
from observe.processes.partition import Share, partition_cap, partition_plan
from observe.processes.progress_reports import ProgressTotals, add_up
from observe.record.recorder import AnswerCounts
from observe.result.client_verdict import process_info
from observe.run.dispatch import RunFacts
from observe.run.run_counts import Progress
from observe.senders.exchange import monotonic_ns
from observe.settings import Settings
from traces import ProcessInfo, TraceError

_LEAD_NS = 200_000_000
"""Time from the message to the start: each process has read it by then, on a busy machine too."""

_ABORT_GRACE_S = 10.0
"""How long a process may take to report its results after it was told to drop everything."""


class WorkerProcess:
    """One process of the group: the connection to it, and its messages."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.done: Done | None = None
        self.refused: Refused | None = None
        self.process: asyncio.subprocess.Process | None = None
        self.reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        """Start the process without the terminal's Ctrl-C, which its parent handles."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "observe.processes.worker", str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self.reader, self._writer = await asyncio.open_connection(sock=ours)

    def tell(self, message: bytes) -> None:
        """Send a message, if the process is still there."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(message)

    async def end(self) -> None:
        """End the process, if it has not ended by itself."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()
        if self.process is not None:
            if self.done is None and self.process.returncode is None:
                self.process.kill()
            await self.process.wait()

    def outcome(self) -> str:
        """Return how a process ended that did not finish its job."""
        code = None if self.process is None else self.process.returncode
        if code is not None and code < 0:
            return f"was killed ({signal.Signals(-code).name})"
        return f"ended early (exit code {code})"


class ProcessGroup:
    """A ``Executor`` of several processes; the files at ``path`` have been begun. Made within a running loop.

    Raises ConfigError for a cap on concurrency that leaves a process without any.
    """

    lead_ns = _LEAD_NS

    def __init__(
        self, plan: SendPlan, settings: Settings, *, path: Path, progress: Progress, id_prefix: str
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._path = path
        self._id_prefix = id_prefix
        self._progress = progress
        self._workers = [WorkerProcess(share) for share in partition_plan(plan, settings.processes)]
        self._caps = partition_cap(settings.limits.max_concurrency, len(self._workers))
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
            process_info(member.share.of(self._plan), seen, facts=None, outcome=member.outcome())
            if member.done is None
            else member.done.info
            for member, seen in zip(self._workers, self._sum.each, strict=True)
        )

    def report_outcomes(self, on_outcome: Callable[[bool], None]) -> None:
        """Call ``on_outcome`` for each request that ends, a moment later."""
        self._on_outcome = on_outcome

    async def make_ready(self) -> None:
        """Start the processes and let each build its bodies. Raises RuntimeError where one does not come up."""
        plan_without_bodies = replace(self._plan, built={})
        await asyncio.gather(*(member.start() for member in self._workers))
        for member, cap in zip(self._workers, self._caps, strict=True):
            limits = replace(self._settings.limits, max_concurrency=cap)
            job = ChildJob(
                plan=plan_without_bodies,
                share=member.share,
                settings=replace(
                    self._settings, limits=limits, engine_log=None, scrape_s=None, scrapes_vllm=False
                ),
                path=os.fspath(self._path),
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
        self._tell_all(StartSignal(start_ns=start_ns))
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

    async def _await_ready(self, member: WorkerProcess) -> None:
        assert member.reader is not None  # noqa: S101  it was hired
        said = await receive(member.reader)
        if isinstance(said, Refused):
            raise TraceError(said.message)
        if said is None:
            await member.end()
            raise RuntimeError(f"a process of the load generator {member.outcome()} before the run")
        assert isinstance(said, Ready)  # noqa: S101  the protocol
        self.library, self.clock_name = said.library, said.clock_name

    async def _listen(self, place: int, member: WorkerProcess) -> None:
        """Read a process's messages until it is gone; a failed write in one ends the run for all."""
        assert member.reader is not None  # noqa: S101  it was hired
        while (said := await receive(member.reader)) is not None:
            if isinstance(said, CounterReport):
                self._sum.take(place, said)
                for ok in said.outcomes:
                    self._on_outcome(ok)
            elif isinstance(said, Done):
                member.done = said
                self.clock_name = said.clock_name
            elif isinstance(said, Refused):
                member.refused = said
                self.abort()

    async def _kill_after_grace(self) -> None:
        """Kill the processes that have not ended a while after they were told to drop everything."""
        await self._aborted.wait()
        await asyncio.sleep(_ABORT_GRACE_S)
        for member in self._workers:
            if member.process is not None and member.process.returncode is None:
                member.process.kill()
