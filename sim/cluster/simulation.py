"""Simulating a cluster in one call."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.cluster.attempts import Attempts, attempts_of, of_last_attempts, with_attempts
from sim.cluster.config import ClusterConfig
from sim.cluster.horizon import NOTHING_UNDONE, Undone, count_undone, cut_off_cluster, may_go_on
from sim.cluster.infrastructure.lives import Infrastructure
from sim.cluster.run.changes.operations import Operations
from sim.cluster.run.driving import Driver
from sim.cluster.run.loop import finish_ranks
from sim.cluster.run.prepare import ClusterWork, new_world
from sim.cluster.run.watch import BUSY, look_at_all
from sim.cluster.run.watch import NEEDS_ROOM as LOOK_NEEDS_ROOM
from sim.cluster.run.world import FOREVER, NEVER, DecisionLog, Exit, World
from sim.cluster.watching import FleetOverTime, Watch
from sim.config import InvalidConfig, Record
from sim.engine import dtypes as dt
from sim.engine.initial_state import with_more_room
from sim.engine.run import NEEDS_ROOM, run
from sim.engine.state import State
from sim.jit.references import Table, point_to, table_of
from sim.records.results import EngineRecord, Totals, outcomes_of, totals_of
from sim.requests import Int64s, Outcomes, Status

STATUS_OF_EXIT = {
    Exit.REJECTED: Status.REJECTED,
    Exit.QUEUE_FULL: Status.REJECTED,
    Exit.SHED: Status.REJECTED,
    Exit.EXPIRED: Status.REJECTED,
    Exit.DROPPED: Status.REJECTED,
    Exit.REFUSED: Status.REJECTED,
    Exit.EVICTED: Status.ABORTED,
    Exit.LOST: Status.ABORTED,
    Exit.TIMED_OUT: Status.TIMEOUT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance(Totals):
    """One engine of a finished run: its name, its pool, and what it did."""

    name: str
    pool: int
    written: EngineRecord
    num_cache_queries: int
    num_cache_hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Of n requests whose prompts other instances may have computed: who, and when the KV moved; -1 where it did not.

    ``prefill_instance``: its number. ``prefilled_us``: the gateway saw its token. ``transfer_start_us``: the decode
    instance asked for the KV; ``transfer_end_us``. ``transfer_blocks``: KV blocks moved, 0 where none were.
    ``num_started``, ``num_ended``, ``num_cut_off``: transfers; the last by the failure of one of their ends.
    """

    prefill_instance: NDArray[np.int32]
    prefilled_us: Int64s
    transfer_start_us: Int64s
    transfer_end_us: Int64s
    transfer_blocks: Int64s
    num_started: int
    num_ended: int
    num_cut_off: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSimulation:
    """What became of n requests in a cluster; columns in the order of the requests, times in µs, -1 where never.

    ``outcomes``: as of a single engine; ``queued_us``, ``scheduled_us`` are the instance's. ``instance``: int32, its
    number. ``exit``: int16, an ``Exit``. ``admitted_us``, ``dispatched_us`` (left the gateway's queue), ``routed_us``.
    ``split`` None: nothing can be moved between instances; otherwise ``queued_us``, ``scheduled_us`` and the cached
    tokens of a request whose prompt another instance computed are that one's, its tokens are the decode instance's.
    ``left_us``: was gone, by whichever way. ``over_time``: None unless asked for. ``engine_cpu_s``: CPU time of this
    thread. ``infrastructure``: the instances' lives. ``attempts`` None: nobody tries twice; otherwise the columns are
    those of each request's last attempt, its arrival that of the first, and ``row`` is that attempt's row in the
    engines' tables. ``undone``: what a horizon left, by where it was.
    """

    outcomes: Outcomes
    instance: NDArray[np.int32]
    exit: NDArray[np.int16]
    admitted_us: Int64s
    dispatched_us: Int64s
    routed_us: Int64s
    left_us: Int64s
    split: Split | None
    instances: tuple[Instance, ...]
    decisions: DecisionLog | None
    duration_us: int
    engine_cpu_s: float
    infrastructure: Infrastructure
    attempts: Attempts | None = None
    over_time: FleetOverTime | None = None
    undone: Undone = NOTHING_UNDONE

    @property
    def row(self) -> Int64s:
        """Each request's row in the engines' tables."""
        return np.arange(len(self.exit)) if self.attempts is None else self.attempts.last_row

    @property
    def num_by_exit(self) -> dict[Exit, int]:
        """How many requests left by each way; their sum is the number of requests."""
        return {way: int((self.exit == way).sum()) for way in Exit}


