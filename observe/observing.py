"""One observation from end to end: prepare, send, record, and say how far the numbers can be trusted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from observe.beside import BesideRecords
from observe.brake import ErrorBrake
from observe.endpoint import PATHS, Api, parse_endpoint
from observe.exchange import monotonic_ns
from observe.headers import final_header, first_header, server_change, with_remarks
from observe.plan import SendPlan
from observe.preparing import Preparation, Say, prepare
from observe.progress import Progress
from observe.record import LiveTrace
from observe.recorder import Recorder, Tallies
from observe.run import LoadRun, RunFacts
from observe.sending import open_sender
from observe.server import Questions, scrape_metrics
from observe.settings import Limits, Settings

if TYPE_CHECKING:
    from observe.metrics_text import Sample
    from traces import Header, Trace

_LEAD_NS = 50_000_000
"""From the last preparation to the run's start: the first request's task is waiting by then."""

_LAST_SCRAPE_S = 5.0
"""How long the last look at the server's counters may take: the server may be gone."""

Display = Callable[[Progress, SendPlan], AbstractContextManager[None]]
"""Shows a run while it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came of it: the trace, already written where an output was named, and what to tell the user.

    ``start_ns``: the run's start, from which the trace counts, by CLOCK_MONOTONIC. ``fault``: why the run as a
    whole cannot be taken for what was asked (stopped early, the server changed), or None.
    """

    trace: Trace
    start_ns: int
    fault: str | None
    interrupted: bool
    notes: tuple[str, ...]

    @property
    def num_ok(self) -> int:
        """Requests that were answered whole."""
        return int((self.trace.column("status") == "ok").fillna(False).sum())

    @property
    def client_limited(self) -> bool:
        """Whether the client, not the server, set the pace."""
        client = self.trace.header.client
        return client is not None and bool(client.limited)


async def observe_trace(
    workload: Trace,
    *,
    url: str,
    output: str | Path | None = None,
    model: str | None = None,
    api: Api = "completions",
    api_key: str | None = None,
    headers: Sequence[str] = (),
    limits: Limits | None = None,
) -> Trace:
    """Send the requests of ``workload`` to the server at ``url``; return the trace of what it did.

    Written to ``output`` too, if named. Raises ServerError for a server that is not there or refuses,
    TraceError for a workload that cannot be sent or an output that cannot be written, ConfigError otherwise.
    """
    settings = Settings(
        endpoint=parse_endpoint(url, api_key=api_key, headers=headers),
        api=api,
        model=model,
        limits=limits or Limits(),
    )
    return (await observe_with(workload, settings, output=output)).trace


async def observe_with(
    workload: Trace,
    settings: Settings,
    *,
    output: str | Path | None = None,
    display: Display | None = None,
    say: Say | None = None,
    handle_signals: bool = False,
) -> Observation:
    """Observe as ``settings`` say (see ``observe_trace``), shown by ``display``; ``say`` takes single lines.

    With ``handle_signals`` the first SIGINT stops sending and waits for what is under way, the second and any
    SIGTERM drop it; whatever had ended is in the trace.
    """
    questions = Questions(settings.endpoint)
    tell = say or (lambda _: None)
    try:
        ready = await prepare(workload, settings, questions, tell=tell)
        for note in ready.notes:
            tell(note)
        with _output(output) as path:
            return await _observe(
                ready,
                settings,
                questions=questions,
                path=path,
                shown=display or (lambda *_: nullcontext()),
                signals=_signals(tell) if handle_signals else (lambda _: nullcontext()),
            )
    finally:
        await questions.close()


