"""Contents that are noted as bits, against instances that are asked one by one."""

from __future__ import annotations

import numpy as np
import pytest

from sim import EngineConfig, Requests
from sim.cluster.cluster_config import ClusterConfig, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.infrastructure.infrastructure_config import Failure, Failures
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.routing.routing_policies import KvCost, RoutingPolicy, Weighted
from sim.cluster.run.beginning import loop_settings
from tests.examples import few_or_all
from tests.sim.cluster.run.test_foresight import LATENCY
from tests.sim.cluster.test_cluster import assert_same_run

NUM_INSTANCES = 70
"""More than one word has bits for."""

POLICIES: tuple[RoutingPolicy, ...] = (
    KvCost(),
    KvCost(overlap_score_credit_decay=0.7, decode_active_request_weight=2.5),
    KvCost(temperature=0.5),
    Weighted(scorers={"precise-prefix-cache": 2, "active-requests": 1}),
)


def families(seed: int, num: int) -> ClusterWork:
    """Return requests whose prompts begin as one of five others do, some two thirds of them all through."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 7, num)
    family = rng.integers(0, 5, num)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    return ClusterWork(
        requests=Requests(
            arrival_us=np.cumsum(rng.exponential(rng.choice([100, 600]), num)).astype(np.int64),
            prompt_tokens=16 * counts + rng.integers(1, 40, num),
            output_tokens=rng.integers(1, 30, num),
            priority=np.zeros(num, np.int64),
            hash_offsets=starts,
            hash_ids=np.repeat(family, counts) * 7 + within,
        )
    )


def asking_each(work: ClusterWork, config: ClusterConfig) -> ClusterSimulation:
    """Return a run in which each instance is asked what it has cached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_settings, "matches_caches", lambda *_: False)
        return simulate_cluster(work, config)


def test_what_is_noted_of_caches_is_what_they_have() -> None:
    for seed in range(few_or_all(16, 600)):
        engine = EngineConfig(max_model_len=256, max_num_seqs=4, num_gpu_blocks=(40, 20)[seed % 2])
        failure = Failure(at_us=20_000, instance=3, down_us=8000)
        config = ClusterConfig(
            pools=(Pool(engine=engine, latency=LATENCY, instances=NUM_INSTANCES),),
            routing=POLICIES[seed % len(POLICIES)],
            snapshot_interval_us=SnapshotIntervals.every((0, 9000)[seed // 4 % 2]),
            failures=Failures(schedule=(failure,)) if seed % 3 == 0 else None,
        )
        work = families(seed, 400)
        ours, theirs = simulate_cluster(work, config), asking_each(work, config)
        assert_same_run(ours, theirs)
        assert sum(each.num_cache_hits for each in ours.instances) > 0
