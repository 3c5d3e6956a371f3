"""What happens next: arrivals known in advance, planned events, and the current event."""

from __future__ import annotations

from sim.cluster.events import EventRank, plan
from sim.cluster.run.instances import next_step_us
from sim.cluster.run.world import FOREVER, NEVER, World
from sim.jit.compile import part

DISPATCH, STEP_STARTED = int(EventRank.DISPATCH), int(EventRank.STEP_STARTED)


@part
def next_arrival_us(world: World) -> int:
    """Return when the next request that arrives by itself does so."""
    place = world.loop[0].next_arrival
    return world.arrivals_us[place] if place < len(world.arrivals) else FOREVER


@part
def next_event_us(world: World) -> int:
    """Return the time of the next event, including an engine's next planned step and a check of the instances."""
    planned_us = world.events.heap[0].time_us if world.events.counts[0].num_planned > 0 else FOREVER
    return min(planned_us, next_arrival_us(world), world.loop[0].look_us)


@part
def follow(world: World, time_us: int, rank: int, subject: int) -> None:
    """Plan an event after the current one: at once if no other comes before it, else in its turn."""
    loop = world.loop[0]
    if next_event_us(world) > time_us and not loop.has_hand:
        loop.has_hand, loop.hand_us, loop.hand_rank, loop.hand_subject = 1, time_us, rank, subject
    else:
        plan(world.events, time_us, rank, subject, subject)


@part
def plan_step(world: World, instance: int) -> None:
    """Plan an instance's next step, unless it is planned for no later."""
    step_us = next_step_us(world, instance)
    if step_us != NEVER and (world.stepping_us[instance] == NEVER or world.stepping_us[instance] > step_us):
        world.stepping_us[instance] = step_us
        plan(world.events, step_us, STEP_STARTED, instance, instance)


@part
def plan_dispatch(world: World, time_us: int) -> None:
    """Plan the gateway's queue to hand over at ``time_us``, once."""
    loop = world.loop[0]
    if not loop.has_queue or world.queue.counts[0].num_queued == 0:
        return
    if loop.dispatch_planned_us == NEVER or loop.dispatch_planned_us > time_us:
        loop.dispatch_planned_us = time_us
        plan(world.events, time_us, DISPATCH, 0, 0)