def simulate_cluster(
    work: ClusterWork,
    config: ClusterConfig,
    *,
    record: Record = "none",
    records_decisions: bool = False,
    forced: Int64s | None = None,
    coalesce: bool = True,
    points: int | None = None,
    until_us: int | None = None,
) -> ClusterSimulation:
    """Run requests through a cluster to the end; deterministic, inputs unchanged.

    ``record``: as ``simulate``'s, of each engine. ``records_decisions``: keep what each routing decision saw.
    ``forced``: int64 per request, the instance it must go to whatever the policy chooses, -1 where the policy decides.
    ``points``: look at the instances at evenly spaced times, so many or up to twice as many, for ``over_time``; nothing
    else changes. It needs any ``record`` but "none". ``until_us``: a horizon, as ``simulate``'s: nothing
    happens at it or later but the ends of steps that began before. Raises InvalidConfig on what cannot be simulated.
    """
    if forced is not None:
        _check_forced(forced, work, config)
    if until_us is not None and until_us < 1:
        raise InvalidConfig(f"until_us: got {until_us}, expected an integer >= 1")
    if config.lockstep and work.clients is not None:
        raise InvalidConfig(
            "lockstep: got true with clients that wait for answers, expected requests with times of their own"
        )
    if config.retries is not None:
        work = with_attempts(work, config.retries)
        if forced is not None:
            forced = np.concatenate([forced, np.full(len(work.requests) - len(forced), NEVER)])
    started = time.thread_time()
    world, states = new_world(work, config, record=record, records_decisions=records_decisions, forced=forced)
    if not coalesce:
        world.coalesces[:] = 0
    operations = Operations(world, states, config, table_of([world]))
    operations.begin()
    watch = None
    if points is not None:
        last_us = int(world.arrivals_us[-1]) if len(world.arrivals_us) else 0
        watch = Watch(points=points, num_instances=len(states), last_arrival_us=last_us)
    end_us = FOREVER if until_us is None else until_us
    world = _run_events(operations, states, config, watch=watch, until_us=end_us)
    _finish_engines(world, states, until_us=end_us)
    cpu_s = time.thread_time() - started
    result = _results(
        world, states, config, record=record, cpu_s=cpu_s, operations=operations, until_us=until_us
    )
    if watch is None:
        return result
    num_blocks = [max(config.pools[pool].engine.num_gpu_blocks - 1, 0) for pool in world.pool_of]
    over_time = watch.finished(states, end_us=result.duration_us, num_blocks=np.array(num_blocks, np.int64))
    return replace(result, over_time=over_time)


def _check_forced(forced: Int64s, work: ClusterWork, config: ClusterConfig) -> None:
    """Raise InvalidConfig where a request would have to go where it cannot be decoded."""
    is_right = len(forced) == len(work.requests) and forced.max(initial=-1) < config.num_instances
    if not is_right or any(config.role_of[number] == "prefill" for number in np.unique(forced[forced >= 0])):
        raise InvalidConfig("forced: expected the number of an instance that decodes, or -1, per request")


def _run_events(
    operations: Operations,
    states: list[State],
    config: ClusterConfig,
    *,
    watch: Watch | None,
    until_us: int,
) -> World:
    """Let all events before ``until_us`` happen; look at the instances on the way."""
    driver = Driver(operations, states, config)
    while True:
        driver.run(until_us if watch is None else min(watch.next_us, until_us))
        if watch is None or watch.next_us >= until_us:
            return driver.world
        if not _has_looked(operations.table, driver.world, states, watch):
            return driver.world


def _has_looked(whole: Table, world: World, states: list[State], watch: Watch) -> bool:
    """Look at the instances; return whether anything is left to look at."""
    loop = world.loop[0]
    is_over = not loop.has_hand and loop.next_arrival >= len(world.arrivals)
    is_over = is_over and world.events.counts[0].num_planned == 0
    if is_over and loop.is_coupled:
        return False
    first = 0
    while (answer := look_at_all(whole, watch.next_us, watch.seen, first)) == LOOK_NEEDS_ROOM:
        first = int(loop.waits_for)
        states[first] = with_more_room(states[first])
        point_to(world.engines, first, states[first])
    watch.take()
    return not is_over or answer == BUSY


def _finish_engines(world: World, states: list[State], *, until_us: int) -> None:
    """Let every engine run to its end, or to a horizon; nothing depends on what it finishes any more."""
    for state in states:
        state.engine.settings["log_completions"] = state.engine.settings["pauses_at_completions"] = 0
    if world.first_rank.max() != NEVER:
        _finish_ranks(world, states, until_us=until_us)
        return
    for number in range(len(states)):
        while run(world.engines, number, until_us, bool(world.coalesces[number])) == NEEDS_ROOM:
            states[number] = with_more_room(states[number])
            point_to(world.engines, number, states[number])


