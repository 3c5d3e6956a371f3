"""The path of a request: arrival, admission, the gateway's queue, routing, its instance, exit; a handler per event.

A handler does one event's work at its time. Engines come first in each: if one needs room that only Python can make,
nothing has changed yet and the same event is repeated (``waits_for``).
"""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.events import EventRank, plan
from sim.cluster.exits import Exit
from sim.cluster.gateway.admission import is_admitted, note_admitted
from sim.cluster.gateway.eviction import note_dispatched, take_victim
from sim.cluster.gateway.fleet_saturation import CONCURRENCY, UTILIZATION
from sim.cluster.gateway.queue import QUEUED, fleet_saturation, offer, take_next, withdraw
from sim.cluster.routing.decide import choose_instance, has_room, note_first_token, note_routed
from sim.cluster.run.decision_log import log_decision
from sim.cluster.run.departures import leave, leave_admitted, leave_instance, note_handed_over
from sim.cluster.run.instances import hand_over, is_on, run_until
from sim.cluster.run.planning import follow, next_event_us, plan_dispatch, plan_step
from sim.cluster.run.prefill_to_decode import (
    NOBODY,
    PREFILL,
    drop_from_engine,
    is_split,
    send_to_prefill,
    start_transfer,
)
from sim.cluster.run.snapshots import bring, see_fleet, see_prompts, see_two
from sim.cluster.run.world import NEVER, UNDECIDED, World
from sim.engine import dtypes as dt
from sim.engine.state import engine_at
from sim.jit.compile import part, phase

(
    DONE,
    ENGINE_NEEDS_ROOM,
    ROUTER_NEEDS_ROOM,
    NEEDS_DECISION,
    EVENTS_NEED_ROOM,
    LOG_NEEDS_ROOM,
    NEEDS_OPERATION,
) = range(7)
"""The result of a handler or the loop: the event's work is done, or what Python has to do first."""

NUM_KINDS = 7
"""What a gateway is told of a request: first token, completion, client gave up; the same of its prefill; REFUSAL."""

OF_PREFILL = 3
"""The first of those of its prefill."""

REFUSAL = 6
"""An instance's front end has refused it."""

MOST_COMPLETIONS = 1 << 32
"""More than a log of completions holds: those of one time are ordered by instance, then by their place in it."""

BEHIND_COMPLETIONS = 1 << 61
"""Where refusals begin among them: of answers at one time the engine's own loop takes completions first."""

STEP_ENDED, CLIENT_GAVE_UP, ADMISSION, ROUTING, EXPIRY = (
    int(rank)
    for rank in (
        EventRank.STEP_ENDED,
        EventRank.CLIENT_GAVE_UP,
        EventRank.ADMISSION,
        EventRank.ROUTING,
        EventRank.EXPIRY,
    )
)
REJECTED, QUEUE_FULL, SHED, EXPIRED, EVICTED, REFUSED, DROPPED, TIMED_OUT = (
    int(way)
    for way in (
        Exit.REJECTED,
        Exit.QUEUE_FULL,
        Exit.SHED,
        Exit.EXPIRED,
        Exit.EVICTED,
        Exit.REFUSED,
        Exit.DROPPED,
        Exit.TIMED_OUT,
    )
)


# -- in --------------------------------------------------------------------------------------------------------


@phase
def arrive(world: World, request: int, time_us: int) -> int:
    """Receive a request at the gateway."""
    loop = world.loop[0]
    world.journeys[request].arrival_us = time_us
    if len(world.timeouts_us) > 0 and world.timeouts_us[request] != NEVER:
        world.deadline_us[request] = time_us + world.timeouts_us[request]
    if loop.has_deadlines and loop.has_queue and world.deadline_us[request] != NEVER:
        plan(world.events, max(time_us, world.deadline_us[request]), CLIENT_GAVE_UP, request, request)
    follow(world, time_us + world.loop[0].admission_us, ADMISSION, request)
    return DONE


@phase
def admit_or_reject(world: World, request: int, time_us: int) -> int:
    """Take a request in, or reject it; it goes to the queue if there is one."""
    loop = world.loop[0]
    if loop.admission_looks and not see_fleet(world, time_us):
        return ENGINE_NEEDS_ROOM
    if not is_admitted(world.admission, world.fleet, world.requests, request, time_us):
        leave(world, request, REJECTED, time_us)
        return DONE
    note_admitted(world.admission, world.requests, request)
    world.journeys[request].admitted_us = time_us
    if loop.has_queue:
        enter_queue(world, request, time_us)
    else:
        follow(world, time_us + loop.routing_us, ROUTING, request)
    return DONE


