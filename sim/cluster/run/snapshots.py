"""What decisions see of the fleet: its present state, or each signal's last snapshot, and never its future."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE, first_at_most, set_number
from sim.cluster.fleet import num_prompt_ids
from sim.cluster.routing.decide import note_snapshot
from sim.cluster.routing.recent import match_prefix
from sim.cluster.routing.shelves import add_in_flight
from sim.cluster.routing.simple import draw_two
from sim.cluster.run.departures import hear
from sim.cluster.run.instances import next_change_us, run_until, see_cache, see_kv, see_prompt, see_queue
from sim.cluster.run.lockstep import is_rank
from sim.cluster.run.world import FOREVER, World
from sim.engine.dtypes import COMPLETED
from sim.engine.state import engine_at
from sim.jit.compile import part, phase


@phase
def bring(world: World, instance: int, time_us: int) -> bool:
    """Advance an instance to ``time_us`` and collect what it has finished; False when it needs room.

    Where engines keep step (``is_coupled``) they are there already, and what they finish is an event of its own.
    """
    if world.loop[0].is_coupled:
        return True
    if not run_until(world, instance, time_us):
        return False
    state = engine_at(world.engines, instance)
    fill = state.engine[0].log_fill
    num_left, due_us = 0, FOREVER
    for i in range(fill.num_completions):
        seen = state.completions[i]
        if seen.time_us <= time_us:
            hear_on(world, instance, seen.request, seen.kind, seen.time_us)
            continue
        if num_left < i:  # a client sees the end of a short answer before that of a longer one
            state.completions[num_left] = state.completions[i]
        due_us = min(due_us, state.completions[num_left].time_us)
        num_left += 1
    fill.num_completions = num_left
    if world.loop[0].matches_caches and world.loop[0].cache_interval_us == 0:
        see_cache(world, instance)
    see_at_once(world, instance, time_us)
    if not is_rank(world, instance):  # one may step another
        world.foreseen[instance].new_end_us = due_us
        set_number(world.due_us, instance, min(due_us, next_change_us(world, instance, time_us)))
    return True


@part
def hear_on(world: World, instance: int, request: int, kind: int, time_us: int) -> None:
    """As ``hear``, of a request that is on an instance; where ``counts_ends`` the request's own rows are not touched.

    What they would say follows in the end from what its engine says (``results``).
    """
    if not world.loop[0].counts_ends:
        hear(world, request, kind, time_us)
    elif kind == COMPLETED:
        add_in_flight(world.fleet, instance, -1)


@part
def see_at_once(world: World, instance: int, time_us: int) -> None:
    """Note what an instance reports without delay."""
    if world.loop[0].sees_queues and world.loop[0].queue_interval_us == 0:
        see_queue(world, instance, time_us)
    if world.loop[0].sees_kv and world.loop[0].kv_interval_us == 0:
        see_kv(world, instance, time_us)


@part
def bring_all(world: World, time_us: int) -> bool:
    """Advance every instance to ``time_us``: those of which decisions would see a change, by their numbers."""
    if world.loop[0].is_coupled:
        return True
    instance = first_at_most(world.due_us, 0, time_us)
    while instance != NOWHERE:
        if not bring(world, instance, time_us):
            return False
        instance = first_at_most(world.due_us, instance + 1, time_us)
    return True


@part
def bring_busy(world: World, time_us: int) -> bool:
    """Advance every instance to ``time_us`` that has anything to do: what it reports is of that time."""
    first_leaf = len(world.due_us) >> 1
    for instance in range(len(world.loads)):
        is_busy = world.least_step_us[instance] > 0 and world.fleet.instances[instance].num_in_flight > 0
        if (is_busy or world.due_us[first_leaf + instance] <= time_us) and not bring(
            world, instance, time_us
        ):
            return False
    return True


@part
def bring_if_due(world: World, instance: int, time_us: int) -> bool:
    """Advance an instance of which a decision would see a change."""
    is_due = world.due_us[(len(world.due_us) >> 1) + instance] <= time_us
    return not is_due or bring(world, instance, time_us)


@part
def bring_each(world: World, time_us: int) -> bool:
    """Advance every instance to ``time_us``, those too of which no decision would see a change."""
    for instance in range(len(world.loads)):  # noqa: SIM110 - numba compiles no generators
        if not bring(world, instance, time_us):
            return False
    return True


@phase
def see_two(world: World, request: int, time_us: int) -> bool:
    """Advance the two instances that power-of-two draws for a request."""
    if world.fleet.counts[0].num_candidates == 0:
        return True
    first, second = draw_two(world.router, world.fleet, request)
    return bring_if_due(world, first, time_us) and bring_if_due(world, second, time_us)


@phase
def see_signals(world: World, time_us: int, queues: bool, kv: bool, caches: bool) -> None:
    """Take a snapshot of some signals of every instance, whose steps were taken up to ``time_us``."""
    loop = world.loop[0]
    for instance in range(len(world.fleet.instances)):
        if queues:
            see_queue(world, instance, time_us)
        if kv:
            see_kv(world, instance, time_us)
        if caches:
            see_cache(world, instance)
    if queues:
        loop.queues_seen_us = time_us
        note_snapshot(world.router, world.fleet)
    if kv:
        loop.kv_seen_us = time_us
    if caches:
        loop.caches_seen_us = time_us


@part
def due_us(interval_us: int, seen_us: int, time_us: int) -> int:
    """Return when the last snapshot by ``time_us`` was due, FOREVER if it has been taken, or none is."""
    if interval_us == 0:
        return FOREVER
    tick_us = time_us // interval_us * interval_us
    return tick_us if tick_us > seen_us else FOREVER


@phase
def take_due_snapshots(world: World, time_us: int) -> bool:
    """Take the snapshots that were due by ``time_us``, each signal's last one, in the order of their times."""
    loop = world.loop[0]
    while True:
        queues_us = (
            due_us(loop.queue_interval_us, loop.queues_seen_us, time_us) if loop.sees_queues else FOREVER
        )
        kv_us = due_us(loop.kv_interval_us, loop.kv_seen_us, time_us) if loop.sees_kv else FOREVER
        caches_us = (
            due_us(loop.cache_interval_us, loop.caches_seen_us, time_us) if loop.sees_caches else FOREVER
        )
        first_us = min(queues_us, kv_us, caches_us)
        if first_us == FOREVER:
            return True
        if not bring_busy(world, first_us):
            return False
        see_signals(world, first_us, queues_us == first_us, kv_us == first_us, caches_us == first_us)


