"""One instance among many: advance it, read its state, hand it a request, collect what it has finished."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE, clear_bit, has_bit, set_bit, set_number
from sim.cluster.fleet import num_prompt_ids
from sim.cluster.routing.shelves import note_changed
from sim.cluster.run.foresight import end_of_new_us, is_calm, is_foreseen, next_end_us
from sim.cluster.run.lockstep import is_rank, run_ranks
from sim.cluster.run.world import FOREVER, NEVER, World
from sim.engine import dtypes as dt
from sim.engine.control import inject
from sim.engine.counting.counted_run import HANDED_OVER
from sim.engine.kv_cache.prefix_cache import has_content
from sim.engine.kv_offload.waking import has_work, next_event_us
from sim.engine.run import NEEDS_ROOM
from sim.engine.state import State, engine_at
from sim.engine.watching.called_run import run_engine
from sim.jit.compile import part, phase


@part
def runs_past(state: State, time_us: int) -> bool:
    """Return whether the last step taken ends after ``time_us``: its results have not happened yet."""
    return state.engine[0].clock.now_us > time_us


@phase
def run_until(world: World, instance: int, until_us: int) -> bool:
    """Take an instance's steps that start before ``until_us``; False when Python must make room first."""
    loop = world.loop[0]
    if is_rank(world, instance):
        loop.waits_for = run_ranks(world, world.first_rank[instance], world.end_rank[instance], until_us)
        return bool(loop.waits_for == NEVER)
    while True:  # twice where one that counted its blocks hands over
        address, flag = world.counted_addresses[instance], loop.settles
        if address == 0:
            address, flag = world.run_addresses[instance], world.coalesces[instance]
        answer = run_engine(address, world.engines, instance, until_us, flag)
        if answer == NEEDS_ROOM:
            loop.waits_for = instance
            return False
        if answer != HANDED_OVER:
            return True
        world.counted_addresses[instance] = 0


@phase
def next_step_us(world: World, instance: int) -> int:
    """Return when an instance's next step starts, or a client of it gives up; NEVER when it has nothing to do."""
    state = engine_at(world.engines, instance)
    clock = state.engine[0].clock
    if clock.num_batches > 0 or (has_work(state) and not state.engine[0].queues.is_blocked):
        return clock.now_us
    event_us = next_event_us(state)
    return NEVER if event_us == NEVER else max(clock.now_us, event_us)


@phase
def next_change_us(world: World, instance: int, time_us: int) -> int:
    """Return when an instance may next differ: a step starts or ends, a request joins; FOREVER if never by itself.

    Its steps were taken up to ``time_us``. Where decisions read only who is in flight, it differs where one ends; where
    they read more, most often too (``is_calm``), but for its blocks.
    """
    state, reads_engines = engine_at(world.engines, instance), world.loop[0].reads_engines
    is_left = world.least_step_us[instance] > 0 and is_foreseen(state)
    if is_left and not reads_engines:
        return next_end_us(world, instance, time_us)
    step_us = next_change_of_steps_us(world, instance, time_us)
    is_left = is_left and is_calm(world, state, time_us)
    world.fleet.instances[instance].exact_until_us = max(step_us, time_us + 1) if is_left else FOREVER
    return next_end_us(world, instance, time_us) if is_left else step_us


@part
def next_change_of_steps_us(world: World, instance: int, time_us: int) -> int:
    """Return when anything of an instance may next differ by itself."""
    state = engine_at(world.engines, instance)
    clock, pending = state.engine[0].clock, state.engine[0].queues.first_pending
    change_us = clock.now_us if clock.now_us > time_us else next_step_us(world, instance)
    if change_us == NEVER:
        return FOREVER
    return change_us if pending == dt.NEVER else min(change_us, state.requests[pending].queued_us)


@phase
def hand_over(world: World, request: int, instance: int, time_us: int) -> bool:
    """Give a request to an instance; False when its front end refuses it."""
    pool = world.pool_of[instance]
    if world.entries[pool, request] == NEVER:
        world.rows[request].status = dt.REJECTED
        world.rows[request].queued_us = time_us + world.delays_us[pool, request]
        return False
    state = engine_at(world.engines, instance)
    row = state.requests[request]
    row.status = dt.PENDING
    row.max_total_tokens = world.entries[pool, request]
    inject(state, request, time_us, world.delays_us[pool, request])
    set_number(world.due_us, instance, end_of_new_us(world, instance, request))
    return True


