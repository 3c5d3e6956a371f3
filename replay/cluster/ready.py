"""Having the cluster's loop compiled before its time counts."""

from __future__ import annotations

import numpy as np

from sim import Blackbox, EngineConfig, Requests
from sim.cluster.config import ClusterConfig, Pool
from sim.cluster.run.prepare import ClusterWork
from sim.cluster.simulation import simulate_cluster


def compile_cluster() -> None:
    """Simulate no requests, so that the loop is compiled or read from its cache."""
    none = np.zeros(0, np.int64)
    requests = Requests(
        arrival_us=none,
        prompt_tokens=none,
        output_tokens=none,
        priority=none,
        hash_offsets=np.zeros(1, np.int64),
        hash_ids=none,
    )
    pool = Pool(engine=EngineConfig(max_num_seqs=1, num_gpu_blocks=8), latency=Blackbox())
    simulate_cluster(ClusterWork(requests=requests), ClusterConfig(pools=(pool,)))
