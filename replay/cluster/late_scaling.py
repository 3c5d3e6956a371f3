"""When an autoscaler comes too late: where more was sent than answered, or the SLO was missed, when help was ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.cluster.lives import Span
from replay.cluster.pathologies import Pathology
from replay.verdict.sentences import GOOD, moment
from traces import shown_time

if TYPE_CHECKING:
    from replay.cluster.simulate import FleetRun
    from replay.verdict.stretches import OverloadedStretch
    from sim.cluster import ClusterConfig

MORE = 2.0
"""Requests miss the SLO because instances start if this many times as many do as at other times."""


def late_scaling(
    stretches: Sequence[OverloadedStretch],
    run: FleetRun,
    cluster: ClusterConfig,
    *,
    missed: NDArray[np.bool_] | None = None,
) -> list[Pathology]:
    """Return a problem per overloaded stretch of a fleet with autoscalers; [] of a fleet without.

    And one where no stretch is told, but requests missed the SLO (``missed``, [n], None without one) while instances
    that were asked for started. ``value``: how long it took, from the first request that could not be answered in time
    until an added instance was ready; to the stretch's end where none was. ``limit`` 0: before that no queue grows.
    """
    if all(pool.autoscaler is None for pool in cluster.pools):
        return []
    starts = _starts(run)
    found = [_late(each, starts) for each in stretches]
    slow = (
        None if missed is None else _missed_in(stretches, starts, run.simulation.outcomes.arrival_us, missed)
    )
    return found if slow is None else [*found, slow]


def _starts(run: FleetRun) -> list[Span]:
    """Return when instances were asked for, in order, and when the first of those that were at the same time was ready.

    One that was not ready by the run's end counts until then.
    """
    end_us, first = run.result.duration_us, dict[int, int]()
    for life in run.result.infrastructure.lives:
        if life.ordered_us > 0:
            ready_us = end_us if life.ready_us is None else life.ready_us
            first[life.ordered_us] = min(first.get(life.ordered_us, end_us), ready_us)
    return sorted(first.items())


def _late(stretch: OverloadedStretch, starts: Sequence[Span]) -> Pathology:
    """Return what one scaling, the first under way in a stretch, did for it."""
    from_us, until_us, end_us = stretch["from_us"], stretch["until_us"], _end(stretch)
    asked_us, ready_us = next(
        ((asked, ready) for asked, ready in starts if ready > from_us and asked <= until_us), (None, None)
    )
    told = f"from {moment(from_us, is_start=True)} on more was sent than the instances answered"
    if asked_us is not None:
        is_later = asked_us >= from_us
        apart = shown_time(float(abs(asked_us - from_us)))
        told += (
            f"; more were asked for {apart} later"
            if is_later
            else f"; more had been asked for {apart} before"
        )
    if ready_us is None or ready_us > end_us:
        told += ", and none was ready before the queue was gone"
        late_us = end_us - from_us
    else:
        late_us = ready_us - from_us
        told += f"; the first was ready after {shown_time(float(late_us))}"
        caught_up = until_us - from_us
        if caught_up > late_us:
            told += f", and enough after {shown_time(float(caught_up))}"
    waited = shown_time(stretch["wait_p90_us"])
    told += f". {stretch['waiting_most']:,} requests waited at most, one in ten {waited} or more"
    return Pathology(name="scaling too late", where=None, value=late_us / 1e6, limit=0.0, text=told)


def _missed_in(
    stretches: Sequence[OverloadedStretch],
    starts: Sequence[Span],
    came_us: NDArray[np.int64],
    missed: NDArray[np.bool_],
) -> Pathology | None:
    """Return that requests missed the SLO while instances started; None where not more did than at other times."""
    alone = [
        (asked, ready)
        for asked, ready in starts
        if not any(asked <= _end(each) and each["from_us"] < ready for each in stretches)
    ]
    while_starting = [(came_us >= asked) & (came_us < ready) for asked, ready in alone]
    if not while_starting:
        return None
    inside = np.logical_or.reduce(while_starting)
    num_missed = int((missed & inside).sum())
    others = float(missed[~inside].mean()) if not inside.all() else 0.0
    if num_missed <= max((1 - GOOD), MORE * others) * int(inside.sum()):
        return None
    worst = max(range(len(alone)), key=lambda place: int((missed & while_starting[place]).sum()))
    asked_us, ready_us = alone[worst]
    told = (
        f"{num_missed:,} of {int(inside.sum()):,} requests that were sent while instances started missed the SLO; "
        f"{'' if len(alone) == 1 else 'at worst, '}more were asked for {moment(asked_us)}, and the first was ready "
        f"{shown_time(float(ready_us - asked_us))} later"
    )
    late_s = (ready_us - int(came_us[missed & while_starting[worst]].min())) / 1e6
    return Pathology(name="scaling too late", where=None, value=late_s, limit=0.0, text=told)


def _end(stretch: OverloadedStretch) -> int:
    recovered = stretch["recovered_us"]
    return stretch["until_us"] if recovered is None else recovered
