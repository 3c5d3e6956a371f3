"""Engines of a cluster that count their KV blocks, against such as hand them out and are looked at step by step."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from sim import Blackbox, EngineConfig, Requests
from sim.cluster import by_events
from sim.cluster.cluster_config import ClusterConfig, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.infrastructure.infrastructure_config import Failure, Failures
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.results.watching import FleetOverTime
from sim.cluster.routing.routing_policies import (
    AlwaysBusiest,
    KvCost,
    LeastLoaded,
    PowerOfTwo,
    RoundRobin,
    RoutingPolicy,
    VllmDp,
    Weighted,
)
from sim.cluster.run.beginning import counted_engines
from sim.cluster.run.world import World
from sim.config import Record
from sim.engine.state import State, columns
from sim.kv_cache_groups import KVCacheGroup
from sim.requests import Int64s
from tests.examples import few_or_all
from tests.sim.cluster.run.test_foresight import busy_case, looking_at_each_step
from tests.sim.cluster.test_cluster import assert_same_run
from tests.sim.strategies import Case

POLICIES: tuple[RoutingPolicy, ...] = (
    LeastLoaded(),
    PowerOfTwo(),
    RoundRobin(),
    AlwaysBusiest(),
    LeastLoaded(ties="random"),
    Weighted(scorers={"queue-depth": 2, "kv-utilization": 2}),
    VllmDp(),
)
"""All of them, the last two by reports at intervals, hear of ends alone."""

STEEP = Blackbox(alpha0=500, alpha2=50, beta0=50, beta1=20, beta2=3000)
"""A step is the shorter, the fewer requests are in it: who is preempted lets the others end sooner."""


class Ways:
    """How clusters ran: ``began`` with an engine that counts, ``ended`` with all that began so still counting."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.began = self.ended = 0
        self._first, self._finish = counted_engines.counted_addresses, by_events._finish_engines
        self._num = 0
        patch.setattr(counted_engines, "FEWEST_REQUESTS", 0)
        patch.setattr(by_events, "counted_addresses", self._noted)
        patch.setattr(by_events, "_finish_engines", self._noted_at_end)

    def _noted(
        self, work: ClusterWork, config: ClusterConfig, world: World, states: list[State], *, record: Record
    ) -> Int64s:
        addresses = self._first(work, config, world, states, record=record)
        self._num = int((addresses != 0).sum())
        self.began += self._num > 0
        return addresses

    def _noted_at_end(self, world: World, states: list[State], *, until_us: int) -> None:
        self.ended += 0 < self._num == int((world.counted_addresses != 0).sum())
        self._num = 0
        self._finish(world, states, until_us=until_us)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    """Let the smallest cluster count, and note which do."""
    return Ways(monkeypatch)


def cluster_of(case: Case, instances: int, policy: RoutingPolicy, *, interval_us: int) -> ClusterConfig:
    """Return a cluster of engines like the case's."""
    pool = Pool(engine=case.config, latency=case.latency, instances=instances)
    seen = SnapshotIntervals.every(interval_us)
    return ClusterConfig(pools=(pool,), routing=policy, snapshot_interval_us=seen)


def assert_same_cluster(ours: ClusterSimulation, theirs: ClusterSimulation) -> None:
    """Bits of each request's way, of each engine's counts, and of what was seen on the way."""
    assert_same_run(ours, theirs)
    np.testing.assert_array_equal(ours.left_us, theirs.left_us)
    assert (ours.duration_us, ours.undone) == (theirs.duration_us, theirs.undone)
    for one, other in zip(ours.instances, theirs.instances, strict=True):
        counts = [columns(each.written.state.engine)[0]["totals"].copy() for each in (one, other)]
        for each in counts:
            each["num_jumps"] = 0
        assert counts[0] == counts[1]
    for field in fields(FleetOverTime) if ours.over_time is not None else ():
        seen = [getattr(each.over_time, field.name) for each in (ours, theirs)]
        np.testing.assert_array_equal(*seen, err_msg=field.name)


def test_engines_that_count_and_engines_that_hand_out_are_one_cluster(ways: Ways) -> None:
    num = few_or_all(70, 3000)
    for seed in range(num):
        rng = np.random.default_rng(seed)
        case = busy_case(seed)
        if seed % 2:
            case = replace(case, latency=STEEP)
        policy = POLICIES[seed % len(POLICIES)]
        config = cluster_of(case, 1 + seed % 5, policy, interval_us=9000 if policy in POLICIES[-2:] else 0)
        work, until_us = ClusterWork(requests=case.requests), None
        record: Record = "spans" if seed % 3 == 0 else "none"
        points = 30 if record == "spans" and rng.random() < 0.5 else None
        if rng.random() < 0.3:
            until_us = int(case.requests.arrival_us[-1])
        ours = simulate_cluster(work, config, record=record, points=points, until_us=until_us)
        theirs = looking_at_each_step(work, config, record=record, points=points, until_us=until_us)
        assert_same_cluster(ours, theirs)
    assert ways.began > 0.8 * num
    assert 0.2 * num < ways.ended < 0.9 * ways.began  # others have handed over


