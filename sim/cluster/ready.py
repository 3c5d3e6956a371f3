"""Getting the cluster's loop ready: compiled on this machine, or loaded from the cache."""

from __future__ import annotations

from sim.cluster.config import ClusterConfig, Pool
from sim.cluster.run.prepare import ClusterWork
from sim.cluster.simulation import simulate_cluster
from sim.config import EngineConfig
from sim.latency import Blackbox
from sim.ready import one_request


def compile_cluster() -> None:
    """Have the cluster's loop, with every policy, compiled and loaded: half a minute of CPU time the first time."""
    pool = Pool(engine=EngineConfig(max_num_seqs=1, max_model_len=64), latency=Blackbox(beta0=1))
    simulate_cluster(ClusterWork(requests=one_request()), ClusterConfig(pools=(pool,)))
