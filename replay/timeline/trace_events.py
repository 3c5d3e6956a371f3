"""A simulation as Trace Event Format JSON, which Perfetto and Chrome's viewer show: steps and requests of each engine.

The format: "Trace Event Format", Google, 2016: complete events (``X``) for steps, nestable asynchronous events (``b``,
``n``, ``e``) for requests with their phases, counters (``C``), and names of processes and threads (``M``). A process is
an engine. Times are µs of simulated time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from lazy_dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sim import Outcomes, Status, Step
from traces import atomic_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sim.cluster import Split
    from traces import Trace

Event = Mapping[str, object]

STEPS_THREAD = 1
NEVER = -1
GATEWAY = "gateway"
"""The process of requests that no engine got."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTrack:
    """What one engine did: its name, its steps in order, and how many KV blocks it has (0: unbounded)."""

    name: str
    steps: Sequence[Step]
    num_blocks: int


def write_trace_events(
    path: Path,
    engines: Sequence[EngineTrack],
    simulated: Trace,
    outcomes: Outcomes,
    *,
    split: Split | None = None,
) -> None:
    """Write the file, one event a line; atomic. Raises ConfigError where it cannot be written.

    ``split``: whose prompts other instances computed, and when their KV moved.
    """
    with (
        atomic_file(path, option="--trace-events", is_durable=False) as temporary,
        temporary.open("w", encoding="utf-8") as file,
    ):
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, event in enumerate(trace_events(engines, simulated, outcomes, split=split)):
            file.write((",\n" if number else "") + json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")


def trace_events(
    engines: Sequence[EngineTrack], simulated: Trace, outcomes: Outcomes, *, split: Split | None = None
) -> Iterator[Event]:
    """Yield the events: names first, then each engine's steps and counters, then the requests."""
    instance = simulated.column("instance").fillna(GATEWAY).astype(object).to_numpy()
    if len(engines) == 1:
        instance = np.full(len(simulated), engines[0].name, dtype=object)
    names = [each.name for each in engines]
    names += [GATEWAY] if GATEWAY in set(instance.tolist()) - set(names) else []
    process = {name: number for number, name in enumerate(names, start=1)}
    for name, pid in process.items():
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        if name != GATEWAY:
            yield {
                "ph": "M",
                "name": "thread_name",
                "pid": pid,
                "tid": STEPS_THREAD,
                "args": {"name": "steps"},
            }
    for each in engines:
        yield from _of_engine(each, process[each.name])
    yield from _of_requests(simulated, outcomes, [process[name] for name in instance], engines, split=split)


def _of_engine(engine: EngineTrack, pid: int) -> Iterator[Event]:
    """Yield a complete event per step that computed anything, and the counters at its begin.

    Beside a second KV tier how many blocks each step orders from there and to it, also where it computes nothing.
    """
    for step in engine.steps:
        if step.loads is not None and step.stores is not None:
            moved = {"to load": _num_blocks(step.loads), "to store": _num_blocks(step.stores)}
            yield _counter("KV blocks ordered", pid, step.t, moved)
        if not step.sched:
            continue
        begin, duration = _when(step)
        yield {
            "ph": "X",
            "cat": "step",
            "name": _kind(step),
            "pid": pid,
            "tid": STEPS_THREAD,
            "ts": begin,
            "dur": duration,
            "args": {
                "step": step.step,
                "requests": len(step.sched),
                "prefill tokens": step.P,
                "decode tokens": step.D,
                "preempted": len(step.preempted),
            },
        }
        yield _counter("requests", pid, step.t, {"running": step.running, "waiting": step.waiting})
        if engine.num_blocks:
            used = engine.num_blocks - 1 - step.free  # without the null block
            yield _counter("KV blocks", pid, step.t, {"used": used, "free": step.free})


def _num_blocks(orders: Iterable[tuple[int, int]]) -> int:
    """Return how many blocks a step orders for all its requests."""
    return sum(number for _, number in orders)


def _when(step: Step) -> tuple[int, int]:
    """Return a step's begin and duration on the device, µs: with batches in flight the device's own times."""
    if step.exec_start is not None and step.exec_end is not None:
        return step.exec_start, step.exec_end - step.exec_start
    return step.t, step.dur


def _kind(step: Step) -> str:
    if step.P and step.D:
        return "prefill and decode"
    return "prefill" if step.P else "decode"


def _counter(name: str, pid: int, time_us: int, values: Mapping[str, int]) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "ts": time_us, "args": values}


