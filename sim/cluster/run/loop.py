"""The cluster's loop: one event after another in the order (time, rank, sequence), from arrival to answer."""

from __future__ import annotations

from sim.cluster.events import EventRank, drop_next, plan
from sim.cluster.run.departures import hear, leave_admitted
from sim.cluster.run.instances import see_loads
from sim.cluster.run.lockstep import run_ranks
from sim.cluster.run.planning import next_arrival_us, plan_dispatch
from sim.cluster.run.prefill_to_decode import end_transfers, hear_of_prefill, release_unasked
from sim.cluster.run.request_path import (
    DONE,
    ENGINE_NEEDS_ROOM,
    EVENTS_NEED_ROOM,
    NEEDS_OPERATION,
    NUM_KINDS,
    OF_PREFILL,
    REFUSAL,
    REFUSED,
    admit_or_reject,
    arrive,
    dispatch_next,
    expire,
    give_up,
    route,
    take_step,
)
from sim.cluster.run.snapshots import bring_each, see_signals, take_due_snapshots
from sim.cluster.run.tables import world_at
from sim.cluster.run.world import FOREVER, World
from sim.engine.dtypes import GAVE_UP
from sim.jit.compile import engine_entry, part, phase
from sim.jit.references import Table

(
    STEP_ENDED,
    TRANSFER_ENDED,
    CLIENT_GAVE_UP,
    SNAPSHOT,
    ARRIVAL,
    ADMISSION,
    DISPATCH,
    ROUTING,
    EXPIRY,
    STEP_STARTED,
) = (
    int(rank)
    for rank in (
        EventRank.STEP_ENDED,
        EventRank.TRANSFER_ENDED,
        EventRank.CLIENT_GAVE_UP,
        EventRank.SNAPSHOT,
        EventRank.ARRIVAL,
        EventRank.ADMISSION,
        EventRank.DISPATCH,
        EventRank.ROUTING,
        EventRank.EXPIRY,
        EventRank.STEP_STARTED,
    )
)


@part
def take_arrival(world: World) -> None:
    """Make the next request that arrives by itself the current event."""
    loop = world.loop[0]
    loop.hand_us = next_arrival_us(world)
    loop.hand_rank, loop.hand_subject = ARRIVAL, world.arrivals[loop.next_arrival]
    loop.has_hand = 1
    loop.next_arrival += 1


@part
def take_planned(world: World) -> None:
    """Make the next planned event the current one."""
    loop, event = world.loop[0], world.events.heap[0]
    loop.hand_us, loop.hand_rank, loop.hand_subject = event.time_us, event.rank, event.subject
    loop.has_hand = 1
    drop_next(world.events)


@part
def arrival_comes_first(world: World) -> bool:
    """Return whether the next arrival comes before every planned event."""
    loop = world.loop[0]
    if loop.next_arrival >= len(world.arrivals):
        return False
    if world.events.counts[0].num_planned == 0:
        return True
    event, arrival_us = world.events.heap[0], next_arrival_us(world)
    if event.time_us != arrival_us:
        return arrival_us < event.time_us
    if event.rank != ARRIVAL:
        return event.rank > ARRIVAL
    return world.arrivals[loop.next_arrival] < event.sequence


@part
def take_next_event(world: World) -> bool:
    """Make what happens next the current event; False if nothing does."""
    if arrival_comes_first(world):
        take_arrival(world)
    elif world.events.counts[0].num_planned > 0:
        take_planned(world)
    else:
        return False
    return True