@part
def num_running_at(state: State, time_us: int) -> int:
    """Return how many requests run at ``time_us``, up to which an engine's steps were taken."""
    if runs_past(state, time_us):
        return state.engine[0].last_schedule.num_running
    return state.engine[0].queues.num_running


@phase
def num_waiting_at(state: State, time_us: int) -> int:
    """Return how many requests wait at ``time_us``, those included that have just joined."""
    num = state.engine[0].queues.num_waiting + state.engine[0].kv_transfers.num_holding
    request = state.engine[0].queues.first_pending
    while request != dt.NEVER and state.requests[request].queued_us <= time_us:
        num += state.requests[request].status == dt.PENDING  # its client may have gone already
        request = state.requests[request].next_waiting
    return num


@part
def kv_usage_at(state: State, time_us: int) -> float:
    """Return the share of an engine's KV blocks that are in use at ``time_us``."""
    num_free = state.engine[0].queues.num_free_blocks
    if runs_past(state, time_us):
        num_free = state.engine[0].last_schedule.num_free_blocks
    return 1.0 - num_free / (len(state.blocks) - 1)


@phase
def see_queue(world: World, instance: int, time_us: int) -> None:
    """Note how many of an instance's requests wait and run at ``time_us``, up to which its steps were taken."""
    state, seen = engine_at(world.engines, instance), world.fleet.instances[instance]
    seen.num_running, seen.num_waiting = num_running_at(state, time_us), num_waiting_at(state, time_us)
    note_changed(world.fleet, instance)


@phase
def see_kv(world: World, instance: int, time_us: int) -> None:
    """Note the share of an instance's KV blocks that are in use at ``time_us``."""
    world.fleet.instances[instance].kv_usage = kv_usage_at(engine_at(world.engines, instance), time_us)
    note_changed(world.fleet, instance)


@phase
def see_loads(world: World, time_us: int) -> None:
    """Note every instance's load at ``time_us``, up to which its steps were taken."""
    for instance in range(len(world.loads)):
        state, load = engine_at(world.engines, instance), world.loads[instance]
        load.num_waiting, load.num_running = num_waiting_at(state, time_us), num_running_at(state, time_us)
        load.kv_usage = kv_usage_at(state, time_us)


@part
def see_content(world: World, instance: int, state: State, key: int) -> None:
    """Note whether an instance has a content cached."""
    if has_content(state, key):
        set_bit(world.cached, key, instance)
    else:
        clear_bit(world.cached, key, instance)


@phase
def see_cache(world: World, instance: int) -> None:
    """Note which contents an instance has cached, for decisions until it is looked at again.

    Only contents that came or went since the last snapshot are examined, unless they exceed what the log holds.
    """
    state = engine_at(world.engines, instance)
    queues, num_keys = state.engine[0].queues, len(world.cached)
    if queues.num_cache_changes > len(state.cache_log):
        for key in range(num_keys):
            see_content(world, instance, state, key)
    else:
        for i in range(queues.num_cache_changes):
            key = state.cache_log[i]
            if key < num_keys:
                see_content(world, instance, state, key)
    queues.num_cache_changes = 0


@part
def contents_per_block(state: State) -> int:
    """Return how many contents a block of the group has that is asked: with a ``prefix_match_unit`` several."""
    settings = state.engine[0].settings
    if not settings.has_kv_cache_groups:
        return 1
    return state.kv_cache_groups[settings.first_group_to_ask].num_hashes_per_block


@phase
def see_prompt(world: World, request: int, instance: int) -> None:
    """Note how many leading blocks of a prompt an instance has cached, and how many more in host memory."""
    state, seen = engine_at(world.engines, instance), world.fleet.instances[instance]
    first, num = world.requests.hash_starts[request], num_prompt_ids(world.fleet, world.requests, request)
    is_stale = world.loop[0].cache_interval_us > 0
    per_block = contents_per_block(state)
    hits = 0
    while hits + per_block <= num:
        key = world.requests.hash_ids[first + hits + per_block - 1]
        if not (has_bit(world.cached, key, instance) if is_stale else has_content(state, key)):
            break
        hits += per_block
    seen.num_cached_blocks, seen.num_host_blocks = hits, 0
    if len(state.cpu_slot_of_key) > 0:
        while hits < num and state.cpu_slot_of_key[world.requests.hash_ids[first + hits]] != 0:
            hits += 1
            seen.num_host_blocks += 1


@part
def is_on(world: World, instance: int) -> bool:
    """Return whether an instance may get requests."""
    return instance != NOWHERE and world.fleet.instances[instance].is_candidate == 1