def _of_requests(
    simulated: Trace,
    outcomes: Outcomes,
    pids: Sequence[int],
    engines: Sequence[EngineTrack],
    *,
    split: Split | None,
) -> Iterator[Event]:
    """Yield each request from its arrival to its last token, with its phases in it, and its preemptions."""
    preempted, loads = _preemptions(engines, outcomes), _loads(engines, outcomes)
    prompts = simulated.column("input_tokens").fillna(0) + simulated.column("prefix_length").fillna(0)
    about = zip(
        simulated.requests["request_id"].astype(str),
        prompts.to_numpy(np.int64).tolist(),
        outcomes.num_output_tokens.tolist(),
        outcomes.status.tolist(),
        strict=True,
    )
    times = (outcomes.arrival_us, outcomes.scheduled_us, outcomes.first_token_us, outcomes.last_token_us)
    for row, (request_id, prompt, output, status) in enumerate(about):
        arrival, scheduled, first, last = (int(column[row]) for column in times)
        if arrival == NEVER:
            continue
        shared = {"cat": "request", "id": row, "pid": pids[row], "tid": 0}
        end = max(arrival, scheduled, first, last)
        args = {"prompt tokens": prompt, "output tokens": output, "status": Status(status).name.lower()}
        yield {**shared, "ph": "b", "name": f"request {request_id}", "ts": arrival, "args": args}
        phases = [("queue", arrival, scheduled), ("prefill", scheduled, first), ("decode", first, last)]
        if split is not None and split.prefill_instance[row] != NEVER:
            prefilled = int(split.prefilled_us[row])
            began, ended = int(split.transfer_start_us[row]), int(split.transfer_end_us[row])
            phases[1:2] = [("prefill elsewhere", scheduled, prefilled), ("KV transfer", began, ended)]
            there = {**shared, "pid": 1 + int(split.prefill_instance[row])}
            if NEVER not in (scheduled, prefilled):
                yield {**there, "ph": "b", "name": f"prompt of {request_id}", "ts": scheduled}
                yield {**there, "ph": "e", "name": f"prompt of {request_id}", "ts": prefilled}
        waits = loads.get(row, [])
        for name, begin, finish in phases:
            if NEVER not in (begin, finish) and finish >= begin:
                yield {**shared, "ph": "b", "name": name, "ts": begin}
                for ordered, loaded in waits:
                    if begin <= ordered and loaded <= finish:
                        yield {**shared, "ph": "b", "name": "KV load", "ts": ordered}
                        yield {**shared, "ph": "e", "name": "KV load", "ts": loaded}
                waits = [each for each in waits if each[0] > finish or each[1] > finish]
                yield {**shared, "ph": "e", "name": name, "ts": finish}
        for time_us in preempted.get(row, ()):
            yield {**shared, "ph": "n", "name": "preempted", "ts": time_us}
        yield {**shared, "ph": "e", "name": f"request {request_id}", "ts": end}


def _loads(engines: Iterable[EngineTrack], outcomes: Outcomes) -> dict[int, list[tuple[int, int]]]:
    """Return from when to when each request waited for KV from the second tier, by its row.

    Of a request that waited several times only their sum is known, so each ends when the request is next scheduled.
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for each in engines:
        begun: dict[int, int] = {}
        for step in each.steps:
            for row, *_ in step.sched if begun else ():
                if row in begun:
                    found.setdefault(row, []).append((begun.pop(row), step.t))
            begun |= {row: step.t for row, _ in step.loads or ()}
    for row, times in found.items():
        if len(times) == 1:
            begin, scheduled = times[0]
            found[row] = [(begin, min(begin + int(outcomes.load_wait_us[row]), scheduled))]
    return found


def _preemptions(engines: Iterable[EngineTrack], outcomes: Outcomes) -> dict[int, list[int]]:
    """Return when each request was preempted, by its row."""
    found: dict[int, list[int]] = {}
    rows: NDArray[np.int64] = np.flatnonzero(outcomes.num_preemptions)
    if len(rows) == 0:
        return found
    for each in engines:
        for step in each.steps:
            for row in step.preempted:
                found.setdefault(row, []).append(step.t)
    return found
