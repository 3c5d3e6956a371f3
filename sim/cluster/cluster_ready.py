"""Getting the cluster's loop ready: compiled on this machine, or loaded from the cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sim.cluster.arrays import copy_pairs, new_pairs, records
from sim.cluster.by_events import simulate_by_events
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.draws import number_drawn
from sim.cluster.events import plan_event
from sim.cluster.gateway.admission import leave
from sim.cluster.gateway.queue import withdraw_request
from sim.cluster.run.beginning.prepare import new_world
from sim.cluster.run.changes import lost_requests
from sim.cluster.run.loop import finish_ranks, run_cluster
from sim.cluster.run.watch import look_at_all
from sim.cluster.run.world import FOREVER, World
from sim.engine.run_variants import RUN_VARIANTS, RunVariant
from sim.engine.state import State
from sim.engine.watching.watched_run import LOOK
from sim.engine_ready import compile_engine, one_request, smallest_engine
from sim.jit.entries import Entry
from sim.jit.references import table_of
from sim.latency import Blackbox


def _smallest(variant: RunVariant = "plain") -> ClusterConfig:
    """Return a cluster of one small engine."""
    return ClusterConfig(pools=(Pool(engine=smallest_engine(variant), latency=Blackbox(beta0=1)),))


def compile_cluster(variant: RunVariant = "plain") -> None:
    """Compile and load the cluster's loop, with every policy, and a variant of the engine."""
    simulate_by_events(ClusterWork(requests=one_request()), _smallest(variant))


def _smallest_world() -> tuple[World, list[State]]:
    """Return a cluster of one engine and no request, and its engine, which must live as long as it does."""
    no_requests = one_request().take(np.zeros(0, np.int64))
    return new_world(ClusterWork(requests=no_requests), _smallest(), runs_engines=False)


def compile_loop() -> None:
    """Compile and store the loop alone, while another process compiles the engine."""
    world, _states = _smallest_world()
    run_cluster(table_of([world]), FOREVER, 64)


def entries() -> Iterator[tuple[Callable[..., Any], tuple[object, ...]]]:
    """Yield every compiled function of the cluster that Python calls, with arguments of the types that it takes."""
    (world, _states), pairs = _smallest_world(), new_pairs(1)
    table = table_of([world])
    yield run_cluster, (table, FOREVER, 64)
    yield finish_ranks, (table, 0, FOREVER)
    yield look_at_all, (table, 0, records(1, LOOK), 0)
    yield plan_event, (world.events, 0, 0, 0, 0)
    yield copy_pairs, (pairs, pairs)
    yield number_drawn, (0, 0, 0)
    yield leave, (world.admission, world.requests, 0)
    yield withdraw_request, (world.queue, 0)
    yield lost_requests.has_work, (table,)
    for of_one in (lost_requests.forget, lost_requests.let_dispatch, lost_requests.take_in_transfers):
        yield of_one, (table, 0)
    for of_two in (
        lost_requests.cut_off_transfer,
        lost_requests.hand_back,
        lost_requests.lose,
        lost_requests.release_blocks,
        lost_requests.stop,
    ):
        yield of_two, (table, 0, 0)


def compile_everything() -> None:
    """Compile and load engine and cluster, and also the code that only failures and ``points`` need."""
    for variant in RUN_VARIANTS:
        compile_engine(variant)
        compile_cluster(variant)
    for function, arguments in entries():
        if isinstance(function, Entry):
            function.prepare(*arguments)
