"""One observation from end to end: prepare, send, record, and assess how reliable the numbers are."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from functools import partial
from lazy_dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from observe.beside.recorders import Recorders
from observe.executor import Executor, SingleProcess, tuned_for_a_run
from observe.plan.send_plan import SendPlan
from observe.preparation import Preparation, Tell, prepare
from observe.record.live_trace import LiveTrace
from observe.record.trace_row import Cell
from observe.run.dispatch import RunFacts
from observe.run.preflight import need_descriptors, refuse_cap_on_waves
from observe.run.run_counts import Progress
from observe.run.wall_clock import WallClock
from observe.senders.endpoint import parse_endpoint
from observe.senders.exchange import monotonic_ns, one_line
from observe.senders.request_kinds import API
from observe.server.http_client import ServerClient
from observe.server.server_facts import scrape_metrics
from observe.settings import PROCESSES, Limits, Settings
from observe.trace_header import (
    final_header,
    first_header,
    lost_processes,
    of_client,
    server_change,
    with_remarks,
)
from traces import ConfigError, VtwinError, sole_owner, stem_of, was_cancelled
from traces.strict.arguments import ANY_TEXT, PATH, TEXT, TRACE, OfClass, takes
from traces.workload import Api

if TYPE_CHECKING:
    from observe.machines.clusters import WorkerCluster
    from observe.server.prometheus_text import Sample
    from traces import Header, Trace

_LAST_SCRAPE_S = 5.0
"""How long the last reading of the server's counters may take: the server may be gone."""

Display = Callable[[Progress, SendPlan], AbstractContextManager[None]]
"""Shows a run while it goes on."""


class ExecutorOpener(Protocol):
    """``open_executor``, told where the senders are."""

    def __call__(
        self, ready: Preparation, settings: Settings, *, live: LiveTrace, progress: Progress
    ) -> Executor:
        """Return the executor of the plan."""


class RunWatch(Protocol):
    """Looks at a run under way and may end it. Only of one process. ``has_ended``: it did."""

    has_ended: bool

    def begin(self, stop: Callable[[str], None]) -> None:
        """Take what ends the run, with the reason."""

    def note(self, row: int, cells: Mapping[str, Cell]) -> None:
        """Take the outcome of a request that has ended: its row in the plan, and the trace's columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The result: the trace, already written if an output was named, and messages for the user.

    ``start_ns``: the run's start, from which the trace counts, by CLOCK_MONOTONIC. ``fault``: why the run as a whole is
    not the requested one (stopped early, the server changed), or None. ``cpu_s``: CPU time of sending and recording, in
    all processes.
    """

    trace: Trace
    start_ns: int
    fault: str | None
    interrupted: bool
    cpu_s: float
    notes: tuple[str, ...]

    @property
    def num_ok(self) -> int:
        """Requests that were answered whole."""
        return int((self.trace.column("status") == "ok").fillna(False).sum())

    @property
    def num_failed(self) -> int:
        """Requests without a whole answer, but for those that the workload cut."""
        return len(self.trace) - self.num_ok - int(was_cancelled(self.trace).sum())

    @property
    def client_limited(self) -> bool:
        """Whether the client, not the server, set the pace."""
        client = self.trace.header.client
        return client is not None and bool(client.limited)


@takes(workload=TRACE, url=ANY_TEXT, output=PATH, model=TEXT, api=API, limits=OfClass(("Limits",), "Limits"))
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
    """Send the requests of ``workload`` to the server at ``url``; return the measured trace.

    It is also written to ``output``, if given. Raises ServerError for a server that does not answer or refuses,
    TraceError for a workload that cannot be sent or an output that cannot be written, ConfigError otherwise.
    """
    settings = Settings(
        endpoint=parse_endpoint(url, api_key=api_key, headers=headers),
        api=api,
        model=model,
        limits=limits or Limits(),
    )
    return (await observe_with(workload, settings, output=output)).trace


