"""A cluster's use over time, or one server's: requests, the seats that were up, and what its queues wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from replay.cluster.lives import queued_at, spans_up
from replay.cluster.waiting_causes import OwnCauses, number_between, own_causes
from replay.timeline.watch_engine import (
    ServerLooks,
    Usage,
    counted,
    head_need_frac,
    middles,
    short_of,
    waits_by_cause,
)

Floats = NDArray[np.float64]

if TYPE_CHECKING:
    from replay.cluster.simulate import FleetRun
    from replay.cluster.waiting_causes import Resource
    from sim import EngineConfig
    from sim.cluster import ClusterConfig, Life


def watched_fleet(run: FleetRun, cluster: ClusterConfig) -> Usage:
    """Return a cluster's use over a run; ``waits_for`` is None unless it was sampled."""
    result = run.result
    num_seats = sum(pool.num_slots * pool.engine.max_num_seqs for pool in cluster.pools)
    usage = counted(result.outcomes, duration_us=result.duration_us, num_seats=num_seats)
    return replace(
        usage,
        kv_frac=_kv_frac(run, usage.time_us),
        seats_up=seats_up(run, cluster),
        waits_for=_waits_for(run, cluster),
    )


def watched_server(run: FleetRun, cluster: ClusterConfig) -> Usage:
    """Return one server's use over a run that was sampled."""
    seen, time_us = run.result.over_time, middles(run.result.duration_us)
    assert seen is not None  # noqa: S101 - it was asked for
    place = _next_look(seen.time_us, time_us)
    return Usage(
        time_us=time_us,
        running=seen.num_running[place, 0].astype(np.float64),
        waiting=seen.num_waiting[place, 0].astype(np.float64),
        kv_frac=_kv_frac(run, time_us),
        num_seats=cluster.pools[0].engine.max_num_seqs,
        waits_for=_waits_for(run, cluster),
    )


def _next_look(seen_us: NDArray[np.int64], time_us: Floats) -> NDArray[np.int64]:
    """Return the number of the look that follows each time, or is at it; of the end the last."""
    return np.minimum(np.searchsorted(seen_us, time_us, side="left"), len(seen_us) - 1)


def _kv_frac(run: FleetRun, time_us: Floats) -> Floats | None:
    """Return the share of all instances' KV blocks in use; None where one is unbounded, or was not sampled.

    The value at a time is that of the next look.
    """
    seen = run.result.over_time
    if seen is None or not (seen.num_blocks > 0).all():
        return None
    used = np.maximum(seen.num_blocks - seen.num_free_blocks, 0).sum(axis=1) / seen.num_blocks.sum()
    return np.asarray(used[_next_look(seen.time_us, time_us)], np.float64)


def seats_up(run: FleetRun, cluster: ClusterConfig) -> float | None:
    """Return the seats of the instances that served, on average over the run; None of a run that took no time."""
    end_us = run.result.duration_us
    if end_us <= 0:
        return None
    served_us = sum(
        cluster.pools[life.pool].engine.max_num_seqs * max(0, up_to - up_from)
        for life in run.result.infrastructure.lives
        for up_from, up_to in spans_up(life, end_us)
    )
    return served_us / end_us


def _waits_for(run: FleetRun, cluster: ClusterConfig) -> Resource | None:
    """Return what most of the queued time is spent waiting for, requests times time, over all instances.

    ``gateway`` where requests are queued there for longer than at the instances; None where they were not sampled.
    """
    queued_us = waited_us(run, cluster)
    if queued_us is None:
        return None
    if cluster.flow_control is not None and _at_gateway_us(run) > sum(queued_us.values()):
        return "gateway"
    causes: list[Resource] = sorted(queued_us, key=lambda cause: -queued_us[cause])
    return causes[0] if causes else "none"


def waited_us(run: FleetRun, cluster: ClusterConfig) -> dict[Resource, float] | None:
    """Return how long requests waited at the instances for each resource, requests times µs; None: not sampled.

    Instances at which requests hardly wait are left out; none counts before an instance serves.
    """
    result, seen = run.result, run.result.over_time
    if seen is None:
        return None
    gaps_us = np.diff(seen.time_us, prepend=0).astype(np.float64)
    queued_us: dict[Resource, float] = {}
    any_up = False
    for number, instance in enumerate(result.instances):
        up = _is_up(
            [life for life in result.infrastructure.lives if life.instance == number],
            seen.time_us,
            result.duration_us,
        )
        if not up.any():
            continue
        blocks = int(seen.num_blocks[number])
        waiting = seen.num_waiting[up, number]
        engine = cluster.pools[instance.pool].engine
        looks = ServerLooks(
            waiting=waiting,
            running=seen.num_running[up, number],
            kv_frac=1 - seen.num_free_blocks[up, number] / blocks if blocks else None,
            num_seats=engine.max_num_seqs,
            need_frac=_need_frac(run, number, seen.time_us[up], engine) if blocks else None,
            lasts_us=gaps_us[up],
            own=_own_causes(run, number, engine, seen.time_us[up], waiting),
        )
        any_up = True
        if short_of(looks) == "none":
            continue
        for cause, waited in waits_by_cause(looks).items():
            queued_us[cause] = queued_us.get(cause, 0.0) + waited
    return queued_us if any_up else None


def _own_causes(
    run: FleetRun, instance: int, engine: EngineConfig, time_us: NDArray[np.int64], waiting: NDArray[np.int32]
) -> OwnCauses:
    """Return what requests wait for at an instance besides seats and blocks; where it decodes for others, for KV."""
    outcomes, here = run.result.outcomes, queued_at(run.result) == instance
    own = own_causes(run.work.requests, outcomes, here, engine, time_us)
    if run.result.split is None:
        return own
    began = here & (outcomes.scheduled_us >= 0)
    in_queue = number_between(outcomes.queued_us[began], outcomes.scheduled_us[began], time_us)
    return replace(own, alone={**own.alone, "KV transfer": np.maximum(waiting - in_queue, 0.0)})


def _need_frac(run: FleetRun, instance: int, time_us: NDArray[np.int64], engine: EngineConfig) -> Floats:
    """Return the share of an instance's KV blocks that the head of its queue needs at each time, NaN without one."""
    outcomes = run.result.outcomes
    here = np.where(queued_at(run.result) == instance, outcomes.scheduled_us, -1)
    return head_need_frac(
        replace(outcomes, scheduled_us=here),
        run.work.requests.prompt_tokens,
        time_us,
        block_size=engine.block_size,
        num_blocks=engine.num_gpu_blocks,
    )


def _is_up(lives: Sequence[Life], time_us: NDArray[np.int64], end_us: int) -> NDArray[np.bool_]:
    """Return at which times an instance served, bool [T]."""
    up = np.zeros(len(time_us), np.bool_)
    for life in lives:
        for up_from, up_to in spans_up(life, end_us):
            up |= (time_us >= up_from) & (time_us <= up_to)
    return up


def _at_gateway_us(run: FleetRun) -> float:
    """Return how long requests were in the gateway's queue, all together, in µs."""
    result = run.result
    gone_us = np.where(result.dispatched_us >= 0, result.dispatched_us, result.left_us)
    gone_us = np.where(gone_us >= 0, gone_us, result.duration_us)
    return float(np.maximum(gone_us - result.admitted_us, 0)[result.admitted_us >= 0].sum())
