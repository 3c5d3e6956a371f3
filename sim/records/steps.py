"""The engine's step log, decoded: what was scheduled in each step and what finished, as the recordings have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from lazy_dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim.engine.log import SCHEDULED
from sim.latency.batch import STEP_SUMS, StepBatch

NOT_LAUNCHED = -1

HEAD, ENTRY = 15, 4
"""Words of a log entry before its shares, its kind and length included; words of a share (``log_schedule``)."""


@dataclass(slots=True, kw_only=True)
class Step:
    """One step. Names are the recordings' own (docs/reference/steps.md); times in µs.

    ``sched``: (request, tokens, computed before, "p" or "d") in schedule order. ``exec_start`` and ``exec_end``:
    device times of a batch of an engine that has several in flight. ``block_ids`` and ``free_queue`` only when blocks
    were recorded; with KV cache groups that are named, a request's ids stand group by group.
    """

    step: int
    t: int
    dur: int
    P: int
    D: int
    sched: list[tuple[int, int, int, str]]
    preempted: list[int]
    hits: list[tuple[int, int]]
    finished: list[int] = field(default_factory=list)
    running: int
    waiting: int
    free: int
    exec_start: int | None = None
    exec_end: int | None = None
    block_ids: dict[int, list[int]] | dict[int, list[list[int]]] | None = None
    free_queue: list[int] | None = None
    loads: list[tuple[int, int]] | None = None
    stores: list[tuple[int, int]] | None = None
    flushed: int | None = None
    reported: int | None = None
    exec: int | None = None
    t_end: int = -1
    free_end: int = -1


def _decode_schedule(
    words: NDArray[np.int64], *, is_queued: bool, with_blocks: bool, num_groups: int, with_orders: bool
) -> Step:
    """Return the step whose scheduling decision ``words`` hold."""
    head = [int(word) for word in words[:13]]
    (
        step,
        t,
        dur,
        prefill,
        decode,
        running,
        waiting,
        free,
        exec_start,
        exec_end,
        num_entries,
        num_preempted,
        num_hits,
    ) = head
    entries_end = 13 + 4 * num_entries
    preempted_end = entries_end + num_preempted
    hits_end = preempted_end + 2 * num_hits
    entries = words[13:entries_end].reshape(-1, 4).tolist()
    decoded = Step(
        step=step,
        t=t,
        dur=dur,
        P=prefill,
        D=decode,
        sched=[(r, n, before, "d" if is_decode else "p") for r, n, before, is_decode in entries],
        preempted=words[entries_end:preempted_end].tolist(),
        hits=[(r, cached) for r, cached in words[preempted_end:hits_end].reshape(-1, 2).tolist()],
        running=running,
        waiting=waiting,
        free=free,
    )
    if is_queued and exec_start != NOT_LAUNCHED:
        decoded.exec_start, decoded.exec_end = exec_start, exec_end
    rest = words[hits_end:].tolist()
    if with_orders:
        rest = _decode_orders(decoded, rest, is_queued=is_queued)
    if with_blocks:
        _decode_blocks(decoded, rest, num_groups=num_groups)
    return decoded


def _decode_orders(step: Step, words: list[int], *, is_queued: bool) -> list[int]:
    """Fill in what a step orders and waits for; return the words behind it."""
    kinds, at = [], 0
    for _ in range(2):
        end = at + 1 + 2 * words[at]
        kinds.append(list(zip(words[at + 1 : end : 2], words[at + 2 : end : 2], strict=True)))
        at = end
    step.loads, step.stores = kinds
    step.flushed = words[at]
    if not is_queued:  # else exec_start says it
        step.exec = words[at + 1]
    return words[at + 2 :]


def _decode_blocks(step: Step, words: list[int], *, num_groups: int) -> None:
    """Fill in the block tables, group by group, and the free queue; ``num_groups`` 0: one full group, not named."""
    tables: dict[int, list[list[int]]] = {}
    at = 0
    for request, *_ in step.sched:
        tables[request] = []
        for _ in range(max(num_groups, 1)):
            tables[request].append(words[at + 1 : at + 1 + words[at]])
            at += 1 + words[at]
    step.block_ids = tables if num_groups else {request: table for request, (table,) in tables.items()}
    step.free_queue = words[at + 1 : at + 1 + words[at]]


def step_batches(log: NDArray[np.int64]) -> tuple[StepBatch, NDArray[np.int64]]:
    """Return (the sums that a latency model knows of every scheduled step, each step's duration in µs)."""
    sums: list[list[int]] = []
    durations: list[int] = []
    at = 0
    while at < len(log):
        kind, length = int(log[at]), int(log[at + 1])
        if kind == SCHEDULED:
            durations.append(int(log[at + 4]))
            entries = log[at + HEAD : at + HEAD + ENTRY * int(log[at + 12])].reshape(-1, ENTRY)
            sums.append(_sums(entries))
        at += 2 + length
    return _batch(sums), np.array(durations, np.int64)


def batch_of_steps(steps: Sequence[Step]) -> StepBatch:
    """Return the sums that a latency model knows of every step, zeros of one without shares."""
    shares = [[(r, n, before, kind == "d") for r, n, before, kind in step.sched] for step in steps]
    return _batch([_sums(np.array(each, np.int64).reshape(-1, ENTRY)) for each in shares])


def _batch(sums: list[list[int]]) -> StepBatch:
    columns = np.array(sums, np.int64).reshape(-1, len(STEP_SUMS)).T
    return StepBatch(**dict(zip(STEP_SUMS, columns, strict=True)))


def _sums(entries: NDArray[np.int64]) -> list[int]:
    """Return the sums of one step's shares: rows of (request, tokens, computed before, whether it decodes)."""
    _, n, before, is_decode = entries.T
    p, context = 1 - is_decode, n + before
    tokens = n * p
    return [
        int(tokens.sum()),
        int((n * is_decode).sum()),
        int((context * is_decode).sum()),
        int((tokens * before + tokens * (n + 1) // 2).sum()),
        int(p.sum()),
        int((context * p).sum()),
    ]


def decode_steps(
    log: NDArray[np.int64],
    *,
    is_queued: bool,
    with_blocks: bool = False,
    num_groups: int = 0,
    with_orders: bool = False,
) -> Iterator[Step]:
    """Yield the steps of a log in the order in which their results came in."""
    in_flight: dict[int, Step] = {}
    at = 0
    while at < len(log):
        kind, length = int(log[at]), int(log[at + 1])
        words = log[at + 2 : at + 2 + length]
        at += 2 + length
        if kind == SCHEDULED:
            decoded = _decode_schedule(
                words,
                is_queued=is_queued,
                with_blocks=with_blocks,
                num_groups=num_groups,
                with_orders=with_orders,
            )
            in_flight[decoded.step] = decoded
            continue
        step = in_flight.pop(int(words[0]))
        step.t_end, step.free_end = int(words[1]), int(words[2])
        step.finished = words[4 : 4 + words[3]].tolist()
        if with_orders:
            step.reported = int(words[-1])
        yield step