def narrow_case(seed: int) -> Case:
    """Return requests for engines of few seats and short steps: who comes often has to wait, or is taken in parts."""
    rng = np.random.default_rng(seed)
    case, n = busy_case(seed), 150
    requests = replace(
        case.requests,
        arrival_us=np.cumsum(rng.exponential(rng.choice([3000, 12_000]), n)).astype(np.int64),
        prompt_tokens=rng.integers(1, 90, n),
        output_tokens=rng.integers(1, 60, n),
        deadline_us=None,
    )
    engine = EngineConfig(
        max_model_len=160,
        max_num_seqs=int(rng.choice([3, 8])),
        max_num_batched_tokens=int(rng.choice([32, 64, 128])),
        num_gpu_blocks=int(rng.choice([60, 200])),
        watermark=float(rng.choice([0.0, 0.2])),
        async_scheduling=bool(rng.random() < 0.5),
    )
    latency = Blackbox(
        alpha0=int(rng.choice([0, 900, 9000])),
        alpha1=float(rng.choice([0, 30.5])),
        alpha2=float(rng.choice([0, 3.3])),
        beta0=3000,
        beta1=float(rng.choice([1.5, 90.7])),
        beta2=float(rng.choice([0.4, 200.5])),
    )
    return replace(case, requests=requests, config=engine, latency=latency)


def test_newcomers_move_no_end_behind_the_one_that_comes(ways: Ways) -> None:
    num = few_or_all(40, 3000)
    for seed in range(num):
        case, policy = narrow_case(seed), POLICIES[(0, 0, 1, 3)[seed % 4]]
        config = cluster_of(case, 2 + seed % 3, policy, interval_us=0)
        work = ClusterWork(requests=case.requests)
        assert_same_cluster(simulate_cluster(work, config), looking_at_each_step(work, config))
    assert ways.began == num


def some_work(num: int) -> ClusterWork:
    """Return requests that share nothing, one a millisecond."""
    return ClusterWork(
        requests=Requests(
            arrival_us=np.arange(num, dtype=np.int64) * 1000,
            prompt_tokens=np.full(num, 20),
            output_tokens=np.full(num, 5),
            priority=np.zeros(num, np.int64),
            hash_offsets=np.zeros(num + 1, np.int64),
            hash_ids=np.zeros(0, np.int64),
        )
    )


PLAIN = Pool(engine=EngineConfig(max_model_len=80), latency=Blackbox(beta0=1000), instances=3)


@pytest.mark.parametrize(
    "config",
    [
        ClusterConfig(pools=(PLAIN,), routing=KvCost()),  # hears of first tokens
        ClusterConfig(pools=(PLAIN,), routing=Weighted()),  # reads KV usage as it is
        ClusterConfig(pools=(PLAIN,), routing=VllmDp()),  # and queues
        ClusterConfig(
            pools=(PLAIN,),
            routing=Weighted(scorers={"precise-prefix-cache": 1}),
            snapshot_interval_us=SnapshotIntervals.every(5000),
        ),
        ClusterConfig(
            pools=(PLAIN,),
            routing=LeastLoaded(),
            failures=Failures(schedule=(Failure(at_us=7000, instance=0, down_us=3000),)),
        ),
    ],
    ids=lambda config: type(config.routing).__name__,
)
def test_engines_that_decisions_read_hand_their_blocks_out(config: ClusterConfig, ways: Ways) -> None:
    simulate_cluster(some_work(30), config)
    assert ways.began == 0


def test_what_a_run_that_counts_does_not_know_is_not_counted(ways: Ways) -> None:
    work, config = some_work(30), ClusterConfig(pools=(PLAIN,), routing=LeastLoaded())
    shared = replace(
        work.requests, hash_offsets=np.arange(31, dtype=np.int64), hash_ids=np.arange(30, dtype=np.int64) // 2
    )
    simulate_cluster(ClusterWork(requests=shared), config)
    simulate_cluster(work, config, record="steps")
    simulate_cluster(work, config, coalesce=False)
    groups = (KVCacheGroup(kind="full"), KVCacheGroup(kind="sliding", window=16))
    pool = replace(PLAIN, engine=replace(PLAIN.engine, kv_cache_groups=groups))
    simulate_cluster(work, replace(config, pools=(pool,)))
    assert ways.began == 0
    simulate_cluster(work, config)
    assert ways.began == 1


def test_a_pool_counts_though_another_cannot(ways: Ways) -> None:
    singly = replace(PLAIN, name="b", engine=replace(PLAIN.engine, max_num_batched_tokens=16))
    work = some_work(60)
    config = ClusterConfig(pools=(replace(PLAIN, name="a"), singly), routing=LeastLoaded())
    ours, theirs = simulate_cluster(work, config), looking_at_each_step(work, config)
    assert_same_cluster(ours, theirs)
    assert (ways.began, ways.ended) == (1, 1)


def test_few_requests_are_not_worth_the_code_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = Ways(monkeypatch)
    monkeypatch.setattr(counted_engines, "FEWEST_REQUESTS", 31)
    simulate_cluster(some_work(30), ClusterConfig(pools=(PLAIN,), routing=LeastLoaded()))
    assert ways.began == 0
