"""Clients whose next request depends on an answer: closed loops and caps, sessions, waves."""

from __future__ import annotations

from sim.cluster.events import EventRank, plan
from sim.cluster.run.world import NEVER, World
from sim.jit.compile import part, phase

ARRIVAL = int(EventRank.ARRIVAL)


@part
def send(world: World, request: int, time_us: int) -> None:
    """Plan a request's arrival at ``time_us``, or when it is due if that is later."""
    at_us = max(time_us, world.clients.due_us[request])
    plan(world.events, at_us, ARRIVAL, request, request)


@phase
def goes_on(world: World, request: int, time_us: int) -> bool:
    """Send the requests that waited for this answer alone; return whether the request's session continues."""
    clients = world.clients
    for i in range(clients.child_start[request], clients.child_start[request + 1]):
        child = clients.children[i]
        clients.num_awaited[child] -= 1
        if clients.num_awaited[child] == 0:
            send(world, child, time_us + clients.think_us[child])
    session = clients.session[request]
    if session == NEVER:
        return False
    clients.session_open[session] -= 1
    return bool(clients.session_open[session] > 0)


@phase
def note_answered(world: World, request: int, time_us: int) -> None:
    """Release the requests that waited for this answer; a refusal is an answer, too."""
    counts = world.clients.counts[0]
    if counts.has_sessions and goes_on(world, request, time_us):
        return
    if counts.has_loop:
        if counts.next_held < len(world.clients.held):
            held = world.clients.held[counts.next_held]
            counts.next_held += 1
            send(world, held, time_us + world.clients.think_us[held])
    elif counts.has_waves:
        wave = world.clients.wave[request]
        world.clients.wave_open[wave] -= 1
        if world.clients.wave_open[wave] == 0 and wave + 1 < len(world.clients.wave_open):
            for i in range(world.clients.wave_start[wave + 1], world.clients.wave_start[wave + 2]):
                send(world, world.clients.held[i], time_us + counts.wave_pause_us)
