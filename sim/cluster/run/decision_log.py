"""Recording a decision and what it was based on."""

from __future__ import annotations

from sim.cluster.routing.router_state import Router
from sim.cluster.run.world import World
from sim.jit.compile import part


@part
def log_decision(
    world: World, router: Router, request: int, instance: int, time_us: int, is_prefill: int
) -> None:
    """Record a router's choice, with what it saw; ``is_prefill``: the choice of a prefill instance."""
    place = world.loop[0].num_decisions
    world.loop[0].num_decisions += 1
    decision = world.log.decisions[place]
    decision.time_us, decision.request, decision.instance, decision.is_prefill = (
        time_us,
        request,
        instance,
        is_prefill,
    )
    for i in range(len(world.fleet.instances)):
        seen = world.fleet.instances[i]
        world.log.scores[place, i] = router.scores[i]
        world.log.num_in_flight[place, i] = seen.num_in_flight
        world.log.num_waiting[place, i] = seen.num_waiting
        world.log.num_running[place, i] = seen.num_running
        world.log.kv_usage[place, i] = seen.kv_usage
