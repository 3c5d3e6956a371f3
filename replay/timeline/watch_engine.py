"""What was in use over time: how many requests ran and waited, how full the KV cache was, and what the queue lacked."""

from __future__ import annotations

from lazy_dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replay.cluster.over_time import LOOKS
from replay.cluster.waiting_causes import OwnCauses, Resource, head_at
from sim import Outcomes, Status

FULL = 0.9
"""Share of the KV blocks in use from which a waiting request is assumed to wait for blocks."""
OFTEN = 0.05
"""Requests wait for something if they wait this long, all together, for each second that requests run."""
MOSTLY = 0.5
"""Where requests wait for the next step at fewer looks than this, though seats and blocks are free, and
"""
LONG = 0.5
"""for less than this per second that requests run, they wait for the step in progress alone."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What was in use, at evenly spaced times (µs). ``kv_frac``: share of the KV blocks; None where not sampled.

    ``waits_for``: what requests in the queue wait for, None where that is not known, ``gateway`` where they wait there
    for longer than at the instances. ``seats_up``: of ``num_seats``, those of instances that served, on average; None
    where it is all of them.
    """

    time_us: Floats
    running: Floats
    waiting: Floats
    kv_frac: Floats | None
    num_seats: int
    waits_for: Resource | None = None
    seats_up: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLooks:
    """Looks at one server, all arrays [T]: requests waiting and running, and the share of the KV blocks in use.

    ``kv_frac`` None: the cache is unbounded. ``need_frac``: the share of the blocks that the head of the queue needs,
    NaN where there is none. ``lasts_us``: how long each look stands for; None: 1 each. ``own``: what requests wait for
    besides seats and blocks.
    """

    waiting: Floats | NDArray[np.int64]
    running: Floats | NDArray[np.int64]
    kv_frac: Floats | None
    num_seats: int
    need_frac: Floats | None = None
    lasts_us: Floats | None = None
    own: OwnCauses = field(default_factory=OwnCauses)

    @property
    def lasts(self) -> Floats:
        """How long each look stands for."""
        return np.ones(len(self.waiting)) if self.lasts_us is None else self.lasts_us


def waits_by_cause(looks: ServerLooks) -> dict[Resource, float]:
    """Return how long requests waited for each resource, summed over the requests: requests times µs.

    Whoever lacks a grammar or a prompt's KV lacks it whatever else is short; an adapter's place only matters beside a
    free seat and free blocks.
    """
    waited, found = np.asarray(looks.waiting, np.float64), dict[Resource, float]()
    for cause in ("grammar", "KV transfer"):
        if cause in looks.own.alone:
            here = np.minimum(looks.own.alone[cause], waited)
            found[cause], waited = float((here * looks.lasts).sum()), waited - here
    waits = waited > 0
    seats = waits & (looks.running >= looks.num_seats)
    kv = np.zeros_like(waits)
    if looks.kv_frac is not None:
        kv = waits & ~seats & (looks.kv_frac >= FULL)
        if looks.need_frac is not None:
            kv |= waits & ~seats & (looks.running > 0) & (looks.need_frac > 1 - looks.kv_frac)
    free = waits & ~seats & ~kv
    if "adapter" in looks.own.alone:
        here = np.where(free, np.minimum(looks.own.alone["adapter"], waited), 0.0)
        found["adapter"], waited = float((here * looks.lasts).sum()), waited - here
    weight = waited * looks.lasts
    for cause, is_short in looks.own.whole_queue.items():
        found[cause], free = float(weight[free & is_short].sum()), free & ~is_short
    return {
        "seats": float(weight[seats].sum()),
        "KV blocks": float(weight[kv].sum()),
        **found,
        "step time": float(weight[free].sum()),
    }


def short_of(looks: ServerLooks) -> Resource:
    """Return what the requests of one server wait for longest, all together; ``none`` where they hardly wait.

    Requests times time decide: a few looks at a long queue weigh more than many at a single request.
    """
    waited = waits_by_cause(looks)
    ran = float((looks.running * looks.lasts).sum())
    most = max(waited, key=waited.__getitem__)
    if waited[most] <= OFTEN * ran or waited[most] == 0:
        return "none"
    if most == "step time" and (looks.waiting > 0).mean() < MOSTLY and waited[most] < LONG * ran:
        return "none"
    return most


def head_need_frac(
    outcomes: Outcomes,
    prompt_tokens: NDArray[np.int64],
    time_us: Floats | NDArray[np.int64],
    *,
    block_size: int,
    num_blocks: int,
) -> Floats:
    """Return the share of a server's KV blocks that the prompt at the head of the queue needs at each time; NaN: none.

    The head is whoever is scheduled next of those that have come.
    """
    begun = np.flatnonzero(outcomes.scheduled_us >= 0)
    if len(begun) == 0 or num_blocks <= 0:
        return np.full(len(time_us), np.nan)
    head = head_at(outcomes.queued_us[begun], outcomes.scheduled_us[begun], np.asarray(time_us, np.int64))
    needed = np.ceil(prompt_tokens[begun[head]] / block_size) / num_blocks
    return np.where(head >= 0, needed, np.nan)


def counted(outcomes: Outcomes, *, duration_us: int, num_seats: int, points: int = LOOKS) -> Usage:
    """Return how many requests ran and waited in a run, from their outcomes: of a cluster, all instances together.

    A preempted request counts as running. What the queue waits for cannot be told from that.
    """
    times = middles(duration_us, points)
    known = (outcomes.scheduled_us >= 0) & (outcomes.status == Status.OK)
    queued, begun, done = (
        np.sort(column[known])
        for column in (outcomes.queued_us, outcomes.scheduled_us, outcomes.last_token_us)
    )
    before = [np.searchsorted(column, times, side="right") for column in (queued, begun, done)]
    return Usage(
        time_us=times,
        running=(before[1] - before[2]).astype(np.float64),
        waiting=(before[0] - before[1]).astype(np.float64),
        kv_frac=None,
        num_seats=num_seats,
    )


def middles(duration_us: int, points: int = LOOKS) -> Floats:
    """Return the middles of equally long stretches of the run."""
    return np.asarray((np.arange(points) + 0.5) * (duration_us / points), np.float64)
