"""A cluster's run from event to event: gateway, engines, clients and operations in the order of their times."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.results.attempts import with_attempts
from sim.cluster.results.cluster_results import results_of
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.results.watching import Watch
from sim.cluster.run.beginning.counted_engines import counted_addresses
from sim.cluster.run.beginning.engine_copies import lay_rings
from sim.cluster.run.beginning.prepare import new_world
from sim.cluster.run.changes.operations import Operations
from sim.cluster.run.driving import Driver
from sim.cluster.run.loop import finish_ranks
from sim.cluster.run.watch import BUSY, IDLE, look_at_all
from sim.cluster.run.watch import NEEDS_ROOM as LOOK_NEEDS_ROOM
from sim.cluster.run.world import FOREVER, NEVER, World
from sim.config import Record
from sim.engine.beginning.longer_arrays import with_more_room
from sim.engine.counting.counted_run import HANDED_OVER
from sim.engine.run import NEEDS_ROOM
from sim.engine.run_variants import Run, run_of, run_plain_counted
from sim.engine.state import State, columns
from sim.jit.references import Table, point_to, table_of
from sim.requests import Int64s


def simulate_by_events(
    work: ClusterWork,
    config: ClusterConfig,
    *,
    record: Record = "none",
    records_decisions: bool = False,
    forced: Int64s | None = None,
    coalesce: bool = True,
    points: int | None = None,
    until_us: int | None = None,
) -> ClusterSimulation:
    """Simulate requests in a cluster; as ``simulate_cluster``, which has checked the arguments."""
    if config.retries is not None:
        work = with_attempts(work, config.retries)
        if forced is not None:
            forced = np.concatenate([forced, np.full(len(work.requests) - len(forced), NEVER)])
    started = time.thread_time()
    world, states = new_world(
        work, config, record=record, records_decisions=records_decisions, forced=forced, may_count=coalesce
    )
    if coalesce:
        world.counted_addresses[:] = counted_addresses(work, config, world, states, record=record)
    else:
        world.coalesces[:] = 0
    lay_rings(states, config.pools, world.counted_addresses)  # of who might have counted
    operations = Operations(world, states, config, table_of([world]))
    operations.begin()
    watch = None
    if points is not None:
        world.loop["settles"] = 1
        last_us = int(world.arrivals_us[-1]) if len(world.arrivals_us) else 0
        watch = Watch(points=points, num_instances=len(states), last_arrival_us=last_us)
    end_us = FOREVER if until_us is None else until_us
    world = _run_events(operations, states, config, watch=watch, until_us=end_us)
    _finish_engines(world, states, until_us=end_us)
    cpu_s = time.thread_time() - started
    result = results_of(
        world, states, config, record=record, cpu_s=cpu_s, operations=operations, until_us=until_us
    )
    if watch is None:
        return result
    num_blocks = [max(config.pools[pool].engine.num_gpu_blocks - 1, 0) for pool in world.pool_of]
    over_time = watch.finished(states, end_us=result.duration_us, num_blocks=np.array(num_blocks, np.int64))
    return replace(result, over_time=over_time)


def _run_events(
    operations: Operations,
    states: list[State],
    config: ClusterConfig,
    *,
    watch: Watch | None,
    until_us: int,
) -> World:
    """Process all events before ``until_us``; record the state of the instances on the way."""
    driver = Driver(operations, states, config)
    while True:
        driver.run(until_us if watch is None else min(watch.next_us, until_us))
        if watch is None or watch.next_us >= until_us:
            return driver.world
        if not _has_looked(operations.table, driver.world, states, watch):
            return driver.world


def _has_looked(whole: Table, world: World, states: list[State], watch: Watch) -> bool:
    """Record the state of the instances; return whether any has work left."""
    loop = world.loop[0]
    is_over = not loop.has_hand and loop.next_arrival >= len(world.arrivals)
    is_over = is_over and world.events.counts[0].num_planned == 0
    if is_over and loop.is_coupled:
        return False
    first = 0
    while (answer := look_at_all(whole, watch.next_us, watch.seen, first)) not in (IDLE, BUSY):
        number = int(loop.waits_for)
        first = number if answer == LOOK_NEEDS_ROOM else 0
        states[number] = with_more_room(states[number])
        point_to(world.engines, number, states[number])
    watch.take()
    return not is_over or answer == BUSY


def _finish_engines(world: World, states: list[State], *, until_us: int) -> None:
    """Run every engine to its end, or to a horizon; nothing depends on what it finishes any more."""
    for state in states:
        settings = columns(state.engine)["settings"]
        settings["log_completions"] = settings["pauses_at_completions"] = 0
    if world.first_rank.max() != NEVER:
        _finish_ranks(world, states, until_us=until_us)
        return
    for number in range(len(states)):
        reason = HANDED_OVER
        if world.counted_addresses[number] != 0:
            reason = _finish_engine(
                world, states, number, run=run_plain_counted, until_us=until_us, flag=True
            )
        if reason == HANDED_OVER:
            coalesce = bool(world.coalesces[number])
            _finish_engine(
                world, states, number, run=run_of(states[number]), until_us=until_us, flag=coalesce
            )


def _finish_engine(
    world: World, states: list[State], number: int, *, run: Run, until_us: int, flag: bool
) -> int:
    """Run an engine to its end, or to a horizon; return why ``run`` ends."""
    while (reason := run(world.engines, number, until_us, flag)) == NEEDS_ROOM:
        states[number] = with_more_room(states[number])
        point_to(world.engines, number, states[number])
    return reason


def _finish_ranks(world: World, states: list[State], *, until_us: int) -> None:
    """Run ranks that are in step to their end, or to a horizon."""
    for first in sorted(set(world.first_rank.tolist())):
        while (rank := finish_ranks(table_of([world]), first, until_us)) != NEVER:
            states[rank] = with_more_room(states[rank])
            point_to(world.engines, rank, states[rank])
