"""A child that sends its share of a plan: ``python -m observe.processes.worker FD``, FD a socket to its parent.

Its rows go to the run's own files, or to its parent where those are on another machine, so that rows that it had
finished remain if it is killed. When its parent is gone, it drops its requests in flight and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from dataclasses import replace

from observe.event_loop import run_on_fastest_loop
from observe.executor import SingleProcess, tuned_for_a_run
from observe.plan.send_plan import prebuild
from observe.processes.messages import (
    Abort,
    Answer,
    ChildJob,
    Done,
    Drain,
    Lines,
    Ready,
    Refused,
    StartSignal,
    packed,
    receive,
)
from observe.processes.progress_reports import Reporter
from observe.record.live_trace import LiveTrace
from observe.result.client_verdict import process_info
from observe.run.run_counts import Progress
from observe.senders.going_first import put_first
from traces import TraceError

_REPORT_EVERY_S = 0.25


class Worker:
    """One share in progress, and the connection to the parent. Made within a running loop."""

    def __init__(self, job: ChildJob, commands: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        self._commands = commands
        self._answers = answers
        self._plan = job.share.of(job.plan)
        self._progress = Progress(num_planned=len(self._plan), num_at_once=self._plan.num_at_once)
        self._reporter = Reporter(self._progress)
        prebuild(self._plan, job.prebuild_bytes)
        self._live = LiveTrace(
            job.path or "trace",  # a name that is not used
            plan=self._plan,
            events=job.settings.records_events,
            warmup=job.settings.warmup,
            writes="join" if job.path is not None else "keep",
        )
        self._executor = SingleProcess(
            self._plan, job.settings, live=self._live, progress=self._progress, id_prefix=job.id_prefix
        )
        self._executor.report_outcomes(self._reporter.outcomes.append)

    async def work(self) -> None:
        """Wait for the start, send the share, and report the result. Raises TraceError."""
        try:
            await self._executor.make_ready()
            with tuned_for_a_run(), put_first() as self._scheduling:
                self._tell(Ready(library=self._executor.library, clock_name=self._executor.clock_name))
                start = await receive(self._commands)
                if isinstance(start, StartSignal):
                    self._tell(await self._execute(start))
        finally:
            self._live.close()
            await self._executor.close()

    async def _execute(self, start: StartSignal) -> Done:
        tasks = [asyncio.create_task(self._obey()), asyncio.create_task(self._report())]
        try:
            facts = await self._executor.execute(start.start_ns)
        finally:
            for task in tasks:
                task.cancel()
        self._tell_progress()
        return Done(
            facts=facts,
            cpu_s=self._executor.cpu_s,
            answer_counts=self._executor.answer_counts,
            clock_name=self._executor.clock_name,
            info=replace(process_info(self._plan, self._progress, facts=facts), scheduling=self._scheduling),
        )

    async def _obey(self) -> None:
        """Follow the parent's messages; without a parent, stop sending."""
        while (command := await receive(self._commands)) is not None:
            if isinstance(command, Abort):
                self._executor.abort()
            elif isinstance(command, Drain) and command.reason is None:
                self._executor.drain()
            elif isinstance(command, Drain):
                self._executor.stop(command.reason or "")
        self._executor.drain()
        self._executor.abort()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_REPORT_EVERY_S)
            self._tell_progress()

    def _tell_progress(self) -> None:
        self._tell(self._reporter.report())
        rows, events = self._live.take_kept()
        if rows:
            self._tell(Lines(rows=rows, events=events))

    def _tell(self, answer: Answer) -> None:
        self._answers.write(packed(answer))


async def work(connection: socket.socket) -> None:
    """Do the job that comes over ``connection``."""
    commands, answers = await asyncio.open_connection(sock=connection)
    job = await receive(commands)
    try:
        if isinstance(job, ChildJob):
            await Worker(job, commands, answers).work()
    except TraceError as fault:
        answers.write(packed(Refused(message=str(fault))))
    finally:
        answers.close()
        with contextlib.suppress(ConnectionError):  # the parent is gone
            await answers.wait_closed()


if __name__ == "__main__":
    parent = socket.socket(fileno=int(sys.argv[1]))
    run_on_fastest_loop(lambda: work(parent))
