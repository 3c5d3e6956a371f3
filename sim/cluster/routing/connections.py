"""A pool of connections that a client keeps, each to one instance: what stands behind a service of Kubernetes.

kube-proxy chooses an instance when a connection opens, not for a request, so whoever uses the connection again gets
the same instance. The pool is that of httpx, and so of OpenAI's client: a request takes the idle connection that was
opened first, or opens one; an idle connection is closed after ``keep_alive_us`` (httpcore 1.0:
_async/connection_pool.py:_assign_requests_to_connections).
"""

from __future__ import annotations

import numpy as np

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import Fleet
from sim.cluster.routing.router_state import PolicyFunctions, Router
from sim.cluster.routing.routing_policies import KubeProxy
from sim.cluster.routing.simple import choose_at_random
from sim.jit.compile import part, phase

BUSY = np.iinfo(np.int64).max
"""``idle_since_us`` of a connection that a request uses."""


@part
def close_expired(router: Router, time_us: int) -> None:
    """Close what has been idle for too long; the others keep their order."""
    settings, num_left = router.settings[0], 0
    for place in range(settings.num_connections):
        connection = router.connections[place]
        if connection.idle_since_us < time_us - settings.keep_alive_us:
            continue
        router.connections[num_left] = connection
        if connection.idle_since_us == BUSY:
            router.connection_of[connection.request] = num_left
        num_left += 1
    settings.num_connections = num_left


@phase
def choose_by_connection(router: Router, fleet: Fleet, request: int, time_us: int) -> int:
    """Return the instance of the idle connection that was opened first, or kube-proxy's choice for a new one."""
    close_expired(router, time_us)
    settings = router.settings[0]
    for place in range(settings.num_connections):
        connection = router.connections[place]
        is_there = fleet.instances[connection.instance].is_candidate
        if connection.idle_since_us != BUSY and is_there:
            settings.next_place = place
            return connection.instance
    settings.next_place = settings.num_connections
    if settings.takes_turns:
        return fleet.candidates[settings.num_opened % fleet.counts[0].num_candidates]
    return choose_at_random(router, fleet, request)


@phase
def take_connection(router: Router, request: int, instance: int) -> None:
    """Note that a request uses the connection chosen for it, or a new one if it goes to another instance."""
    settings = router.settings[0]
    place = settings.next_place
    if place < settings.num_connections and router.connections[place].instance != instance:
        place = settings.num_connections
    settings.num_opened += int(place == settings.num_connections)
    if place == len(router.connections):  # retries alone open more than one a request: this one is not kept
        router.connection_of[request] = NOWHERE
        return
    settings.num_connections = max(settings.num_connections, place + 1)
    connection = router.connections[place]
    connection.instance, connection.request, connection.idle_since_us = instance, request, BUSY
    router.connection_of[request] = place


@phase
def leave_connection(router: Router, request: int, time_us: int) -> None:
    """Note that a request's connection is idle from now on."""
    if router.connection_of[request] != NOWHERE:
        router.connections[router.connection_of[request]].idle_since_us = time_us
        router.connection_of[request] = NOWHERE


FUNCTIONS = {
    KubeProxy: PolicyFunctions(
        choose=choose_by_connection, note_choice=take_connection, note_departure=leave_connection
    )
}
