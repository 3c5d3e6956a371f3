"""Clients whose next request depends on an answer: closed loops and caps, sessions, waves."""

from __future__ import annotations

from sim.cluster.events import EventRank, plan
from sim.cluster.run.world import NEVER, World
from sim.jit.compile import part, phase

ARRIVAL = int(EventRank.ARRIVAL)


@part
def send(w: World, request: int, time_us: int) -> None:
    """Plan a request's arrival at ``time_us``, or when it is due if that is later."""
    at_us = max(time_us, w.clients.due_us[request])
    plan(w.events, at_us, ARRIVAL, request, request)


@phase
def goes_on(w: World, request: int, time_us: int) -> bool:
    """Send the requests that waited for this answer alone; return whether the request's session continues."""
    clients = w.clients
    for i in range(clients.child_start[request], clients.child_start[request + 1]):
        child = clients.children[i]
        clients.num_awaited[child] -= 1
        if clients.num_awaited[child] == 0:
            send(w, child, time_us + clients.think_us[child])
    session = clients.session[request]
    if session == NEVER:
        return False
    clients.session_open[session] -= 1
    return bool(clients.session_open[session] > 0)


@phase
def note_answered(w: World, request: int, time_us: int) -> None:
    """Release the requests that waited for this answer; a refusal is an answer, too."""
    c = w.clients.counts[0]
    if c.has_sessions and goes_on(w, request, time_us):
        return
    if c.has_loop:
        if c.next_held < len(w.clients.held):
            held = w.clients.held[c.next_held]
            c.next_held += 1
            send(w, held, time_us + w.clients.think_us[held])
    elif c.has_waves:
        wave = w.clients.wave[request]
        w.clients.wave_open[wave] -= 1
        if w.clients.wave_open[wave] == 0 and wave + 1 < len(w.clients.wave_open):
            for i in range(w.clients.wave_start[wave + 1], w.clients.wave_start[wave + 2]):
                send(w, w.clients.held[i], time_us + c.wave_pause_us)
