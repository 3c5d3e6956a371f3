"""Looking at a cluster while it runs: it changes nothing, and sees what an engine that is paused shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, Status
from sim.cluster.arrays import Records
from sim.cluster.client_plans import closed_loop
from sim.cluster.cluster_config import ClusterConfig, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.infrastructure.infrastructure_config import Autoscaler
from sim.cluster.results.watching import Watch
from sim.cluster.routing.routing_policies import LeastLoaded, RoundRobin, RoutingPolicy, Weighted
from sim.cluster.run.watch import look_at_all
from sim.jit.references import Table
from tests.examples import examples
from tests.sim.cluster.test_cluster import GATEWAYS, alike, assert_same_run, cluster, some_requests
from tests.sim.strategies import Case, any_model, cases


@pytest.fixture(scope="module", autouse=True)
def close_looks() -> Iterator[None]:
    """Let runs of some hundred µs be looked at, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sim.cluster.results.watching.LEAST_INTERVAL_US", 30)
        yield


@examples(30)
@given(
    cases(model=any_model, impatient=True),
    st.integers(1, 3),
    st.sampled_from([RoundRobin(), LeastLoaded(), Weighted(), Weighted(scorers={"precise-prefix-cache": 1})]),
    st.booleans(),
    st.sampled_from([0, 70, 500]),
)
def test_to_look_changes_nothing(
    case: Case, num_instances: int, policy: RoutingPolicy, waits: bool, interval_us: int
) -> None:
    plan = closed_loop(len(case.requests), concurrency=2, think_time_us=3) if waits else None
    work = ClusterWork(requests=case.requests, clients=plan)
    stale = SnapshotIntervals.every(interval_us)
    config = alike(case, num_instances, routing=policy, snapshot_interval_us=stale)
    seen = simulate_cluster(work, config, record="spans", points=7)
    assert_same_run(seen, simulate_cluster(work, config, record="spans"))
    assert seen.over_time is not None
    assert (np.diff(seen.over_time.time_us) > 0).all()
    assert seen.over_time.time_us[-1] == seen.duration_us


@pytest.mark.parametrize("interval_us", [50_000, 500_000])
def test_to_look_changes_no_stale_signal(interval_us: int) -> None:
    """Each snapshot is taken at its time, whoever lets the engines pass it before somebody decides."""
    work = ClusterWork(requests=some_requests(300, per_s=60))
    stale = SnapshotIntervals.every(interval_us)
    config = cluster(4, routing=Weighted(scorers={"queue-depth": 1}), snapshot_interval_us=stale)
    unseen = simulate_cluster(work, config)
    for points in (60, 400):
        assert_same_run(simulate_cluster(work, config, points=points), unseen)
    idle = Autoscaler(policy="target", target=1.0, min_instances=4, max_instances=4, interval_us=7_000)
    scaled = replace(config, pools=(replace(config.pools[0], autoscaler=idle),))
    assert_same_run(simulate_cluster(work, scaled), unseen)


@examples(15)
@given(cases())
def test_what_is_seen_of_a_cluster_of_one_is_what_a_paused_engine_reports(case: Case) -> None:
    assume(case.config.num_gpu_blocks > 0)
    seen = simulate_cluster(ClusterWork(requests=case.requests), alike(case), record="spans", points=5)
    assert seen.over_time is not None
    engine = Engine(case.requests, case.config, case.latency)
    num_blocks = case.config.num_gpu_blocks - 1
    for place, time_us in enumerate(seen.over_time.time_us[:-1]):
        engine.advance(int(time_us))
        waiting, running, kv_frac = engine.reported(int(time_us))
        outcomes = engine.outcomes()
        waiting -= int(((outcomes.queued_us == time_us) & (outcomes.status == Status.UNFINISHED)).sum())
        assert seen.over_time.num_waiting[place, 0] == waiting
        assert seen.over_time.num_running[place, 0] == running
        assert 1 - seen.over_time.num_free_blocks[place, 0] / num_blocks == pytest.approx(kv_frac)


@pytest.mark.parametrize("flow", [None, GATEWAYS["queue"]], ids=["no queue", "queue"])
def test_busy_time_is_the_time_of_the_steps(flow: object) -> None:
    work = ClusterWork(requests=some_requests(150, per_s=60))
    config = cluster(2, routing=LeastLoaded(), flow_control=flow)
    seen = simulate_cluster(work, config, record="steps", points=20).over_time
    result = simulate_cluster(work, config, record="steps")
    assert seen is not None
    for number, instance in enumerate(result.instances):
        steps = [step for step in instance.written.steps() if step.sched]
        assert seen.busy_us[-1, number] == sum(step.dur for step in steps)
        for place, time_us in enumerate(seen.time_us):
            begun = sum(step.exec_end - step.exec_start for step in steps if step.exec_end <= time_us)
            assert seen.busy_us[place, number] >= begun  # a step under way counts up to the look
            assert seen.busy_us[place, number] <= time_us


def test_however_long_a_run_is_its_looks_are_few() -> None:
    watch = Watch(points=10, num_instances=3, last_arrival_us=0)
    num_looks = 0
    while watch.next_us < 3_600_000_000:
        watch.seen["num_waiting"] = watch.next_us // 1000
        watch.take()
        num_looks += 1
    assert num_looks < 10 * (2 + np.log2(3_600_000_000 / 30))
    assert watch._num < 20
    times = (np.arange(watch._num) + 1) * watch._interval_us
    np.testing.assert_array_equal(watch._rows["num_waiting"][: watch._num, 0], times // 1000)


@pytest.mark.parametrize("num_instances", [6, 24])
def test_each_look_takes_every_engine_on_once_however_many_need_room(
    num_instances: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a look would cost the square of the instances. One that needed room is taken on again, nobody before it."""
    num = 70 * num_instances
    requests = replace(
        some_requests(num, per_s=1.0),
        arrival_us=np.zeros(num, np.int64),
        prompt_tokens=np.full(num, 30),
        output_tokens=np.full(num, 3),
        hash_offsets=np.zeros(num + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    firsts: dict[int, list[int]] = {}

    def counted(table: Table, time_us: int, seen: Records, first: int) -> int:
        firsts.setdefault(time_us, []).append(first)
        return look_at_all(table, time_us, seen, first)

    monkeypatch.setattr("sim.cluster.by_events.look_at_all", counted)
    monkeypatch.setattr("sim.cluster.results.watching.LEAST_INTERVAL_US", 1000)
    monkeypatch.setattr("sim.cluster.run.beginning.shared_engines.MOST_HASH_BYTES", 0)  # none has room
    engine = EngineConfig(max_num_seqs=1, num_gpu_blocks=400)
    pool = Pool(engine=engine, latency=Blackbox(beta0=1000), instances=num_instances)
    simulate_cluster(ClusterWork(requests=requests), ClusterConfig(pools=(pool,)), points=4)
    longest = max(firsts.values(), key=len)
    assert len(longest) > num_instances  # all of them needed room at one look
    for starts in firsts.values():
        assert starts == sorted(starts)
        assert (
            len(starts) - len(set(starts)) <= 1
        )  # the first engine: from the beginning, and again with room
