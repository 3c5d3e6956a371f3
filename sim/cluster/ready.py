"""Getting the cluster's loop ready: compiled on this machine, or loaded from the cache."""

from __future__ import annotations

import numpy as np

from sim.cluster.by_events import simulate_by_events
from sim.cluster.config import ClusterConfig, Pool
from sim.cluster.run.loop import run_cluster
from sim.cluster.run.prepare import new_world
from sim.cluster.run.world import FOREVER
from sim.cluster.work import ClusterWork
from sim.config import EngineConfig
from sim.jit.references import table_of
from sim.latency import Blackbox
from sim.ready import one_request


def _smallest() -> ClusterConfig:
    """Return a cluster of one small engine."""
    pool = Pool(engine=EngineConfig(max_num_seqs=1, max_model_len=64), latency=Blackbox(beta0=1))
    return ClusterConfig(pools=(pool,))


def compile_cluster() -> None:
    """Have the cluster's loop, with every policy, and the engine compiled and loaded: minutes the first time."""
    simulate_by_events(ClusterWork(requests=one_request()), _smallest())


def compile_loop() -> None:
    """Have the loop alone compiled and stored, while another process compiles the engine."""
    nobody = one_request().take(np.zeros(0, np.int64))
    world, _ = new_world(ClusterWork(requests=nobody), _smallest(), runs_engines=False)
    run_cluster(table_of([world]), FOREVER, 64)
