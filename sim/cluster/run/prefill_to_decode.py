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
from sim.engine.state import engine_at
from sim.jit.compile import part, phase

TRANSFER_ENDED = int(EventRank.TRANSFER_ENDED)

SHARED, PREFILL, DECODE = 0, 1, 2
"""Roles of instances."""

NOBODY, EVERYBODY, WHO_LACKS_A_PREFIX = 0, 1, 2
"""Which prompts a decider sends to prefill instances."""


# -- to a prefill instance ------------------------------------------------------------------------------------


@part
def is_split(w: World, request: int, instance: int) -> bool:
    """Return whether a prefill instance computes the prompt of a request that this instance will decode."""
    loop = w.loop[0]
    if (
        loop.decider == NOBODY
        or w.roles[instance] != DECODE
        or w.entries[w.pool_of[instance], request] == NEVER
        or w.prefill_fleet.counts[0].num_candidates == 0
    ):
        return False
    if loop.decider == EVERYBODY:
        return True
    see_prompt(w, request, instance)
    num_cached = w.fleet.instances[instance].num_cached_blocks * w.fleet.counts[0].block_size
    return w.requests.prompt_tokens[request] - num_cached > loop.prefix_threshold


@phase
def send_to_prefill(w: World, request: int, time_us: int) -> bool:
    """Hand a request to a prefill instance; False when its front end refuses it."""
    prefill = choose_instance(w.prefill_router, w.prefill_fleet, w.requests, request, time_us)
    if w.loop[0].records_decisions:
        log_decision(w, w.prefill_router, request, prefill, time_us, 1)
    note_routed(w.prefill_router, w.prefill_fleet, w.requests, request, prefill)
    j = w.journeys[request]
    j.prefill_instance, j.is_prefilling = prefill, 1
    w.transfers[request].do_remote_decode = 1
    if not hand_over(w, request, prefill, time_us):
        leave_prefill(w, request)
        return False
    plan_step(w, prefill)
    return True


@phase
def leave_prefill(w: World, request: int) -> None:
    """Take a request out of all counts of its prefill instance."""
    j = w.journeys[request]
    j.is_prefilling = 0
    note_first_token(w.prefill_router, w.requests, request, j.prefill_instance)
    note_finished(w.prefill_router, w.prefill_fleet, w.requests, request, j.prefill_instance)


# -- to its decode instance -----------------------------------------------------------------------------------


@phase
def hear_of_prefill(w: World, request: int, kind: int, time_us: int) -> None:
    """Tell the gateway that a prompt is computed, or that its client gave up: whether its KV is needed."""
    j = w.journeys[request]
    if kind == dt.GOT_FIRST_TOKEN or j.exit != 0:  # lost with its token on the way
        return
    if j.is_prefilling:
        leave_prefill(w, request)
    if kind == dt.GAVE_UP:
        hear(w, request, kind, time_us)
        return
    j.prefilled_us = time_us
    w.transfers[request].do_remote_prefill = 1
    hand_over(w, request, j.instance, time_us)
    plan_step(w, j.instance)


@phase
def start_transfer(w: World, request: int, instance: int, time_us: int) -> None:
    """Start a request's KV on its way to the instance that has asked for it."""
    sender = w.journeys[request].prefill_instance
    start_flow(w.links, request, sender, instance, w.transfers[request].num_blocks, time_us)
    plan_transfers(w)


@part
def plan_transfers(w: World) -> None:
    """Plan when a transfer next begins to move, or ends, unless something is planned for no later."""
    loop, next_us = w.loop[0], next_change_us(w.links)
    if next_us != FOREVER and (loop.transfer_planned_us == NEVER or loop.transfer_planned_us > next_us):
        loop.transfer_planned_us = next_us
        plan(w.events, next_us, TRANSFER_ENDED, 0, 0)


@phase
def end_transfers(w: World, time_us: int) -> None:
    """Move transfers up to a time, and tell both sides of those that have ended."""
    if w.loop[0].transfer_planned_us == time_us:
        w.loop[0].transfer_planned_us = NEVER
    move_on(w.links, time_us)
    while True:
        request = take_ended(w.links)
        if request == NOWHERE:
            break
        j = w.journeys[request]
        tell(w, j.prefill_instance, request, dt.FINISHED_SENDING, time_us)
        tell(w, j.instance, request, dt.FINISHED_RECVING, time_us)
    plan_transfers(w)


@phase
def tell(w: World, instance: int, request: int, kind: int, time_us: int) -> None:
    """Tell an engine that a transfer has ended for it."""
    deliver(engine_at(w.engines, instance), request, kind, time_us)
    plan_step(w, instance)


@phase
def cut_transfer(w: World, request: int, time_us: int) -> None:
    """Cut off a transfer after one of its ends has gone: for both sides it is a transfer that has ended.

    An instance that has failed loses it with all else; the other one frees its blocks at its next step.
    """
    if not is_moving(w.links, request):
        return
    cut_off(w.links, request, time_us)
    j = w.journeys[request]
    tell(w, j.prefill_instance, request, dt.FINISHED_SENDING, time_us)
    tell(w, j.instance, request, dt.FINISHED_RECVING, time_us)
    plan_transfers(w)


# -- its KV is not needed -------------------------------------------------------------------------------------


@part
def release_unasked(w: World, request: int, time_us: int) -> None:
    """Free a prefill instance's blocks of a request that left before it asked for them."""
    if len(w.transfers) > 0 and w.transfers[request].do_remote_prefill:
        w.transfers[request].do_remote_prefill = 0
        tell(w, w.journeys[request].prefill_instance, request, dt.FINISHED_SENDING, time_us)


@phase
def drop_from_engine(w: World, request: int, time_us: int) -> bool:
    """Drop a request from its instance; False if it has all its tokens and finishes."""
    j = w.journeys[request]
    instance = j.prefill_instance if j.is_prefilling else j.instance
    s = engine_at(w.engines, instance)
    if s.requests[request].status == dt.FINISHED:
        return False
    drop_request(s, request)
    if j.is_prefilling:
        leave_prefill(w, request)
    release_unasked(w, request, time_us)
    plan_step(w, instance)
    return True