@part
def enter_queue(world: World, request: int, time_us: int) -> None:
    """Put an admitted request into the gateway's queue, unless its client has given up on the way there."""
    if world.loop[0].has_deadlines and NEVER < world.deadline_us[request] <= time_us:
        leave_admitted(world, request, TIMED_OUT, time_us)
        return
    if offer(world.queue, world.requests, request, time_us) != QUEUED:
        leave_admitted(world, request, QUEUE_FULL, time_us)
        return
    if world.queue.counts[0].last_shed != NOWHERE:
        leave_admitted(world, world.queue.counts[0].last_shed, SHED, time_us)
    if world.queue.counts[0].ttl_us > 0:
        plan(world.events, time_us + world.queue.counts[0].ttl_us, EXPIRY, request, request)
    plan_dispatch(world, time_us)


@phase
def expire(world: World, request: int, time_us: int) -> int:
    """End a request's time in the gateway's queue, if it is still there."""
    if withdraw(world.queue, request):
        leave_admitted(world, request, EXPIRED, time_us)
    return DONE


@phase
def give_up(world: World, request: int, time_us: int) -> int:
    """Remove a request whose client gives up in the gateway's queue; an instance removes its own requests."""
    if withdraw(world.queue, request):
        leave_admitted(world, request, TIMED_OUT, time_us)
    return DONE


@part
def saturation_now(world: World) -> float:
    """Return how full the fleet is; a request on its way to an instance counts as being there."""
    counts = world.queue.counts[0]
    saturation = fleet_saturation(world.queue, world.fleet)
    if counts.detector == CONCURRENCY and world.fleet.counts[0].num_candidates > 0:
        saturation += world.loop[0].num_in_transit / (
            counts.max_concurrency * world.fleet.counts[0].num_candidates
        )
    return saturation


@phase
def dispatch_next(world: World, time_us: int) -> int:
    """Hand over the request of the gateway's queue that goes next, if the fleet has room for it."""
    loop = world.loop[0]
    if world.queue.counts[0].num_queued > 0 and not see_fleet(world, time_us):
        return ENGINE_NEEDS_ROOM
    loop.dispatch_planned_us = NEVER
    if world.queue.counts[0].num_queued == 0:
        return DONE
    if loop.evicts:
        victim = take_victim(world.sheddable, world.queue, saturation_now(world))
        if victim != NOWHERE:
            evict(world, victim, time_us)
    request = take_next(world.queue, saturation_now(world))
    if request == NOWHERE:
        return DONE
    world.journeys[request].dispatched_us = time_us
    loop.num_in_transit += 1
    if loop.routing_us > 0:
        plan_dispatch(world, time_us)
    plan(world.events, time_us + loop.routing_us, ROUTING, request, request)
    return DONE


@part
def evict(world: World, request: int, time_us: int) -> None:
    """Take a request off its instance."""
    if not drop_from_engine(world, request, time_us):  # in the step that is under way: it comes to its end
        return
    leave_instance(world, request, world.journeys[request].instance, time_us)
    leave_admitted(world, request, EVICTED, time_us)


# -- to an instance --------------------------------------------------------------------------------------------


@phase
def decide(world: World, request: int, time_us: int) -> int:
    """Choose an instance for a request (``chosen``), by what may be seen of them at ``time_us``."""
    loop = world.loop[0]
    if loop.looks_at_all:
        if not see_fleet(world, time_us):
            return ENGINE_NEEDS_ROOM
        see_prompts(world, request)
    elif loop.looks_at_two and not see_two(world, request, time_us):
        return ENGINE_NEEDS_ROOM
    if loop.has_own_policy and world.fleet.counts[0].num_candidates > 0:
        loop.waits_for = request
        return NEEDS_DECISION if loop.chosen == UNDECIDED else DONE
    while True:
        chosen = choose_instance(world.router, world.fleet, world.requests, request, time_us)
        if world.router.settings[0].must_see == NOWHERE:
            loop.chosen = chosen
            return DONE
        if not bring(world, world.router.settings[0].must_see, time_us):
            return ENGINE_NEEDS_ROOM