def _finish_ranks(world: World, states: list[State], *, until_us: int) -> None:
    """Let ranks that are in step run to their end, or to a horizon."""
    for first in sorted(set(world.first_rank.tolist())):
        while (rank := finish_ranks(table_of([world]), first, until_us)) != NEVER:
            states[rank] = with_more_room(states[rank])
            point_to(world.engines, rank, states[rank])


def _results(
    world: World,
    states: list[State],
    config: ClusterConfig,
    *,
    record: Record,
    cpu_s: float,
    operations: Operations,
    until_us: int | None,
) -> ClusterSimulation:
    """Return what became of everything."""
    journeys = world.journeys
    outcomes = _outcomes(world, states, config)
    ways = _ways(world, outcomes, until_us=until_us)
    num_by_way = np.bincount(ways, minlength=len(Exit))
    for way, status in STATUS_OF_EXIT.items():
        if num_by_way[way]:
            outcomes.status[ways == way] = status
    if num_by_way[Exit.LOST]:
        _take_back_lost(outcomes, ways == Exit.LOST, journeys["left_us"])
    if until_us is not None:
        cut_off_cluster(world, states, outcomes, until_us=until_us)
        ways[(ways == Exit.UNDER_WAY) & (outcomes.status == Status.TIMEOUT)] = Exit.TIMED_OUT
        ways[(ways == Exit.TIMED_OUT) & (outcomes.status == Status.UNFINISHED)] = Exit.UNDER_WAY
    if until_us is None or not may_go_on(operations.table, world):
        outcomes.status[outcomes.status == Status.UNFINISHED] = Status.STUCK
    clocks = [int(state.engine[0].clock.now_us) for state in states]
    left_us = np.where(journeys["left_us"] == NEVER, outcomes.last_token_us, journeys["left_us"])
    end_us = int(max(*clocks, outcomes.last_token_us.max(initial=0), left_us.max(initial=0)))
    if until_us is not None:
        is_cut = (outcomes.status == Status.UNFINISHED).any()
        end_us = until_us if is_cut else min(end_us, until_us)
    attempts = None
    if config.retries is not None:
        attempts = attempts_of(
            num_requests=int(world.loop[0].num_requests),
            exits=ways,
            arrival_us=journeys["arrival_us"].copy(),
            left_us=left_us,
            instance=journeys["instance"].copy(),
        )
    rows = slice(None) if attempts is None else attempts.last_row
    undone = NOTHING_UNDONE
    if until_us is not None:
        own = np.arange(len(ways)) if attempts is None else attempts.last_row
        undone = count_undone(world, states, outcomes, own, until_us=until_us)
    return ClusterSimulation(
        outcomes=outcomes if attempts is None else of_last_attempts(outcomes, attempts),
        instance=journeys["instance"][rows].copy(),
        exit=ways[rows],
        admitted_us=journeys["admitted_us"][rows].copy(),
        dispatched_us=journeys["dispatched_us"][rows].copy(),
        routed_us=journeys["routed_us"][rows].copy(),
        left_us=left_us[rows],
        split=_split(world, rows) if config.moves_kv else None,
        instances=tuple(_instances(world, states, config, record=record)),
        decisions=_decisions(world),
        duration_us=end_us,
        engine_cpu_s=cpu_s,
        infrastructure=operations.ended(left_us, end_us),
        attempts=attempts,
        undone=undone,
    )


def _ways(world: World, outcomes: Outcomes, *, until_us: int | None) -> NDArray[np.int16]:
    """Return how each request has left, those included that an engine finished without the gateway's hearing of it."""
    journeys = world.journeys
    ways: NDArray[np.int16] = journeys["exit"].copy()
    is_finished = world.rows["status"] == dt.FINISHED
    if until_us is not None:
        is_finished &= outcomes.last_token_us <= until_us
        ways[(ways == Exit.COMPLETED) & ~is_finished] = Exit.UNDER_WAY
    ways[(ways == Exit.UNDER_WAY) & is_finished] = Exit.COMPLETED
    is_late = outcomes.status == Status.TIMEOUT
    if is_late.any():
        ways[is_late & ((ways == Exit.UNDER_WAY) | (ways == Exit.COMPLETED))] = Exit.TIMED_OUT
    ways[(ways == Exit.UNDER_WAY) & (journeys["arrival_us"] == NEVER)] = Exit.NOT_SENT
    return ways


