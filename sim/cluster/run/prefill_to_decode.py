"""From prefill to decode: which instance computes a prompt, when its KV moves, and which parts learn of it.

The decode instance is chosen first. Where the decider says so, a prefill instance gets the request with one token to
make. When that token is seen, the decode instance gets the request, and asks for the KV when the request's turn comes:
then the transfer starts. The prefill instance holds its blocks until the transfer has ended. Where no prefill instance
is up, the decode instance computes the prompt itself.
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.events import EventRank, plan
from sim.cluster.routing.decide import choose_instance, note_finished, note_first_token, note_routed
from sim.cluster.run.decision_log import log_decision
from sim.cluster.run.departures import hear
from sim.cluster.run.instances import hand_over, see_prompt
from sim.cluster.run.planning import plan_step
from sim.cluster.run.world import FOREVER, NEVER, World
from sim.cluster.transfer.kv_links import (
    cut_off,
    is_moving,
    move_on,
    next_change_us,
    start_flow,
    take_ended,
)
from sim.engine import dtypes as dt
from sim.engine.control import drop_request
from sim.engine.kv_transfer.delivery import deliver
from sim.engine.records.transfer_records import FINISHED_RECVING, FINISHED_SENDING
from sim.engine.state import engine_at
from sim.jit.compile import part, phase

TRANSFER_ENDED = int(EventRank.TRANSFER_ENDED)

SHARED, PREFILL, DECODE = 0, 1, 2
"""Roles of instances."""

NOBODY, EVERYBODY, WHO_LACKS_A_PREFIX = 0, 1, 2
"""Which prompts a decider sends to prefill instances."""


# -- to a prefill instance ------------------------------------------------------------------------------------


@part
def is_split(world: World, request: int, instance: int) -> bool:
    """Return whether a prefill instance computes the prompt of a request that this instance will decode."""
    loop = world.loop[0]
    if (
        loop.decider == NOBODY
        or world.roles[instance] != DECODE
        or world.entries[world.pool_of[instance], request] == NEVER
        or world.prefill_fleet.counts[0].num_candidates == 0
    ):
        return False
    if loop.decider == EVERYBODY:
        return True
    see_prompt(world, request, instance)
    num_cached = world.fleet.instances[instance].num_cached_blocks * world.fleet.counts[0].block_size
    return world.requests.prompt_tokens[request] - num_cached > loop.prefix_threshold


@phase
def send_to_prefill(world: World, request: int, time_us: int) -> bool:
    """Hand a request to a prefill instance; False when its front end refuses it."""
    prefill = choose_instance(world.prefill_router, world.prefill_fleet, world.requests, request, time_us)
    if world.loop[0].records_decisions:
        log_decision(world, world.prefill_router, request, prefill, time_us, 1)
    note_routed(world.prefill_router, world.prefill_fleet, world.requests, request, prefill)
    journey = world.journeys[request]
    journey.prefill_instance, journey.is_prefilling = prefill, 1
    world.transfers[request].do_remote_decode = 1
    if not hand_over(world, request, prefill, time_us):
        leave_prefill(world, request, time_us)
        return False
    plan_step(world, prefill)
    return True


@phase
def leave_prefill(world: World, request: int, time_us: int) -> None:
    """Take a request out of all counts of its prefill instance."""
    journey = world.journeys[request]
    journey.is_prefilling = 0
    note_first_token(world.prefill_router, world.requests, request, journey.prefill_instance)
    instance = journey.prefill_instance
    note_finished(world.prefill_router, world.prefill_fleet, world.requests, request, instance, time_us)


# -- to its decode instance -----------------------------------------------------------------------------------


@phase
def hear_of_prefill(world: World, request: int, kind: int, time_us: int) -> None:
    """Tell the gateway that a prompt is computed, or that its client gave up: whether its KV is needed."""
    journey = world.journeys[request]
    if kind == dt.GOT_FIRST_TOKEN or journey.exit != 0:  # lost with its token on the way
        return
    if journey.is_prefilling:
        leave_prefill(world, request, time_us)
    if kind == dt.GAVE_UP:
        hear(world, request, kind, time_us)
        return
    journey.prefilled_us = time_us
    world.transfers[request].do_remote_prefill = 1
    hand_over(world, request, journey.instance, time_us)
    plan_step(world, journey.instance)


@phase
def start_transfer(world: World, request: int, instance: int, time_us: int) -> None:
    """Start a request's KV on its way to the instance that has asked for it."""
    sender = world.journeys[request].prefill_instance
    start_flow(world.links, request, sender, instance, world.transfers[request].num_blocks, time_us)
    plan_transfers(world)


@part
def plan_transfers(world: World) -> None:
    """Plan when a transfer next begins to move, or ends, unless something is planned for no later."""
    loop, next_us = world.loop[0], next_change_us(world.links)
    if next_us != FOREVER and (loop.transfer_planned_us == NEVER or loop.transfer_planned_us > next_us):
        loop.transfer_planned_us = next_us
        plan(world.events, next_us, TRANSFER_ENDED, 0, 0)


@phase
def end_transfers(world: World, time_us: int) -> None:
    """Move transfers up to a time, and tell both sides of those that have ended."""
    if world.loop[0].transfer_planned_us == time_us:
        world.loop[0].transfer_planned_us = NEVER
    move_on(world.links, time_us)
    while True:
        request = take_ended(world.links)
        if request == NOWHERE:
            break
        journey = world.journeys[request]
        tell(world, journey.prefill_instance, request, FINISHED_SENDING, time_us)
        tell(world, journey.instance, request, FINISHED_RECVING, time_us)
    plan_transfers(world)


@phase
def tell(world: World, instance: int, request: int, kind: int, time_us: int) -> None:
    """Tell an engine that a transfer has ended for it."""
    deliver(engine_at(world.engines, instance), request, kind, time_us)
    plan_step(world, instance)


@phase
def cut_transfer(world: World, request: int, time_us: int) -> None:
    """Cut off a transfer after one of its ends has gone: for both sides it is a transfer that has ended.

    An instance that has failed loses it with all else; the other one frees its blocks at its next step.
    """
    if not is_moving(world.links, request):
        return
    cut_off(world.links, request, time_us)
    journey = world.journeys[request]
    tell(world, journey.prefill_instance, request, FINISHED_SENDING, time_us)
    tell(world, journey.instance, request, FINISHED_RECVING, time_us)
    plan_transfers(world)


# -- its KV is not needed -------------------------------------------------------------------------------------


@part
def release_unasked(world: World, request: int, time_us: int) -> None:
    """Free a prefill instance's blocks of a request that left before it asked for them."""
    if len(world.transfers) > 0 and world.transfers[request].do_remote_prefill:
        world.transfers[request].do_remote_prefill = 0
        tell(world, world.journeys[request].prefill_instance, request, FINISHED_SENDING, time_us)


@phase
def drop_from_engine(world: World, request: int, time_us: int) -> bool:
    """Drop a request from its instance; False if it has all its tokens and finishes."""
    journey = world.journeys[request]
    instance = journey.prefill_instance if journey.is_prefilling else journey.instance
    state = engine_at(world.engines, instance)
    if state.requests[request].status == dt.FINISHED:
        return False
    drop_request(state, request)
    if journey.is_prefilling:
        leave_prefill(world, request, time_us)
    release_unasked(world, request, time_us)
    plan_step(world, instance)
    return True
