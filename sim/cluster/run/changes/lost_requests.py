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
from sim.engine.state import engine_at
from sim.engine.waiting import drop_pending
from sim.jit.compile import engine_entry, phase
from sim.jit.references import Table

ROUTING, LOST = int(EventRank.ROUTING), int(Exit.LOST)


@phase
def leave_for_good(w: World, request: int, time_us: int) -> None:
    """Take a request out of all counts of its instance."""
    j = w.journeys[request]
    if not j.got_first_token:
        note_first_token(w.router, w.requests, request, j.instance)
    leave_instance(w, request, j.instance)
    if w.loop[0].has_queue:
        note_departed(w.sheddable, request)
        plan_dispatch(w, time_us)


@phase
def take_off_engine(w: World, request: int, instance: int) -> None:
    """Remove a request from its engine, wherever it is in it; its blocks are freed."""
    s = engine_at(w.engines, instance)
    if s.requests[request].status == dt.PENDING:
        drop_pending(s, request)
    abort(s, request)


@engine_entry
def hand_back(table: Table, request: int, time_us: int) -> None:
    """Give a request that its instance has not begun back to the gateway: to its queue if it has one, to the router."""
    w = world_at(table, 0)
    loop, j = w.loop[0], w.journeys[request]
    take_off_engine(w, request, j.instance)
    w.rows[request].status = dt.PENDING
    leave_for_good(w, request, time_us)
    j.instance = NOWHERE
    if loop.has_queue:
        enter_queue(w, request, time_us)
    else:
        plan(w.events, time_us + loop.routing_us, ROUTING, request, request)


@engine_entry
def lose(table: Table, request: int, time_us: int) -> None:
    """Remove a request with the instance that it was on, without the result of the step in progress."""
    w = world_at(table, 0)
    if w.journeys[request].prefill_instance == NOWHERE:
        take_off_engine(w, request, w.journeys[request].instance)
    else:
        take_off_both(w, request, time_us)
    w.rows[request].status = dt.ABORTED
    leave_for_good(w, request, time_us)
    leave_admitted(w, request, LOST, time_us)


@phase
def take_off_both(w: World, request: int, time_us: int) -> None:
    """Remove a request whose prompt another instance computes, and its KV from the other instance."""
    j = w.journeys[request]
    if j.is_prefilling:
        take_off_engine(w, request, j.prefill_instance)
        leave_prefill(w, request)
        if engine_at(w.engines, j.prefill_instance).requests[request].status == dt.FINISHED:
            tell(w, j.prefill_instance, request, dt.FINISHED_SENDING, time_us)  # its step is still under way
        return
    take_off_engine(w, request, j.instance)
    release_unasked(w, request, time_us)
    cut_transfer(w, request, time_us)


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
    s = engine_at(world_at(table, 0).engines, instance)
    if s.requests[request].slot != NOWHERE:
        free_blocks(s, request)
        s.engine[0].kv_transfers.num_delayed -= 1


@engine_entry
def stop(table: Table, request: int, time_us: int) -> bool:
    """Drop a request from an instance whose time is up; False if it has all its tokens and finishes."""
    w = world_at(table, 0)
    if not drop_from_engine(w, request, time_us):
        return False
    leave_for_good(w, request, time_us)
    leave_admitted(w, request, LOST, time_us)
    return True


@engine_entry
def let_dispatch(table: Table, time_us: int) -> None:
    """Make the gateway's queue hand over to an instance that has just become ready."""
    plan_dispatch(world_at(table, 0), time_us)


@engine_entry
def forget(table: Table, instance: int) -> None:
    """Make the routers forget what an instance has cached: it starts with empty caches."""
    w = world_at(table, 0)
    forget_instance(w.prefill_router if w.roles[instance] == PREFILL else w.router, w.requests, instance)


@engine_entry
def has_work(table: Table) -> bool:
    """Return whether any instance has something to compute."""
    w = world_at(table, 0)
    for instance in range(len(w.stepping_us)):  # noqa: SIM110 - numba compiles no generators
        if next_step_us(w, instance) != NEVER:
            return True
    return False
