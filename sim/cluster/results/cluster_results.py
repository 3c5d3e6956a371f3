"""Results of a world whose last event has happened."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.cluster.cluster_config import ClusterConfig
from sim.cluster.exits import STATUS_OF_EXIT, Exit
from sim.cluster.results.attempts import attempts_of, of_last_attempts
from sim.cluster.results.finished import NOTHING_UNDONE, ClusterSimulation, Instance, Split
from sim.cluster.results.horizon import count_undone, cut_off_cluster, may_go_on
from sim.cluster.run.changes.operations import Operations
from sim.cluster.run.world import NEVER, DecisionLog, World
from sim.config import Record
from sim.engine import dtypes as dt
from sim.engine.state import State, columns
from sim.records.run_results import EngineRecord, outcomes_of, totals_of
from sim.requests import Int64s, Outcomes, Status

OF_POOL = ("queued_us", "taken_in_us", "first_token_us", "last_token_us", "num_loaded_tokens", "load_wait_us")
"""Outcomes that depend on the pool that a request was sent to."""


def results_of(
    world: World,
    states: list[State],
    config: ClusterConfig,
    *,
    record: Record,
    cpu_s: float,
    operations: Operations,
    until_us: int | None,
) -> ClusterSimulation:
    """Return the finished run."""
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
    unheard_us = np.where(ways == Exit.REFUSED, outcomes.queued_us, outcomes.last_token_us)
    left_us = np.where(journeys["left_us"] == NEVER, unheard_us, journeys["left_us"])
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
        is_refused = (world.rows["status"] == dt.REJECTED) & (journeys["instance"] != NEVER)
        ways[(ways == Exit.UNDER_WAY) & is_refused] = Exit.REFUSED  # certain, though not told yet
    ways[(ways == Exit.UNDER_WAY) & is_finished] = Exit.COMPLETED
    is_late = outcomes.status == Status.TIMEOUT
    if is_late.any():
        ways[is_late & ((ways == Exit.UNDER_WAY) | (ways == Exit.COMPLETED))] = Exit.TIMED_OUT
    ways[(ways == Exit.UNDER_WAY) & (journeys["arrival_us"] == NEVER)] = Exit.NOT_SENT
    return ways


def _take_back_lost(outcomes: Outcomes, is_lost: NDArray[np.bool_], left_us: Int64s) -> None:
    """Take back the tokens of a step in progress from requests that were lost before its end."""
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
        for name in OF_POOL:
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
    """Take the start of an outcome from the prefill instance; a request that got no further ends there."""
    is_split = world.journeys["prefill_instance"] != NEVER
    for name in ("queued_us", "taken_in_us", "scheduled_us", "num_cached_tokens"):
        getattr(outcomes, name)[is_split] = getattr(prefill, name)[is_split]
    for name in ("num_preemptions", "preempted_us"):
        getattr(outcomes, name)[is_split] += getattr(prefill, name)[is_split]
    ended_there = is_split & (world.journeys["prefilled_us"] == NEVER) & (prefill.status != Status.OK)
    outcomes.status[ended_there] = prefill.status[ended_there]


def _split(world: World, rows: Int64s | slice) -> Split:
    """Return which instance computed each prompt, and when the KV moved."""
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
        totals = columns(state.engine)["totals"][0]
        written = EngineRecord(state=state, config=pool.engine, latency=pool.latency, record=record)
        found.append(
            Instance(
                name=name,
                pool=int(world.pool_of[number]),
                written=written,
                num_cache_queries=int(totals["num_cache_queries"]),
                num_cache_hits=int(totals["num_cache_hits"]),
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