@takes(workload=TRACE, settings=OfClass(("Settings",), "Settings"), output=PATH)
async def observe_with(
    workload: Trace,
    settings: Settings,
    *,
    output: str | Path | None = None,
    display: Display | None = None,
    tell: Tell | None = None,
    handle_signals: bool = False,
    watch: RunWatch | None = None,
) -> Observation:
    """Observe with ``settings`` (see ``observe_trace``), shown by ``display``; ``tell`` takes single lines.

    ``watch`` sees each outcome, of a run of one process, and may end the run.
    With ``handle_signals`` the first SIGINT stops sending and waits for the requests in flight, the second and any
    SIGTERM drop them; requests that had ended are in the trace.
    """
    client = ServerClient(settings.endpoint)
    hide = settings.endpoint.redact
    say = tell or (lambda _: None)

    def tell_hidden(line: str) -> None:
        say(one_line(hide(line)))

    tell = tell_hidden
    try:
        async with AsyncExitStack() as open_for_the_run:
            path = open_for_the_run.enter_context(_output(output))
            cluster, settings = await _joined(settings, open_for_the_run)
            watch = _watch(workload, settings, watch)
            ready = await prepare(workload, settings, client, tell=tell)
            if cluster is None:  # each machine has its own
                need_descriptors(ready.plan, settings)
            for note in ready.notes:
                tell(note)
            if settings.processes > 1 and cluster is None:
                tell(f"starting {settings.processes} processes")
            return await _observe(
                ready,
                settings,
                client=client,
                path=path,
                shown=display or (lambda *_: nullcontext()),
                signals=_signals(tell) if handle_signals else (lambda _: nullcontext()),
                watch=watch,
                opened=partial(open_executor, cluster=cluster, tell=tell),
            )
    except VtwinError as error:
        raise type(error)(hide(str(error))) from error
    finally:
        await client.close()


async def _joined(settings: Settings, stack: AsyncExitStack) -> tuple[WorkerCluster | None, Settings]:
    """Return the settings' cluster, joined until the stack is left, and with how many workers. Raises ConfigError."""
    if settings.machines is None:
        return None, settings
    from observe.machines.clusters import joined

    cluster = await stack.enter_async_context(joined(settings.machines))
    return cluster, replace(settings, processes=min(len(cluster.workers), PROCESSES.most))


async def _observe(
    ready: Preparation,
    settings: Settings,
    *,
    client: ServerClient,
    path: Path,
    shown: Display,
    signals: Callable[[Executor], AbstractContextManager[None]],
    watch: RunWatch | None,
    opened: ExecutorOpener,
) -> Observation:
    recorders = Recorders(settings, client, plan=ready.plan, metrics=ready.server.metrics)
    live = LiveTrace(path, plan=ready.plan, events=settings.records_events, warmup=settings.warmup)
    progress = Progress(num_planned=len(ready.plan), num_at_once=ready.plan.num_at_once)
    executor = opened(ready, settings, live=live, progress=progress)
    if settings.max_error_frac is not None:
        from observe.run.early_stop import ErrorRateStop

        executor.report_outcomes(ErrorRateStop(settings.max_error_frac, executor.stop).note)
    if watch is not None:
        watch.begin(executor.stop)
        live.on_row = watch.note
    secrets = settings.endpoint.secrets
    header = secrets.redact_all(first_header(ready, settings, executor=executor))
    try:
        await executor.make_ready()
        wall = WallClock()
        with _tuned(executor) as scheduling, shown(progress, ready.plan), signals(executor):
            header = of_client(header, scheduling=scheduling)
            header, facts = await _execute(executor, live=live, header=header, recorders=recorders)
    finally:
        await executor.close()
        live.close()
    after = await _last_scrape(client) if ready.metrics is not None else None
    header = final_header(
        header,
        ready,
        settings=settings,
        progress=progress,
        executor=executor,
        facts=facts,
        after=after,
    )
    remarks, ended = (*recorders.write(path), *wall.notes()), watch is not None and watch.has_ended
    is_behind = ended if settings.stop_over_saturated else None
    header = with_remarks(header, remarks, clock_name=executor.clock_name, over_saturated=is_behind)
    header = recorders.told(
        header, duration_us=facts.duration_ns / 1000, output_tokens=progress.output_tokens
    )
    return _observation(live.finish(secrets.redact_all(header)), progress, facts=facts, executor=executor)


