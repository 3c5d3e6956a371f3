"""Getting the cluster's loop ready: compiled on this machine, or loaded from the cache."""

from __future__ import annotations

import numpy as np

from sim.cluster.config import ClusterConfig, Pool
from sim.cluster.run.prepare import ClusterWork
from sim.cluster.simulation import simulate_cluster
from sim.config import EngineConfig
from sim.latency import Blackbox
from sim.requests import Requests


def compile_cluster() -> None:
    """Have the cluster's loop, with every policy, compiled and loaded: half a minute of CPU time the first time."""
    one, none = np.ones(1, np.int64), np.zeros(0, np.int64)
    single = Requests(
        arrival_us=one,
        prompt_tokens=one,
        output_tokens=one,
        priority=one,
        hash_offsets=np.zeros(2, np.int64),
        hash_ids=none,
    )
    pool = Pool(engine=EngineConfig(max_num_seqs=1, max_model_len=64), latency=Blackbox(beta0=1))
    simulate_cluster(ClusterWork(requests=single), ClusterConfig(pools=(pool,)))