@phase
def see_fleet(world: World, time_us: int) -> bool:
    """Fill ``Fleet`` with what a decision at ``time_us`` may see; False when an engine needs room first."""
    loop = world.loop[0]
    if not loop.is_coupled and not take_due_snapshots(world, time_us):
        return False
    if not bring_all(world, time_us):
        return False
    sees_queues = loop.sees_queues != 0 and loop.queue_interval_us == 0
    sees_kv = loop.sees_kv != 0 and loop.kv_interval_us == 0
    if loop.is_coupled and (sees_queues or sees_kv):
        see_signals(world, time_us, sees_queues, sees_kv, False)
    elif sees_queues:
        note_snapshot(world.router, world.fleet)
    return True


@part
def see_prompts(world: World, request: int) -> None:
    """Note what each instance has cached of a prompt, where the policy asks."""
    if world.loop[0].matches_caches:
        first, num = world.requests.hash_starts[request], num_prompt_ids(world.fleet, world.requests, request)
        match_prefix(world.cached, world.requests.hash_ids, first, num, world.router.matched)
        for instance in range(len(world.fleet.instances)):
            world.fleet.instances[instance].num_cached_blocks = world.router.matched[instance]
    elif world.loop[0].sees_caches:
        for instance in range(len(world.fleet.instances)):
            see_prompt(world, request, instance)
