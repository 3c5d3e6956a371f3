"""The lives of a cluster's instances: when each served, when it was down, and how many there were at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.verdict.stretches import Down

if TYPE_CHECKING:
    from sim.cluster import ClusterSimulation, Life

Floats = NDArray[np.float64]
Span = tuple[int, int]


def end_of(life: Life, end_us: int) -> int:
    """Return when a life's instance gave its GPUs back, at the latest the run's end, µs."""
    return end_us if life.stopped_us is None else min(life.stopped_us, end_us)


def spans_up(life: Life, end_us: int) -> list[Span]:
    """Return when a life's instance served, in µs: from when it was ready, without the times that it was down."""
    if life.ready_us is None or life.ready_us > end_us:
        return []
    spans, begin, last = [], life.ready_us, end_of(life, end_us)
    for failed_us, again_us in life.downs:
        spans.append((begin, min(failed_us, last)))
        begin = last if again_us is None else min(max(again_us, begin), last)
    return [*spans, (begin, last)]


def spans_with_gpus(life: Life, end_us: int) -> list[Span]:
    """Return when a life's instance had its GPUs, in µs: that is paid for."""
    if life.placed_us is None or life.placed_us > end_us:
        return []
    return [(life.placed_us, end_of(life, end_us))]


def down_us(life: Life, end_us: int) -> int:
    """Return how long a life's instance was down, µs: one that is scaled in while it is down is so until then."""
    last = end_of(life, end_us)
    ups = [
        (failed_us, last if again_us is None else min(again_us, last)) for failed_us, again_us in life.downs
    ]
    return sum(max(0, again_us - failed_us) for failed_us, again_us in ups)


def downs_of(lives: Sequence[Life], names: Sequence[str], end_us: int) -> list[Down]:
    """Return when instances were down; ``names``: of all instances, by their numbers."""
    return [
        Down(names[life.instance], failed_us, end_of(life, end_us) if again_us is None else again_us)
        for life in lives
        for failed_us, again_us in life.downs
    ]


def num_at(spans: Sequence[Span], time_us: Floats) -> Floats:
    """Return how many spans hold each time, their ends excluded: float64 like ``time_us``."""
    starts, ends = (np.sort(np.array([each[i] for each in spans], np.float64)) for i in (0, 1))
    begun = np.searchsorted(starts, time_us, side="right")
    return np.asarray(begun - np.searchsorted(ends, time_us, side="right"), np.float64)


def most_at_once(lives: Sequence[Life]) -> int:
    """Return how many instances had their GPUs at the same time, at most."""
    placed = [life for life in lives if life.placed_us is not None]
    steps = [(life.placed_us or 0, 1) for life in placed]
    steps += [(life.stopped_us, -1) for life in placed if life.stopped_us is not None]
    together = np.cumsum(
        [sum(step for _, step in at) for _, at in groupby(sorted(steps), key=lambda step: step[0])]
    )
    return int(together.max(initial=0))


def queued_at(result: ClusterSimulation) -> NDArray[np.int32]:
    """Return the instance in whose queue each request began, which computed its prompt; int32 [n]."""
    if result.split is None:
        return result.instance
    there = result.split.prefill_instance
    return np.where(there >= 0, there, result.instance).astype(np.int32)
