"""Recording a decision and what it was based on."""

from __future__ import annotations

from sim.cluster.routing.router_state import Router
from sim.cluster.run.world import World
from sim.jit.compile import part


@part
def log_decision(w: World, r: Router, request: int, instance: int, time_us: int, is_prefill: int) -> None:
    """Record a router's choice, with what it saw; ``is_prefill``: the choice of a prefill instance."""
    place = w.loop[0].num_decisions
    w.loop[0].num_decisions += 1
    d = w.log.decisions[place]
    d.time_us, d.request, d.instance, d.is_prefill = time_us, request, instance, is_prefill
    for i in range(len(w.fleet.instances)):
        seen = w.fleet.instances[i]
        w.log.scores[place, i] = r.scores[i]
        w.log.num_in_flight[place, i] = seen.num_in_flight
        w.log.num_waiting[place, i] = seen.num_waiting
        w.log.num_running[place, i] = seen.num_running
        w.log.kv_usage[place, i] = seen.kv_usage