@contextmanager
def _tuned(executor: Executor) -> Iterator[str | None]:
    """Tune this process for a run, its thread too if it sends: senders elsewhere have themselves put first."""
    from observe.senders.going_first import put_first

    with tuned_for_a_run(), put_first() if executor.sends_here else nullcontext() as scheduling:
        yield scheduling


def _watch(workload: Trace, settings: Settings, given: RunWatch | None) -> RunWatch | None:
    """Return what may end the run: what was given, or what sees a server fall behind.

    Raises ConfigError where the load cannot be sent as the settings say.
    """
    refuse_cap_on_waves(workload.header.closed_loop, settings)
    if not settings.stop_over_saturated:
        return given
    if given is not None:
        raise ConfigError(
            "stop_over_saturated: got a watch beside it, expected one of them: each may end the run"
        )
    from observe.judged.over_saturation import over_saturation_watch

    return over_saturation_watch(workload)


def open_executor(
    ready: Preparation,
    settings: Settings,
    *,
    live: LiveTrace,
    progress: Progress,
    cluster: WorkerCluster | None = None,
    tell: Tell = lambda _: None,
) -> Executor:
    """Return the executor of the plan: the settings' number of processes, or the workers of ``cluster``."""
    id_prefix = f"vtwin-{ready.salt:x}"
    if settings.processes == 1 and cluster is None:
        return SingleProcess(ready.plan, settings, live=live, progress=progress, id_prefix=id_prefix)
    from observe.processes.process_group import ProcessGroup

    members_of = None
    if cluster is not None:
        from observe.machines.machine_sender import machine_senders

        members_of = partial(machine_senders, cluster=cluster)
    return ProcessGroup(
        ready.plan,
        settings,
        live=live,
        progress=progress,
        id_prefix=id_prefix,
        members_of=members_of,
        tell=tell,
    )


def _observation(trace: Trace, progress: Progress, *, facts: RunFacts, executor: Executor) -> Observation:
    client = trace.header.client
    assert client is not None and progress.start_ns is not None  # noqa: S101  it has run
    return Observation(
        trace=trace,
        start_ns=progress.start_ns,
        fault=facts.stopped or server_change(executor.answer_counts) or lost_processes(client.processes),
        interrupted=facts.interrupted,
        cpu_s=executor.cpu_s,
        notes=client.notes,
    )


async def _execute(
    executor: Executor, *, live: LiveTrace, header: Header, recorders: Recorders
) -> tuple[Header, RunFacts]:
    """Send and record; return the header with the run's start, and how the run went. Raises TraceError."""
    start_ns = monotonic_ns() + executor.lead_ns
    header = replace(header, start_unix_us=(time.time_ns() + executor.lead_ns) // 1000)
    live.write_header(header)
    recorders.start(start_ns)
    try:
        return header, await executor.execute(start_ns)
    finally:
        await recorders.stop()


async def _last_scrape(client: ServerClient) -> list[Sample] | None:
    try:
        return await asyncio.wait_for(scrape_metrics(client), _LAST_SCRAPE_S)
    except TimeoutError:
        return None


@contextmanager
def _output(output: str | Path | None) -> Iterator[Path]:
    if output is not None:
        with sole_owner(stem_of(Path(output))):
            yield Path(output)
        return
    with tempfile.TemporaryDirectory(prefix="vtwin-observe-") as folder:
        yield Path(folder) / "trace"


def _signals(tell: Tell) -> Callable[[Executor], AbstractContextManager[None]]:
    """Return a handler: SIGINT drains and then aborts a run, and SIGTERM aborts it at once."""

    @contextmanager
    def handling(run: Executor) -> Iterator[None]:
        interrupts = 0

        def interrupt() -> None:
            nonlocal interrupts
            interrupts += 1
            if interrupts == 1:
                tell("interrupted: waiting for the requests in flight; press Ctrl-C again to drop them")
                run.drain()
            else:
                run.abort()

        def terminate() -> None:
            tell("terminated: dropping the requests in flight")
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
