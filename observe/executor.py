"""Executors of a run: this process alone (``SingleProcess``), or several (``observe.processes``)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import urlsplit

from observe.plan.send_plan import SendPlan
from observe.record.live_trace import LiveTrace
from observe.record.recorder import AnswerCounts, Recorder
from observe.run.dispatch import LoadRun, RunFacts
from observe.run.run_counts import Progress
from observe.senders.choose_sender import open_sender
from observe.senders.name_resolution import Resolver
from observe.settings import Settings
from traces import ProcessInfo

_LEAD_NS = 50_000_000
"""From the last preparation to the run's start: the first request's task is waiting by then."""


class Executor(Protocol):
    """Sends a plan, records what comes back, and counts both.

    ``lead_ns``: how long before the run's start ``execute`` must be called. ``sends_here``: in the loop's own thread.
    """

    lead_ns: int
    sends_here: bool

    @property
    def library(self) -> str:
        """The HTTP library, for the header."""

    @property
    def clock_name(self) -> str:
        """The clock of the stamps, for the header; exact only after the run."""

    @property
    def answer_counts(self) -> AnswerCounts:
        """What the answers were like."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes, from the run's start until the last answer is on record."""

    @property
    def processes(self) -> tuple[ProcessInfo, ...]:
        """Each process's result, if there are several; known after the run."""

    def report_outcomes(self, on_outcome: Callable[[bool], None]) -> None:
        """Call ``on_outcome`` for each request, with whether it was answered whole."""

    async def make_ready(self) -> None:
        """Prepare everything before the clock starts."""

    async def execute(self, start_ns: int) -> RunFacts:
        """Send everything and record it, due times counted from ``start_ns``.

        Raises TraceError if a row cannot be written: the run is ended then, the rows before it are kept.
        """

    def drain(self) -> None:
        """Send nothing more; wait for the requests in flight, within the limit's time."""

    def stop(self, reason: str) -> None:
        """Do the same because of a result of the run."""

    def abort(self) -> None:
        """Send nothing more and drop the requests in flight."""

    async def close(self) -> None:
        """Close every connection."""


class SingleProcess:
    """One process, one loop. Made within a running loop; ``live`` gets the rows, ``progress`` the counts."""

    lead_ns = _LEAD_NS
    sends_here = True
    processes: tuple[ProcessInfo, ...] = ()

    def __init__(
        self, plan: SendPlan, settings: Settings, *, live: LiveTrace, progress: Progress, id_prefix: str
    ) -> None:
        self._recorder = Recorder(
            live,
            progress,
            max_tokens=plan.max_tokens,
            streaming=plan.shape.streaming,
            as_completion=plan.shape.as_completion,
            num_choices=plan.shape.num_choices,
            awaited=plan.awaited_rows,
            hide=settings.endpoint.redact,
        )
        self._base = settings.endpoint.base
        self.cpu_s = 0.0
        self._sender = open_sender(settings.endpoint, settings.kind.path)
        self._run = LoadRun(
            plan,
            self._sender,
            progress=progress,
            on_end=self._recorder.put,
            limits=settings.limits,
            id_prefix=id_prefix,
        )
        self._recorder.on_reply = self._run.replies.put
        self.drain = self._run.drain
        self.stop = self._run.stop
        self.abort = self._run.abort

    @property
    def library(self) -> str:
        """What speaks HTTP."""
        return self._sender.library

    @property
    def clock_name(self) -> str:
        """Where stamps come from."""
        return self._sender.clock_name

    @property
    def answer_counts(self) -> AnswerCounts:
        """What the answers were like."""
        return self._recorder.answer_counts

    def report_outcomes(self, on_outcome: Callable[[bool], None]) -> None:
        """Call ``on_outcome`` for each request that ends."""
        self._recorder.on_outcome = on_outcome

    async def make_ready(self) -> None:
        """Look up the server's name once, so that no request waits for it."""
        parts = urlsplit(self._base)
        with contextlib.suppress(OSError):  # a request will report the error
            await Resolver().addresses(parts.hostname or "", parts.port or 0)

    async def execute(self, start_ns: int) -> RunFacts:
        """Run and record side by side (see ``Executor``)."""
        from observe.senders.going_first import step_back_when_busy

        cpu_before = time.process_time()
        recording = asyncio.create_task(self._recorder.work())
        stepping_back = asyncio.create_task(step_back_when_busy())
        recording.add_done_callback(
            lambda task: self._run.abort() if not task.cancelled() and task.exception() else None
        )
        try:
            facts = await self._run.execute(start_ns)
        finally:
            stepping_back.cancel()
            self._recorder.close()
            await asyncio.wait([recording])
            self.cpu_s = time.process_time() - cpu_before
        recording.result()
        return facts

    async def close(self) -> None:
        """Close every connection."""
        await self._sender.close()


@contextmanager
def tuned_for_a_run() -> Iterator[None]:
    """Keep garbage collection out of the run and allow as many connections as the system does.

    The present objects are frozen, so that a collection during the run has little to examine. They stay frozen if the
    caller had frozen objects of its own: Python cannot unfreeze some of them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    enabled, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not was_frozen:
            gc.unfreeze()
        if enabled:
            gc.enable()
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
