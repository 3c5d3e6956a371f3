"""Functions of the cluster that only its loop calls, compiled so that a test can call each of them alone."""

from __future__ import annotations

from sim.cluster.events import EventQueue, drop_next
from sim.cluster.fleet import Fleet, RequestTable
from sim.cluster.gateway.admission import Admission, is_admitted, note_admitted
from sim.cluster.gateway.eviction import SheddableInFlight, note_departed, note_dispatched, take_victim
from sim.cluster.gateway.queue import (
    GatewayQueue,
    fleet_saturation,
    offer,
    take_next,
)
from sim.cluster.routing.decide import (
    choose_instance,
    has_room,
    note_finished,
    note_first_token,
    note_routed,
    note_snapshot,
)
from sim.cluster.routing.router_state import Router
from sim.jit.compile import engine_entry

NEEDS_ROOM = -2
"""``decide`` says: call ``with_room_for`` and ask again."""


@engine_entry
def drop_next_event(e: EventQueue) -> None:
    """Call ``drop_next``."""
    drop_next(e)


@engine_entry
def admit(a: Admission, f: Fleet, q: RequestTable, request: int, time_us: int) -> bool:
    """Return whether a request is taken, and count it in; for those who decide from Python."""
    if not is_admitted(a, f, q, request, time_us):
        return False
    note_admitted(a, q, request)
    return True


@engine_entry
def offer_request(g: GatewayQueue, q: RequestTable, request: int, time_us: int) -> int:
    """Call ``offer``."""
    return offer(g, q, request, time_us)


@engine_entry
def take_request(g: GatewayQueue, saturation: float) -> int:
    """Call ``take_next``."""
    return take_next(g, saturation)


@engine_entry
def saturation_seen(g: GatewayQueue, f: Fleet) -> float:
    """Call ``fleet_saturation``."""
    return fleet_saturation(g, f)


@engine_entry
def dispatch(s: SheddableInFlight, q: RequestTable, request: int) -> None:
    """Call ``note_dispatched``."""
    note_dispatched(s, q, request)


@engine_entry
def depart(s: SheddableInFlight, request: int) -> None:
    """Call ``note_departed``."""
    note_departed(s, request)


@engine_entry
def evict_for(s: SheddableInFlight, g: GatewayQueue, saturation: float) -> int:
    """Call ``take_victim``."""
    return take_victim(s, g, saturation)


@engine_entry
def decide(r: Router, f: Fleet, q: RequestTable, request: int, time_us: int) -> int:
    """Return what ``choose_instance`` does, or NEEDS_ROOM; for those who decide from Python."""
    if not has_room(r, f, q, request):
        return NEEDS_ROOM
    return choose_instance(r, f, q, request, time_us)


@engine_entry
def settle(r: Router, f: Fleet, q: RequestTable, request: int, instance: int) -> None:
    """Call ``note_routed``."""
    note_routed(r, f, q, request, instance)


@engine_entry
def start_decoding(r: Router, q: RequestTable, request: int, instance: int) -> None:
    """Call ``note_first_token``."""
    note_first_token(r, q, request, instance)


@engine_entry
def finish(r: Router, f: Fleet, q: RequestTable, request: int, instance: int, time_us: int) -> None:
    """Call ``note_finished``."""
    note_finished(r, f, q, request, instance, time_us)


@engine_entry
def refresh(r: Router, f: Fleet) -> None:
    """Call ``note_snapshot``."""
    note_snapshot(r, f)
