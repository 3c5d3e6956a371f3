"""Taking requests off an instance that stops or fails: back to the router, or lost. Called from Python."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.events import EventRank, plan
from sim.cluster.exits import Exit
from sim.cluster.gateway.eviction import note_departed
from sim.cluster.routing.decide import forget_instance, note_first_token
from sim.cluster.run.departures import leave_admitted, leave_instance
from sim.cluster.run.instances import next_step_us
from sim.cluster.run.planning import plan_dispatch
from sim.cluster.run.prefill_to_decode import (
    PREFILL,
    cut_transfer,
    drop_from_engine,
    end_transfers,
    leave_prefill,
    release_unasked,
    tell,
)
from sim.cluster.run.request_path import enter_queue
from sim.cluster.run.tables import world_at
from sim.cluster.run.world import NEVER, World
from sim.engine import dtypes as dt
from sim.engine.abort import abort
from sim.engine.kv_cache.blocks import free_blocks
from sim.engine.records.transfer_records import FINISHED_SENDING
from sim.engine.state import engine_at
from sim.engine.waiting import drop_pending
from sim.jit.compile import engine_entry, phase
from sim.jit.references import Table

ROUTING, LOST = int(EventRank.ROUTING), int(Exit.LOST)


@phase
def leave_for_good(world: World, request: int, time_us: int) -> None:
    """Take a request out of all counts of its instance."""
    journey = world.journeys[request]
    if not journey.got_first_token:
        note_first_token(world.router, world.requests, request, journey.instance)
    leave_instance(world, request, journey.instance, time_us)
    if world.loop[0].has_queue:
        note_departed(world.sheddable, request)
        plan_dispatch(world, time_us)


@phase
def take_off_engine(world: World, request: int, instance: int) -> None:
    """Remove a request from its engine, wherever it is in it; its blocks are freed."""
    state = engine_at(world.engines, instance)
    if state.requests[request].status == dt.PENDING:
        drop_pending(state, request)
    abort(state, request)


@engine_entry
def hand_back(table: Table, request: int, time_us: int) -> None:
    """Give a request that its instance has not begun back to the gateway: to its queue if it has one, to the router."""
    world = world_at(table, 0)
    loop, journey = world.loop[0], world.journeys[request]
    take_off_engine(world, request, journey.instance)
    world.rows[request].status = dt.PENDING
    leave_for_good(world, request, time_us)
    journey.instance = NOWHERE
    if loop.has_queue:
        enter_queue(world, request, time_us)
    else:
        plan(world.events, time_us + loop.routing_us, ROUTING, request, request)


@engine_entry
def lose(table: Table, request: int, time_us: int) -> None:
    """Remove a request with the instance that it was on, without the result of the step in progress."""
    world = world_at(table, 0)
    if world.journeys[request].prefill_instance == NOWHERE:
        take_off_engine(world, request, world.journeys[request].instance)
    else:
        take_off_both(world, request, time_us)
    world.rows[request].status = dt.ABORTED
    leave_for_good(world, request, time_us)
    leave_admitted(world, request, LOST, time_us)


@phase
def take_off_both(world: World, request: int, time_us: int) -> None:
    """Remove a request whose prompt another instance computes, and its KV from the other instance."""
    journey = world.journeys[request]
    if journey.is_prefilling:
        take_off_engine(world, request, journey.prefill_instance)
        leave_prefill(world, request, time_us)
        if engine_at(world.engines, journey.prefill_instance).requests[request].status == dt.FINISHED:
            tell(
                world, journey.prefill_instance, request, FINISHED_SENDING, time_us
            )  # its step is still under way
        return
    take_off_engine(world, request, journey.instance)
    release_unasked(world, request, time_us)
    cut_transfer(world, request, time_us)


@engine_entry
def cut_off_transfer(table: Table, request: int, time_us: int) -> None:
    """Cut off the transfer of a request that had left before, if it is still in progress."""
    cut_transfer(world_at(table, 0), request, time_us)


@engine_entry
def take_in_transfers(table: Table, time_us: int) -> None:
    """Move transfers up to a time, so that what has ended by then has arrived."""
    end_transfers(world_at(table, 0), time_us)


@engine_entry
def release_blocks(table: Table, instance: int, request: int) -> None:
    """Free the blocks that a failed, idle instance held for a request."""
    state = engine_at(world_at(table, 0).engines, instance)
    if state.requests[request].slot != NOWHERE:
        free_blocks(state, request)
        state.engine[0].kv_transfers.num_delayed -= 1


@engine_entry
def stop(table: Table, request: int, time_us: int) -> bool:
    """Drop a request from an instance whose time is up; False if it has all its tokens and finishes."""
    world = world_at(table, 0)
    if not drop_from_engine(world, request, time_us):
        return False
    leave_for_good(world, request, time_us)
    leave_admitted(world, request, LOST, time_us)
    return True


@engine_entry
def let_dispatch(table: Table, time_us: int) -> None:
    """Make the gateway's queue hand over to an instance that has just become ready."""
    plan_dispatch(world_at(table, 0), time_us)


@engine_entry
def forget(table: Table, instance: int) -> None:
    """Make the routers forget what an instance has cached: it starts with empty caches."""
    world = world_at(table, 0)
    forget_instance(
        world.prefill_router if world.roles[instance] == PREFILL else world.router, world.requests, instance
    )


@engine_entry
def has_work(table: Table) -> bool:
    """Return whether any instance has something to compute."""
    world = world_at(table, 0)
    for instance in range(len(world.stepping_us)):  # noqa: SIM110 - numba compiles no generators
        if next_step_us(world, instance) != NEVER:
            return True
    return False