@phase
def take_snapshot(world: World, time_us: int) -> int:
    """Take a snapshot of the signals whose interval ends now, and plan the next one if any other event is planned."""
    loop = world.loop[0]
    queues = loop.sees_queues != 0 and loop.queue_interval_us > 0 and time_us % loop.queue_interval_us == 0
    kv = loop.sees_kv != 0 and loop.kv_interval_us > 0 and time_us % loop.kv_interval_us == 0
    caches = loop.sees_caches != 0 and loop.cache_interval_us > 0 and time_us % loop.cache_interval_us == 0
    see_signals(world, time_us, queues, kv, caches)
    goes_on = (
        world.events.counts[0].num_planned > loop.num_idle_plans
        or loop.next_arrival < len(world.arrivals)
        or (loop.has_queue == 1 and loop.num_idle_plans > 0 and world.queue.counts[0].num_queued > 0)
    )
    plan_dispatch(world, time_us)
    loop.is_snapshot_planned = int(goes_on)
    if goes_on:
        next_us = FOREVER
        for interval_us in (loop.queue_interval_us, loop.kv_interval_us, loop.cache_interval_us):
            if interval_us > 0:
                next_us = min(next_us, (time_us // interval_us + 1) * interval_us)
        plan(world.events, next_us, SNAPSHOT, 0, 0)
    return DONE


@phase
def hear_of_step(world: World, request: int, kind: int, time_us: int) -> None:
    """Tell the gateway which token of a request a step has given."""
    if kind == REFUSAL:
        leave_admitted(world, request, REFUSED, time_us)
        return
    if kind >= OF_PREFILL:
        hear_of_prefill(world, request, kind - OF_PREFILL, time_us)
        return
    if kind == GAVE_UP:
        release_unasked(world, request, time_us)
    hear(world, request, kind, time_us)


@phase
def handle(world: World, time_us: int, rank: int, subject: int) -> int:
    """Do the work of one event."""
    answer = DONE
    if rank == ARRIVAL:
        answer = arrive(world, subject, time_us)
    elif rank == ADMISSION:
        answer = admit_or_reject(world, subject, time_us)
    elif rank == ROUTING:
        answer = route(world, subject, time_us)
    elif rank == STEP_ENDED:
        hear_of_step(world, subject // NUM_KINDS, subject % NUM_KINDS, time_us)
    elif rank == DISPATCH:
        answer = dispatch_next(world, time_us)
    elif rank == SNAPSHOT:
        answer = take_snapshot(world, time_us)
    elif rank == TRANSFER_ENDED:
        end_transfers(world, time_us)
    elif rank == EXPIRY:
        answer = expire(world, subject, time_us)
    elif rank == STEP_STARTED:
        answer = take_step(world, subject, time_us)
    elif rank == CLIENT_GAVE_UP:
        answer = give_up(world, subject, time_us)
    else:
        answer = look_around(world, time_us, rank)
    return answer


@phase
def look_around(world: World, time_us: int, rank: int) -> int:
    """Note every instance's load, so that Python can start or stop some, or make one fail.

    Snapshots that are due by then come first: afterwards the instances are past their times.
    """
    last_due_us = time_us if rank > SNAPSHOT else time_us - 1
    if not world.loop[0].is_coupled and not take_due_snapshots(world, last_due_us):
        return ENGINE_NEEDS_ROOM
    if not bring_each(world, time_us):
        return ENGINE_NEEDS_ROOM
    see_loads(world, time_us)
    return NEEDS_OPERATION


@engine_entry
def finish_ranks(table: Table, first: int, until_us: int) -> int:
    """Step the ranks that are in lockstep with ``first``, up to the steps that start before ``until_us``.

    Return NEVER, or the rank that needs room first.
    """
    world = world_at(table, 0)
    return run_ranks(world, first, world.end_rank[first], until_us)


@engine_entry
def run_cluster(table: Table, until_us: int, margin: int) -> int:
    """Process every event before ``until_us``; return DONE, or what Python must do before it goes on.

    ``margin``: how many events one event can plan at most.
    """
    world = world_at(table, 0)
    loop = world.loop[0]
    while True:
        if world.events.counts[0].num_planned + margin > len(world.events.heap):
            return EVENTS_NEED_ROOM
        if not loop.has_hand and not take_next_event(world):
            return DONE
        if loop.hand_us >= until_us:
            return DONE
        time_us, rank, subject = loop.hand_us, loop.hand_rank, loop.hand_subject
        loop.has_hand = 0
        answer = handle(world, time_us, rank, subject)
        if answer != DONE:
            loop.hand_us, loop.hand_rank, loop.hand_subject, loop.has_hand = time_us, rank, subject, 1
            return answer
