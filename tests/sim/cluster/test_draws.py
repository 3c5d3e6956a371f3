"""Random numbers of a cluster: no stream follows another."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, Extended, Requests, simulate
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.draws import NOISE_DRAWS, STREAMS, first_noise_draw, number_drawn
from sim.cluster.routing.routing_policies import KvCost, PowerOfTwo, RandomChoice
from sim.cluster.transfer.disaggregation_config import Disaggregation

NUM_DRAWS = 4000
NUM_REQUESTS = 4800


def some(n: int, *, apart_us: int) -> Requests:
    """Return requests that are alike, each so long after the one before."""
    return Requests(
        arrival_us=np.arange(n, dtype=np.int64) * apart_us,
        prompt_tokens=np.full(n, 16),
        output_tokens=np.full(n, 2),
        priority=np.zeros(n, np.int64),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def test_no_two_streams_are_correlated_and_each_is_uniform() -> None:
    """Correlations of independent draws are below 4.5 / sqrt(n) in all but one of 150,000."""
    drawn = {
        name: np.array([number_drawn(42, stream, index) for index in range(NUM_DRAWS)])
        for name, stream in STREAMS.items()
    }
    bound = 4.5 / np.sqrt(NUM_DRAWS)
    for one, other in combinations(drawn, 2):
        assert abs(np.corrcoef(drawn[one], drawn[other])[0, 1]) < bound, (one, other)
        assert not np.any(drawn[one] == drawn[other]), (one, other)
    for name, values in drawn.items():
        assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < bound, name
        assert abs(values.mean() - 0.5) < 4.5 / np.sqrt(12 * NUM_DRAWS), name


@pytest.mark.parametrize("policy", [RandomChoice(), PowerOfTwo(), KvCost()], ids=lambda policy: policy.name)
def test_who_computes_a_prompt_says_nothing_of_who_decodes(
    policy: RandomChoice | PowerOfTwo | KvCost,
) -> None:
    """Of 4 + 4 idle instances each of the 16 pairs is as likely: chi-square below its 99.9th percentile, 37.7."""
    pools = tuple(
        Pool(
            engine=EngineConfig(num_gpu_blocks=200),
            latency=Blackbox(beta0=10),
            name=role,
            role=role,
            instances=4,
        )
        for role in ("prefill", "decode")
    )
    config = ClusterConfig(pools=pools, routing=policy, disaggregation=Disaggregation(kv_bytes_per_token=1))
    run = simulate_cluster(ClusterWork(requests=some(NUM_REQUESTS, apart_us=10_000)), config)
    assert run.split is not None
    pairs = np.bincount(4 * run.split.prefill_instance + run.instance - 4, minlength=16)
    due = NUM_REQUESTS / 16
    assert ((pairs - due) ** 2 / due).sum() < 37.7
    assert pairs.min() > 0


def test_each_instance_s_steps_scatter_by_themselves_and_the_first_s_as_a_server_s() -> None:
    """Two instances with the same request at the same time, again and again."""
    latency = Extended(beta0=1000, sigma=0.2)
    requests = some(400, apart_us=5000)
    twice = requests.take(np.repeat(np.arange(400), 2))
    pool = Pool(engine=EngineConfig(num_gpu_blocks=200), latency=latency, instances=2)
    run = simulate_cluster(ClusterWork(requests=twice), ClusterConfig(pools=(pool,)))
    took = run.outcomes.last_token_us - run.outcomes.scheduled_us
    first, second = took[run.instance == 0], took[run.instance == 1]
    alone = simulate(requests, pool.engine, latency).outcomes
    np.testing.assert_array_equal(first, alone.last_token_us - alone.scheduled_us)
    assert abs(np.corrcoef(first, second)[0, 1]) < 4.5 / np.sqrt(400)


def test_the_scatter_of_steps_meets_no_other_draw() -> None:
    begins = [first_noise_draw(instance) for instance in range(1, 2000)]
    assert min(np.diff(begins)) >= 1 << 32
    assert begins[0] > NOISE_DRAWS > (1 << 29) << 32  # behind those of half a billion requests
    assert begins[-1] < 1 << 63
