"""One instance among many: let its time pass, look at it, hand it a request, hear what it has finished."""

from __future__ import annotations

from sim.cluster.arrays import NOWHERE
from sim.cluster.fleet import num_prompt_ids
from sim.cluster.run.lockstep import is_rank, run_ranks
from sim.cluster.run.tables import run_engine
from sim.cluster.run.world import NEVER, World
from sim.engine import dtypes as dt
from sim.engine.control import inject
from sim.engine.kv_cache.prefix_cache import has_content
from sim.engine.kv_offload.waking import has_work, next_event_us
from sim.engine.run import NEEDS_ROOM
from sim.engine.state import State, engine_at
from sim.jit.compile import part, phase


@part
def runs_past(s: State, time_us: int) -> bool:
    """Return whether the last step taken ends after ``time_us``: what it gives has not happened yet."""
    return s.engine[0].clock.now_us > time_us


@phase
def run_until(w: World, instance: int, until_us: int) -> bool:
    """Take an instance's steps that start before ``until_us``; False when Python must make room first."""
    loop = w.loop[0]
    if is_rank(w, instance):
        loop.waits_for = run_ranks(w, w.first_rank[instance], w.end_rank[instance], until_us)
        return bool(loop.waits_for == NEVER)
    address, coalesces = w.run_addresses[instance], w.coalesces[instance]
    if run_engine(address, w.engines, instance, until_us, coalesces) == NEEDS_ROOM:
        loop.waits_for = instance
        return False
    return True


@phase
def next_step_us(w: World, instance: int) -> int:
    """Return when an instance's next step starts, or a client of it gives up; NEVER when it has nothing to do."""
    s = engine_at(w.engines, instance)
    clock = s.engine[0].clock
    if clock.num_batches > 0 or (has_work(s) and not s.engine[0].queues.is_blocked):
        return clock.now_us
    event_us = next_event_us(s)
    return NEVER if event_us == NEVER else max(clock.now_us, event_us)


@phase
def hand_over(w: World, request: int, instance: int, time_us: int) -> bool:
    """Give a request to an instance; False when its front end refuses it."""
    pool = w.pool_of[instance]
    if w.entries[pool, request] == NEVER:
        w.rows[request].status = dt.REJECTED
        w.rows[request].queued_us = time_us + w.delays_us[pool, request]
        return False
    s = engine_at(w.engines, instance)
    r = s.requests[request]
    r.status = dt.PENDING
    r.max_total_tokens = w.entries[pool, request]
    inject(s, request, time_us, w.delays_us[pool, request])
    return True


@part
def num_running_at(s: State, time_us: int) -> int:
    """Return how many requests run at ``time_us``, up to which an engine's steps were taken."""
    if runs_past(s, time_us):
        return s.engine[0].last_schedule.num_running
    return s.engine[0].queues.num_running


@phase
def num_waiting_at(s: State, time_us: int) -> int:
    """Return how many requests wait at ``time_us``, those included that have just joined."""
    num = s.engine[0].queues.num_waiting + s.engine[0].kv_transfers.num_holding
    request = s.engine[0].queues.first_pending
    while request != dt.NEVER and s.requests[request].queued_us <= time_us:
        num += s.requests[request].status == dt.PENDING  # its client may have gone already
        request = s.requests[request].next_waiting
    return num


@part
def kv_usage_at(s: State, time_us: int) -> float:
    """Return the share of an engine's KV blocks that are in use at ``time_us``."""
    num_free = s.engine[0].queues.num_free_blocks
    if runs_past(s, time_us):
        num_free = s.engine[0].last_schedule.num_free_blocks
    return 1.0 - num_free / (len(s.blocks) - 1)


@phase
def see_queue(w: World, instance: int, time_us: int) -> None:
    """Note how many of an instance's requests wait and run at ``time_us``, up to which its steps were taken."""
    s, seen = engine_at(w.engines, instance), w.fleet.instances[instance]
    seen.num_running, seen.num_waiting = num_running_at(s, time_us), num_waiting_at(s, time_us)


@phase
def see_kv(w: World, instance: int, time_us: int) -> None:
    """Note the share of an instance's KV blocks that are in use at ``time_us``."""
    w.fleet.instances[instance].kv_usage = kv_usage_at(engine_at(w.engines, instance), time_us)


@phase
def see_loads(w: World, time_us: int) -> None:
    """Note what every instance has to do at ``time_us``, up to which its steps were taken."""
    for instance in range(len(w.loads)):
        s, load = engine_at(w.engines, instance), w.loads[instance]
        load.num_waiting, load.num_running = num_waiting_at(s, time_us), num_running_at(s, time_us)
        load.kv_usage = kv_usage_at(s, time_us)


@phase
def see_cache(w: World, instance: int) -> None:
    """Note which contents an instance has cached, for decisions until the next snapshot.

    Only those are looked at that came or went since the last one, unless they are more than the log holds.
    """
    s = engine_at(w.engines, instance)
    queues, num_keys = s.engine[0].queues, w.cached.shape[1]
    if queues.num_cache_changes > len(s.cache_log):
        for key in range(num_keys):
            w.cached[instance, key] = has_content(s, key)
    else:
        for i in range(queues.num_cache_changes):
            key = s.cache_log[i]
            if key < num_keys:
                w.cached[instance, key] = has_content(s, key)
    queues.num_cache_changes = 0


@part
def contents_per_block(s: State) -> int:
    """Return how many contents a block of the group has that is asked: with a ``prefix_match_unit`` several."""
    settings = s.engine[0].settings
    if not settings.has_kv_cache_groups:
        return 1
    return s.kv_cache_groups[settings.first_group_to_ask].num_hashes_per_block


@phase
def see_prompt(w: World, request: int, instance: int) -> None:
    """Note how many leading blocks of a prompt an instance has cached, and how many more in host memory."""
    s, seen = engine_at(w.engines, instance), w.fleet.instances[instance]
    first, num = w.requests.hash_starts[request], num_prompt_ids(w.fleet, w.requests, request)
    is_stale = w.loop[0].cache_interval_us > 0
    per_block = contents_per_block(s)
    hits = 0
    while hits + per_block <= num:
        key = w.requests.hash_ids[first + hits + per_block - 1]
        if (w.cached[instance, key] == 0) if is_stale else not has_content(s, key):
            break
        hits += per_block
    seen.num_cached_blocks, seen.num_host_blocks = hits, 0
    if len(s.cpu_slot_of_key) > 0:
        while hits < num and s.cpu_slot_of_key[w.requests.hash_ids[first + hits]] != 0:
            hits += 1
            seen.num_host_blocks += 1


@part
def is_on(w: World, instance: int) -> bool:
    """Return whether an instance may get requests."""
    return instance != NOWHERE and w.fleet.instances[instance].is_candidate == 1
