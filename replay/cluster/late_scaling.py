"""When an autoscaler comes too late: for each stretch in which more was sent than answered, when help was ready."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from replay.cluster.pathologies import Pathology
from replay.verdict.sentences import moment
from traces import shown_time

if TYPE_CHECKING:
    from replay.cluster.simulate import FleetRun
    from replay.verdict.stretches import OverloadedStretch
    from sim.cluster import ClusterConfig


def late_scaling(
    stretches: Sequence[OverloadedStretch], run: FleetRun, cluster: ClusterConfig
) -> list[Pathology]:
    """Return a problem per overloaded stretch of a fleet with autoscalers; [] of a fleet without.

    ``value``: how long it took, from the first request that could not be answered in time until an added instance was
    ready; to the stretch's end where none was. ``limit`` 0: before that no queue grows.
    """
    if all(pool.autoscaler is None for pool in cluster.pools):
        return []
    return [_late(each, run) for each in stretches]


def _late(stretch: OverloadedStretch, run: FleetRun) -> Pathology:
    from_us, until_us, infrastructure = stretch["from_us"], stretch["until_us"], run.result.infrastructure
    asked = [each.time_us for each in infrastructure.changes if each.after > each.before]
    ready = [
        life.ready_us for life in infrastructure.lives if life.ready_us is not None and life.ordered_us > 0
    ]
    first_asked = min((each for each in asked if from_us <= each <= until_us), default=None)
    first_ready = min((each for each in ready if from_us <= each), default=None)
    told = f"from {moment(from_us, is_start=True)} on more was sent than the instances answered"
    if first_asked is not None:
        told += f"; more were asked for {shown_time(float(first_asked - from_us))} later"
    if first_ready is None or first_ready > _end(stretch):
        told += ", and none was ready before the queue was gone"
        late_us = _end(stretch) - from_us
    else:
        late_us = first_ready - from_us
        told += f"; the first was ready after {shown_time(float(late_us))}"
        caught_up = until_us - from_us
        if caught_up > late_us:
            told += f", and enough after {shown_time(float(caught_up))}"
    waited = shown_time(stretch["wait_p90_us"])
    told += f". {stretch['waiting_most']:,} requests waited at most, one in ten {waited} or more"
    return Pathology(name="scaling too late", where=None, value=late_us / 1e6, limit=0.0, text=told)


def _end(stretch: OverloadedStretch) -> int:
    recovered = stretch["recovered_us"]
    return stretch["until_us"] if recovered is None else recovered