async def _observe(
    ready: Preparation,
    settings: Settings,
    *,
    questions: Questions,
    path: Path,
    shown: Display,
    signals: Callable[[LoadRun], AbstractContextManager[None]],
) -> Observation:
    beside = BesideRecords(settings, questions)
    live = LiveTrace(path, plan=ready.plan, events=settings.events, warmup=settings.warmup)
    progress = Progress(num_planned=len(ready.plan), num_at_once=num_at_once(ready.plan))
    recorder = Recorder(
        live,
        progress,
        max_tokens=ready.plan.max_tokens,
        streaming=settings.streaming,
        awaited=ready.plan.is_awaited,
    )
    sender = open_sender(settings.endpoint, PATHS[settings.api])
    run = LoadRun(
        ready.plan,
        sender,
        progress=progress,
        on_end=recorder.put,
        limits=settings.limits,
        id_prefix=f"vtwin-{ready.salt:x}",
    )
    recorder.on_reply = run.replies.put
    recorder.on_outcome = ErrorBrake(settings.max_error_frac, run.stop).note
    header = first_header(ready, settings, sender=sender)
    try:
        with _undisturbed(), shown(progress, ready.plan), signals(run):
            header, facts = await _send(run, recorder, live=live, header=header, beside=beside)
    finally:
        await sender.close()
        live.close()
    after = await _last_scrape(questions) if ready.metrics is not None else None
    header = final_header(
        header,
        ready,
        settings=settings,
        progress=progress,
        tallies=recorder.tallies,
        facts=facts,
        after=after,
    )
    header = with_remarks(header, beside.write(path), clock_name=sender.clock_name)
    return _observation(live.finish(header), progress, facts=facts, tallies=recorder.tallies)


def num_at_once(plan: SendPlan) -> int:
    """Return how many rows are due together, so that how late they are says nothing of the client."""
    loop = plan.closed_loop
    if loop is None:
        return 0
    return len(plan) if loop.in_waves else loop.concurrency


def _observation(trace: Trace, progress: Progress, *, facts: RunFacts, tallies: Tallies) -> Observation:
    client = trace.header.client
    assert client is not None and progress.start_ns is not None  # noqa: S101  it has run
    return Observation(
        trace=trace,
        start_ns=progress.start_ns,
        fault=facts.stopped or server_change(tallies),
        interrupted=facts.interrupted,
        notes=client.notes,
    )


async def _send(
    run: LoadRun, recorder: Recorder, *, live: LiveTrace, header: Header, beside: BesideRecords
) -> tuple[Header, RunFacts]:
    """Run and record side by side; return the header with the run's start, and how the run went.

    Raises TraceError when the disk refuses a row: the run is ended then, the rows before it are kept.
    """
    start_ns = monotonic_ns() + _LEAD_NS
    header = replace(header, start_unix_us=(time.time_ns() + _LEAD_NS) // 1000)
    live.write_header(header)
    beside.start(start_ns)
    recording = asyncio.create_task(recorder.work())
    recording.add_done_callback(
        lambda task: run.abort() if not task.cancelled() and task.exception() else None
    )
    try:
        facts = await run.execute(start_ns)
    finally:
        await beside.stop()
        recorder.close()
        await asyncio.wait([recording])
    recording.result()
    return header, facts


async def _last_scrape(questions: Questions) -> list[Sample] | None:
    try:
        return await asyncio.wait_for(scrape_metrics(questions), _LAST_SCRAPE_S)
    except TimeoutError:
        return None


@contextmanager
def _output(output: str | Path | None) -> Iterator[Path]:
    if output is not None:
        yield Path(output)
        return
    with tempfile.TemporaryDirectory(prefix="vtwin-observe-") as folder:
        yield Path(folder) / "trace"


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep garbage collection out of the run and let it open as many connections as the system allows.

    What exists now is frozen: a collection in the run, should the loop make one, has little to look at.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _signals(tell: Say) -> Callable[[LoadRun], AbstractContextManager[None]]:
    """Return what makes SIGINT drain and then abort a run, and SIGTERM abort it at once."""

    @contextmanager
    def handling(run: LoadRun) -> Iterator[None]:
        interrupts = 0

        def interrupt() -> None:
            nonlocal interrupts
            interrupts += 1
            if interrupts == 1:
                tell("interrupted: waiting for the requests under way; again to drop them")
                run.drain()
            else:
                run.abort()

        def terminate() -> None:
            tell("terminated: dropping the requests under way")
            run.drain()
            run.abort()

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, terminate)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)

    return handling