@phase
def route(world: World, request: int, time_us: int) -> int:
    """Send a request to the instance that the policy chooses, or that ``forced`` names."""
    loop = world.loop[0]
    if loop.records_decisions and loop.num_decisions >= len(world.log.decisions):
        return LOG_NEEDS_ROOM
    if not has_room(world.router, world.fleet, world.requests, request) or (
        loop.decider != NOBODY
        and not has_room(world.prefill_router, world.prefill_fleet, world.requests, request)
    ):
        loop.waits_for = request
        return ROUTER_NEEDS_ROOM
    answer = decide(world, request, time_us)
    if answer != DONE:
        return answer
    instance, loop.chosen = loop.chosen, UNDECIDED
    if len(world.forced) > 0 and is_on(world, world.forced[request]):
        instance = world.forced[request]
    if loop.records_decisions:
        log_decision(world, world.router, request, instance, time_us, 0)
    send_to(world, request, instance, time_us)
    return DONE


@part
def tell_refusal(world: World, request: int, time_us: int) -> None:
    """Tell a client that an instance's front end refuses its request, as soon as it has looked at it.

    Answers before that time come first: each may release another request.
    """
    refused_us = world.rows[request].queued_us
    if world.loop[0].is_coupled and refused_us > time_us:
        plan(
            world.events, refused_us, STEP_ENDED, BEHIND_COMPLETIONS + request, NUM_KINDS * request + REFUSAL
        )
    else:
        leave_admitted(world, request, REFUSED, refused_us)


@part
def send_to(world: World, request: int, instance: int, time_us: int) -> None:
    """Hand a routed request over."""
    loop, journey = world.loop[0], world.journeys[request]
    loop.num_in_transit -= loop.has_queue
    journey.routed_us = time_us
    if instance == NOWHERE:
        leave_admitted(world, request, DROPPED, time_us)
        return
    journey.instance = instance
    note_routed(world.router, world.fleet, world.requests, request, instance)
    note_handed_over(world, request, instance)
    if is_split(world, request, instance):
        is_taken = send_to_prefill(world, request, time_us)
    else:
        is_taken = hand_over(world, request, instance, time_us)
    if not is_taken:
        note_first_token(world.router, world.requests, request, instance)
        leave_instance(world, request, instance, time_us)
        tell_refusal(world, request, time_us)
        return
    if loop.has_queue:
        note_dispatched(world.sheddable, world.requests, request)
        if loop.routing_us == 0:
            plan_dispatch(world, time_us)
    if loop.is_coupled:
        plan_step(world, instance)


# -- on an instance ------------------------------------------------------------------------------------------


@part
def step_may_dispatch(world: World) -> bool:
    """Return whether a step may release a request from the gateway's queue: one waits, and reports have no delay.

    Reports with an interval change at a snapshot, the number in flight at an answer: both plan a dispatch.
    """
    loop = world.loop[0]
    if (
        not loop.has_queue
        or world.queue.counts[0].num_queued == 0
        or world.queue.counts[0].detector != UTILIZATION
    ):
        return False
    return loop.queue_interval_us == 0 or loop.kv_interval_us == 0


@phase
def take_step(world: World, instance: int, time_us: int) -> int:
    """Step an instance, and again for as long as nothing else can happen.

    Where a step may release a queued request, one step is taken at a time, however far away the next event is.
    """
    if world.stepping_us[instance] != time_us:
        return DONE
    looks_after_each = step_may_dispatch(world)
    until_us = time_us + 1 if looks_after_each else max(next_event_us(world), time_us + 1)
    if not run_until(world, instance, until_us):
        return ENGINE_NEEDS_ROOM
    state = engine_at(world.engines, instance)
    fill = state.engine[0].log_fill
    for i in range(fill.num_completions):
        seen = state.completions[i]
        if seen.kind == dt.LOAD_STARTED:
            start_transfer(world, seen.request, instance, seen.time_us)
            continue
        kind = seen.kind + (OF_PREFILL if world.roles[instance] == PREFILL else 0)
        sequence = instance * MOST_COMPLETIONS + i
        plan(world.events, seen.time_us, STEP_ENDED, sequence, NUM_KINDS * seen.request + kind)
    fill.num_completions = 0
    world.stepping_us[instance] = NEVER
    plan_step(world, instance)
    if world.stepping_us[instance] != NEVER and looks_after_each:
        plan_dispatch(world, world.stepping_us[instance])
    return DONE
