"""Where the runs of a sweep are simulated: in processes of this machine, or of many."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Literal

from replay.sweeps.grid import SweepRun
from replay.sweeps.one_run import Row, as_row, row_of
from traces import ConfigError
from traces.console.cluster_library import PATIENCE_S, cluster_library, no_scheduler, refuse_dead

KILLED = "its process was killed (for lack of memory?)"
Backend = Literal["processes", "dask", "ray"]


def rows_of(
    runs: Sequence[SweepRun], *, backend: Backend, jobs: int, address: str | None = None
) -> Iterator[Row]:
    """Yield the runs' rows as they are finished.

    ``jobs``: processes of this machine, where ``address`` names no cluster. Raises ConfigError without the library.
    """
    runs = _by_load(runs)
    if backend == "dask":
        return _by_dask(runs, jobs=jobs, address=address)
    if backend == "ray":
        return _by_ray(runs, jobs=jobs, address=address)
    if address is not None:
        raise ConfigError("--address: needs --backend dask or ray")
    return _here(runs) if jobs == 1 or len(runs) == 1 else _by_processes(runs, jobs=jobs)


def _by_load(runs: Sequence[SweepRun]) -> list[SweepRun]:
    """Return the runs of equal requests in sequence, so that a process draws these once."""
    places = {load: place for place, load in enumerate(dict.fromkeys(run.load for run in runs))}
    return sorted(runs, key=lambda run: places[run.load])


def _here(runs: Sequence[SweepRun]) -> Iterator[Row]:
    for run in runs:
        yield row_of(run)


def _by_processes(runs: Sequence[SweepRun], *, jobs: int) -> Iterator[Row]:
    """Yield rows as they are finished; a run whose process is killed is tried again, in the end alone and twice."""
    left, num_at_once, tried_alone = list(runs), min(jobs, len(runs)), set[SweepRun]()
    while left:
        here = left if num_at_once > 1 else left[:1]
        killed: dict[SweepRun, BrokenProcessPool] = {}
        for run, ended in _in_processes(here, num_at_once=num_at_once):
            if isinstance(ended, BrokenProcessPool):
                killed[run] = ended
            else:
                yield as_row(run, ended) if isinstance(ended, BaseException) else ended
        if num_at_once == 1:
            again = [run for run in killed if run not in tried_alone]
            tried_alone.update(again)
            yield from ({**as_row(run, killed[run]), "error": KILLED} for run in killed if run not in again)
            left = [*again, *left[1:]]
        else:
            num_at_once = 1 if len(killed) == len(left) else num_at_once
            left = list(killed)


def _in_processes(
    runs: Sequence[SweepRun], *, num_at_once: int
) -> Iterator[tuple[SweepRun, Row | BaseException]]:
    """Yield each run with its row, or its error: of all that are left, if one process is killed."""
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(max_workers=num_at_once, mp_context=context)
    waiting: dict[Future[Row], SweepRun] = {}
    refused: dict[SweepRun, BaseException] = {}
    try:
        with _interrupts_held():  # the workers start with the first run, and inherit it
            for run in runs:
                try:
                    waiting[executor.submit(row_of, run)] = run
                except BrokenProcessPool as error:
                    refused[run] = error
        for done in as_completed(waiting):
            yield waiting[done], done.exception() or done.result()
        yield from refused.items()
    except (KeyboardInterrupt, GeneratorExit):
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C; processes that are started meanwhile never receive it, and the parent ends them.

    A worker that is interrupted while it takes its next run would leave the others waiting.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _by_dask(runs: Sequence[SweepRun], *, jobs: int, address: str | None) -> Iterator[Row]:
    distributed = cluster_library("dask", option="--backend dask")
    given = (
        {"address": address}
        if address
        else {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    )
    try:
        refuse_dead(address)
        client = distributed.Client(**given, timeout=PATIENCE_S)
    except Exception as fault:  # whatever a library makes of what another kind of server says
        raise no_scheduler(address, fault, option="--address") from fault
    with client:
        waiting = {client.submit(row_of, run, key=run.digest, pure=False): run for run in runs}
        for done in distributed.as_completed(list(waiting)):
            error = done.exception()
            yield done.result() if error is None else as_row(waiting[done], error)


def _by_ray(runs: Sequence[SweepRun], *, jobs: int, address: str | None) -> Iterator[Row]:
    ray = cluster_library("ray", option="--backend ray")
    try:
        refuse_dead(address)
        given = {"address": address} if address else {"num_cpus": jobs, "include_dashboard": False}
        ray.init(**given, log_to_driver=False)  # what workers print would stand in the answer
    except Exception as fault:
        raise no_scheduler(address, fault, option="--address") from fault
    try:
        simulate = ray.remote(row_of)
        waiting = {simulate.remote(run): run for run in runs}
        left = list(waiting)
        while left:
            done, left = ray.wait(left)
            try:
                yield ray.get(done[0])
            except ray.exceptions.RayError as error:
                yield as_row(waiting[done[0]], error)
    finally:
        ray.shutdown()
