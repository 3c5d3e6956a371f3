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
def leave(w: World, request: int, way: int, time_us: int) -> None:
    """Remove a request, for any reason; its client knows at once, and may retry."""
    j, loop = w.journeys[request], w.loop[0]
    j.exit, j.left_us = way, time_us
    if loop.retried_exits != 0 and tries_again(w, request, way, time_us):
        return
    if loop.has_clients:
        note_answered(w, request % loop.num_requests, time_us)


@phase
def tries_again(w: World, request: int, way: int, time_us: int) -> bool:
    """Plan a request's next attempt after a pause, if this exit is retried and attempts are left."""
    loop = w.loop[0]
    again = request + loop.num_requests
    if (loop.retried_exits >> way) & 1 == 0 or again >= len(w.journeys):
        return False
    pause_us = loop.backoff_us * loop.backoff_factor ** (request // loop.num_requests)
    pause_us = min(pause_us, float(loop.most_backoff_us))
    pause_us *= 1.0 - loop.jitter_frac * draw(loop.retry_seed, RETRY_PAUSE, again)
    since_us = time_us
    if way == TIMED_OUT:  # its client left as the deadline passed; the server has noticed it now
        since_us = w.deadline_us[request]
    at_us = max(time_us, since_us + int(pause_us))
    plan(w.events, at_us, ARRIVAL, again, again)
    return True


@part
def leave_admitted(w: World, request: int, way: int, time_us: int) -> None:
    """Remove a request that had been admitted."""
    note_gone(w.admission, w.requests, request)
    leave(w, request, way, time_us)


@part
def hold_adapter(w: World, request: int, instance: int) -> None:
    """Note that a request with an adapter has been handed over: the instance will need it."""
    adapter = w.requests.adapter[request]
    if adapter == NOWHERE:
        return
    w.num_with_adapter[instance, adapter] += 1
    if w.fleet.adapters[instance, adapter] == NO_ADAPTER:
        w.fleet.adapters[instance, adapter] = WAITING_ADAPTER
        w.fleet.instances[instance].num_adapters += 1


@part
def leave_instance(w: World, request: int, instance: int) -> None:
    """Take a request out of all counts of an instance."""
    note_finished(w.router, w.fleet, w.requests, request, instance)
    adapter = w.requests.adapter[request]
    if adapter == NOWHERE:
        return
    w.num_with_adapter[instance, adapter] -= 1
    if w.num_with_adapter[instance, adapter] == 0:
        w.fleet.adapters[instance, adapter] = NO_ADAPTER
        w.fleet.instances[instance].num_adapters -= 1


@phase
def hear(w: World, request: int, kind: int, time_us: int) -> None:
    """Tell the gateway of a request's first token, or of its end."""
    j = w.journeys[request]
    if j.exit != 0:  # evicted with its last token on the way
        return
    if not j.got_first_token:
        j.got_first_token = 1
        note_first_token(w.router, w.requests, request, j.instance)
        if w.requests.adapter[request] != NOWHERE:
            w.fleet.adapters[j.instance, w.requests.adapter[request]] = ACTIVE_ADAPTER
    if kind == dt.GOT_FIRST_TOKEN:
        return
    leave_instance(w, request, j.instance)
    if w.loop[0].has_queue:
        note_departed(w.sheddable, request)
    is_late = w.loop[0].has_deadlines and NEVER < w.deadline_us[request] < time_us
    leave_admitted(w, request, TIMED_OUT if kind == dt.GAVE_UP or is_late else COMPLETED, time_us)
    plan_dispatch(w, time_us)