def _take_back_lost(outcomes: Outcomes, is_lost: NDArray[np.bool_], left_us: Int64s) -> None:
    """Take back what a step under way would have brought requests that were lost before its end."""
    outcomes.last_token_us[is_lost] = np.minimum(outcomes.last_token_us, left_us)[is_lost]
    outcomes.first_token_us[is_lost & (outcomes.first_token_us > left_us)] = NEVER


def _outcomes(world: World, states: list[State], config: ClusterConfig) -> Outcomes:
    """Return the engines' outcomes; what depends on the latency model is each request's own pool's."""
    per_pool, begins, first = [], [], 0
    for pool in config.pools:
        per_pool.append(outcomes_of(states[first], pool.latency))
        begins.append(first)
        first += pool.num_slots
    base = next(number for number, pool in enumerate(config.pools) if pool.role != "prefill")
    chosen, instance = per_pool[base], world.journeys["instance"].copy()
    for number, pool in enumerate(config.pools):
        if number == base or pool.role == "prefill":
            continue
        is_there = world.pool_of[np.maximum(instance, 0)] == number
        for name in ("queued_us", "taken_in_us", "first_token_us", "last_token_us"):
            getattr(chosen, name)[is_there] = getattr(per_pool[number], name)[is_there]
    preempted = np.flatnonzero(world.rows["status"] == dt.PREEMPTED)
    if len(preempted):
        clocks = np.array([state.engine[0].clock.now_us for state in states], np.int64)
        chosen.preempted_us[preempted] += clocks[instance[preempted]] - clocks[begins[base]]
    if config.moves_kv:
        prefill = next(number for number, pool in enumerate(config.pools) if pool.role == "prefill")
        _add_prefill(chosen, per_pool[prefill], world)
    chosen.arrival_us[:] = world.journeys["arrival_us"]
    never_came = instance == NEVER
    if never_came.any():
        chosen.queued_us[never_came] = chosen.taken_in_us[never_came] = NEVER
    return chosen


def _add_prefill(outcomes: Outcomes, prefill: Outcomes, world: World) -> None:
    """Let the outcomes of requests that were prefilled elsewhere begin there; who did not get further ends there."""
    is_split = world.journeys["prefill_instance"] != NEVER
    for name in ("queued_us", "taken_in_us", "scheduled_us", "num_cached_tokens"):
        getattr(outcomes, name)[is_split] = getattr(prefill, name)[is_split]
    for name in ("num_preemptions", "preempted_us"):
        getattr(outcomes, name)[is_split] += getattr(prefill, name)[is_split]
    ended_there = is_split & (world.journeys["prefilled_us"] == NEVER) & (prefill.status != Status.OK)
    outcomes.status[ended_there] = prefill.status[ended_there]


def _split(world: World, rows: Int64s | slice) -> Split:
    """Return who computed whose prompt, and when the KV moved."""
    journeys, flows, counts = world.journeys, world.links.flows, world.links.counts[0]
    return Split(
        prefill_instance=journeys["prefill_instance"][rows].copy(),
        prefilled_us=journeys["prefilled_us"][rows].copy(),
        transfer_start_us=flows["started_us"][rows].copy(),
        transfer_end_us=flows["ended_us"][rows].copy(),
        transfer_blocks=flows["num_blocks"][rows].copy(),
        num_started=int(counts.num_started),
        num_ended=int(counts.num_ended),
        num_cut_off=int(counts.num_cut_off),
    )


def _instances(world: World, states: list[State], config: ClusterConfig, *, record: Record) -> list[Instance]:
    """Return what each engine did."""
    found = []
    for number, (name, state) in enumerate(zip(config.instance_names, states, strict=True)):
        pool = config.pools[int(world.pool_of[number])]
        totals = state.engine[0].totals
        written = EngineRecord(state=state, config=pool.engine, latency=pool.latency, record=record)
        found.append(
            Instance(
                name=name,
                pool=int(world.pool_of[number]),
                written=written,
                num_cache_queries=int(totals.num_cache_queries),
                num_cache_hits=int(totals.num_cache_hits),
                **totals_of(state),
            )
        )
    return found


def _decisions(world: World) -> DecisionLog | None:
    """Return the decisions in the order in which they were taken, None if they were not recorded."""
    if not world.loop[0].records_decisions:
        return None
    num, log = int(world.loop[0].num_decisions), world.log
    log.decisions["request"] %= max(1, int(world.loop[0].num_requests))
    return DecisionLog(
        decisions=log.decisions[:num],
        scores=log.scores[:num],
        num_in_flight=log.num_in_flight[:num],
        num_waiting=log.num_waiting[:num],
        num_running=log.num_running[:num],
        kv_usage=log.kv_usage[:num],
    )
