"""How requests leave: for every reason, all that counts them is updated once."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.draws import RETRY_PAUSE, draw
from sim.cluster.events import EventRank, plan
from sim.cluster.exits import Exit
from sim.cluster.fleet import ACTIVE_ADAPTER, NO_ADAPTER, WAITING_ADAPTER
from sim.cluster.gateway.admission import note_gone
from sim.cluster.gateway.eviction import note_departed
from sim.cluster.routing.decide import note_finished, note_first_token
from sim.cluster.run.clients import note_answered
from sim.cluster.run.planning import plan_dispatch
from sim.cluster.run.world import NEVER, World
from sim.engine import dtypes as dt
from sim.jit.compile import part, phase

ARRIVAL = int(EventRank.ARRIVAL)
COMPLETED, TIMED_OUT = int(Exit.COMPLETED), int(Exit.TIMED_OUT)


@part
def leave(world: World, request: int, way: int, time_us: int) -> None:
    """Remove a request, for any reason; its client knows at once, and may retry."""
    journey, loop = world.journeys[request], world.loop[0]
    journey.exit, journey.left_us = way, time_us
    if loop.retried_exits != 0 and tries_again(world, request, way, time_us):
        return
    if loop.has_clients:
        note_answered(world, request % loop.num_requests, time_us)


@phase
def tries_again(world: World, request: int, way: int, time_us: int) -> bool:
    """Plan a request's next attempt after a pause, if this exit is retried and attempts are left."""
    loop = world.loop[0]
    again = request + loop.num_requests
    if (loop.retried_exits >> way) & 1 == 0 or again >= len(world.journeys):
        return False
    pause_us = loop.backoff_us * loop.backoff_factor ** (request // loop.num_requests)
    pause_us = min(pause_us, float(loop.most_backoff_us))
    pause_us *= 1.0 - loop.jitter_frac * draw(loop.retry_seed, RETRY_PAUSE, again)
    since_us = time_us
    if way == TIMED_OUT:  # its client left as the deadline passed; the server has noticed it now
        since_us = world.deadline_us[request]
    at_us = max(time_us, since_us + int(pause_us))
    plan(world.events, at_us, ARRIVAL, again, again)
    return True


@part
def leave_admitted(world: World, request: int, way: int, time_us: int) -> None:
    """Remove a request that had been admitted."""
    note_gone(world.admission, world.requests, request)
    leave(world, request, way, time_us)


@part
def note_handed_over(world: World, request: int, instance: int) -> None:
    """Note that an instance was handed a request, and will need its adapter."""
    adapter = world.requests.adapter[request]
    if adapter == NOWHERE:
        return
    world.fleet.num_with_adapter[instance, adapter] += 1
    if world.fleet.adapters[instance, adapter] == NO_ADAPTER:
        world.fleet.adapters[instance, adapter] = WAITING_ADAPTER
        world.fleet.instances[instance].num_adapters += 1


@part
def leave_instance(world: World, request: int, instance: int, time_us: int) -> None:
    """Take a request out of all counts of an instance."""
    note_finished(world.router, world.fleet, world.requests, request, instance, time_us)
    adapter = world.requests.adapter[request]
    if adapter == NOWHERE:
        return
    world.fleet.num_with_adapter[instance, adapter] -= 1
    if world.fleet.num_with_adapter[instance, adapter] == 0:
        world.fleet.adapters[instance, adapter] = NO_ADAPTER
        world.fleet.instances[instance].num_adapters -= 1


@phase
def hear(world: World, request: int, kind: int, time_us: int) -> None:
    """Tell the gateway of a request's first token, or of its end."""
    journey = world.journeys[request]
    if journey.exit != 0:  # evicted with its last token on the way
        return
    if not journey.got_first_token:
        journey.got_first_token = 1
        note_first_token(world.router, world.requests, request, journey.instance)
        if world.requests.adapter[request] != NOWHERE:
            world.fleet.adapters[journey.instance, world.requests.adapter[request]] = ACTIVE_ADAPTER
    if kind == dt.GOT_FIRST_TOKEN:
        return
    leave_instance(world, request, journey.instance, time_us)
    if world.loop[0].has_queue:
        note_departed(world.sheddable, request)
    is_late = world.loop[0].has_deadlines and NEVER < world.deadline_us[request] < time_us
    leave_admitted(world, request, TIMED_OUT if kind == dt.GAVE_UP or is_late else COMPLETED, time_us)
    plan_dispatch(world, time_us)
