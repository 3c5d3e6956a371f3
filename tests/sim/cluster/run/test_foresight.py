"""Engines that are left alone until a request of theirs may end, against engines that are looked at step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, LatencyModel, Requests, StepBatch
from sim.cluster import by_events
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.infrastructure.infrastructure_config import Autoscaler, Failure, Failures
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.routing.routing_policies import (
    AlwaysBusiest,
    CacheAware,
    KvCost,
    LeastLoaded,
    PowerOfTwo,
    RoutingPolicy,
    VllmDp,
    Weighted,
)
from sim.cluster.run.beginning import prepare
from sim.cluster.run.beginning.prepare import new_world
from sim.config import Record
from sim.engine.state import State, columns
from sim.jit.references import table_of
from tests.examples import examples, few_or_all
from tests.sim.cluster.test_cluster import assert_same_run
from tests.sim.strategies import Case, Pick, any_model, blackbox, cases, extended, picks, tiled

POLICIES: tuple[RoutingPolicy, ...] = (
    LeastLoaded(),
    LeastLoaded(ties="random"),
    PowerOfTwo(),
    AlwaysBusiest(),
    CacheAware(balance_abs_threshold=2),
    Weighted(scorers={"lora-affinity": 1, "queue-depth": 1}),
    Weighted(),
    Weighted(scorers={"kv-utilization": 1}),
    Weighted(scorers={"prefix-affinity": 3, "queue-depth": 2, "kv-utilization": 2}),
    Weighted(scorers={"running-requests": 1, "vllm-dp": 1, "load-aware": 2, "load-balance": 1}),
    Weighted(scorers={"precise-prefix-cache": 1, "kv-utilization": 1}),
    VllmDp(),
    KvCost(),
)

CHANGES: tuple[dict[str, object], ...] = (
    {},
    {},
    {"failures": Failures(schedule=(Failure(at_us=7000, instance=0, down_us=3000),))},
    {"failures": Failures(mtbf_us=20_000, mttr_us=2000)},
    {"autoscaler": Autoscaler(min_instances=1, max_instances=4, interval_us=5000, down_window_us=9000)},
)

LATENCY = Blackbox(alpha0=500, alpha2=3, beta0=6000, beta1=20, beta2=30)


def looking_at_each_step(
    work: ClusterWork,
    config: ClusterConfig,
    *,
    record: Record = "none",
    points: int | None = None,
    until_us: int | None = None,
) -> ClusterSimulation:
    """Return a run whose decisions bring every engine to their time, and score each; blocks are handed out."""
    with pytest.MonkeyPatch.context() as patch:
        none = np.zeros(config.num_instances, np.int64)
        patch.setattr(prepare, "least_steps", lambda *_, **__: none)
        patch.setattr(prepare, "is_searched", lambda *_: False)
        patch.setattr(by_events, "counted_addresses", lambda *_, **__: none)
        return simulate_cluster(work, config, record=record, points=points, until_us=until_us)


def mostly_foreseen(pick: Pick) -> LatencyModel:
    """Return a model, most often one whose shortest step is known."""
    model: LatencyModel = pick((blackbox, blackbox, extended, tiled, any_model))(pick)
    return model


def drawn_config(
    case: Case, instances: int, policy: RoutingPolicy, *, change: int, way_us: int, interval_us: int
) -> ClusterConfig:
    """Return a cluster of engines like the case's whose instances may fail, or come and go."""
    settings = dict(CHANGES[change])
    pool = Pool(engine=case.config, latency=case.latency, instances=instances)
    if "autoscaler" in settings:
        pool = replace(pool, autoscaler=settings.pop("autoscaler"))  # type: ignore[arg-type] # it is one
    way = PipelineLatency(admission_us=way_us, routing_us=way_us)
    seen = SnapshotIntervals.every(interval_us)
    return ClusterConfig(pools=(pool,), routing=policy, latency=way, snapshot_interval_us=seen, **settings)  # type: ignore[arg-type] # checked there


def assert_left_alone_is_looked_at(
    case: Case, instances: int, policy: RoutingPolicy, *, change: int, way_us: int, interval_us: int
) -> None:
    """Bits of every request's way, and of each engine's counts, whatever fails, comes or gives up."""
    config = drawn_config(case, instances, policy, change=change, way_us=way_us, interval_us=interval_us)
    work = ClusterWork(requests=case.requests)
    ours, theirs = simulate_cluster(work, config), looking_at_each_step(work, config)
    assert_same_run(ours, theirs)
    np.testing.assert_array_equal(ours.left_us, theirs.left_us)
    for one, other in zip(ours.instances, theirs.instances, strict=True):
        counts = [columns(each.written.state.engine)[0]["totals"].copy() for each in (one, other)]
        for each in counts:
            each["num_jumps"] = 0
        assert counts[0] == counts[1]


def busy_case(seed: int) -> Case:
    """Return 150 requests that come faster than a few engines serve them: queues, preemptions, clients that give up."""
    rng = np.random.default_rng(seed)
    n = 150
    arrival_us = np.cumsum(rng.exponential(rng.choice([1500, 4000, 15_000]), n)).astype(np.int64)
    waits_us = rng.integers(20_000, 150_000, n)
    requests = Requests(
        arrival_us=arrival_us,
        prompt_tokens=rng.integers(1, 40, n),
        output_tokens=rng.integers(1, 40, n),
        priority=rng.integers(0, 3, n),
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        deadline_us=np.where(rng.random(n) < rng.choice([0, 0.5]), arrival_us + waits_us, -1),
    )
    engine = EngineConfig(
        max_model_len=80,
        max_num_seqs=int(rng.choice([2, 5, 64])),
        num_gpu_blocks=int(rng.choice([8, 20, 1000])),
        async_scheduling=bool(rng.integers(2)),
        scheduling_policy="priority" if rng.integers(2) else "fcfs",
    )
    return Case(
        requests=requests, config=engine, latency=replace(LATENCY, alpha0=int(rng.choice([0, 9000, 40_000])))
    )


@pytest.mark.parametrize("seed", range(few_or_all(39, 1000)))
def test_busy_engines_left_alone_and_looked_at_are_one_cluster(seed: int) -> None:
    assert_left_alone_is_looked_at(
        busy_case(seed),
        1 + seed % 5,
        POLICIES[seed % len(POLICIES)],
        change=seed % len(CHANGES),
        way_us=0,
        interval_us=(0, 0, 9000)[seed % 3],
    )


@examples(500)
@given(
    cases(model=mostly_foreseen, impatient=True, costly=True, stopping=True),
    st.integers(1, 4),
    st.sampled_from(POLICIES),
    st.integers(0, len(CHANGES) - 1),
    st.sampled_from([0, 0, 70]),
    st.sampled_from([0, 0, 5000]),
)
def test_engines_left_alone_and_engines_looked_at_are_one_cluster(
    case: Case, instances: int, policy: RoutingPolicy, change: int, way_us: int, interval_us: int
) -> None:
    assert_left_alone_is_looked_at(
        case, instances, policy, change=change, way_us=way_us, interval_us=interval_us
    )


@given(picks(), st.lists(st.tuples(*[st.integers(0, 300)] * 3), min_size=1, max_size=30))
def test_no_step_is_shorter_than_the_least(pick: object, steps: list[tuple[int, int, int]]) -> None:
    model = any_model(pick)  # type: ignore[arg-type] # of hypothesis
    prefill, decodes, context = (np.array(each, np.int64) for each in zip(*steps, strict=True))
    decodes = np.maximum(decodes, prefill == 0)
    batch = StepBatch(
        num_prefill_tokens=prefill,
        num_decode_tokens=decodes,
        decode_context_tokens=decodes * context,
        prefill_pairs=prefill * (prefill + context),
        num_prefill_seqs=(prefill > 0).astype(np.int64),
        prefill_context_tokens=context * (prefill > 0),
    )
    assert model.durations_us(batch).min() >= model.least_step_us


def two_long_answers() -> ClusterWork:
    """Return two answers of 2000 tokens beside 300 short ones."""
    n = 302
    ends = np.full(n, 2, np.int64)
    ends[:2] = 2000
    return ClusterWork(
        requests=Requests(
            arrival_us=np.arange(n, dtype=np.int64) * 40_000,
            prompt_tokens=np.full(n, 16, np.int64),
            output_tokens=ends,
            priority=np.zeros(n, np.int64),
            hash_offsets=np.zeros(n + 1, np.int64),
            hash_ids=np.zeros(0, np.int64),
        )
    )


@pytest.mark.parametrize(
    ("policy", "share"),
    [(LeastLoaded(), 0.5), (Weighted(), 0.5), (Weighted(scorers={"queue-depth": 1}), 0.75)],
)
def test_an_engine_is_advanced_for_what_ends_not_for_each_decision(
    policy: RoutingPolicy, share: float
) -> None:
    work = two_long_answers()
    pool = Pool(engine=EngineConfig(max_model_len=4096), latency=LATENCY, instances=3)
    config = ClusterConfig(pools=(pool,), routing=policy)
    jumps = [
        sum(int(columns(each.written.state.engine)[0]["totals"]["num_jumps"]) for each in done.instances)
        for done in (simulate_cluster(work, config), looking_at_each_step(work, config))
    ]
    assert jumps[0] < share * jumps[1]


def test_the_table_of_engines_is_there_before_an_engine_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[type, object] = {}
    monkeypatch.setattr("sim.jit.references._HOLLOW", known)
    monkeypatch.setattr("sim.jit.references._LAYOUTS", {})
    asked: list[bool] = []

    def address_of_run(_state: State) -> int:
        asked.append(State in known)  # code that is compiled for it reads such a table
        return 0

    monkeypatch.setattr(prepare, "address_of_run", address_of_run)
    pool = Pool(engine=EngineConfig(max_model_len=4096), latency=LATENCY, instances=3)
    new_world(two_long_answers(), ClusterConfig(pools=(pool,)))
    assert asked == [True] * 3


def test_engines_side_by_side_have_the_rows_that_they_have_one_by_one() -> None:
    pool = Pool(engine=EngineConfig(max_model_len=256, max_num_seqs=4), latency=LATENCY, instances=7)
    other = replace(pool, name="other", engine=EngineConfig(max_model_len=512, max_num_seqs=8), instances=5)
    requests = two_long_answers().requests
    config = ClusterConfig(pools=(pool, other), routing=LeastLoaded())
    short = replace(requests, output_tokens=np.minimum(requests.output_tokens, 2))
    for record in ("none", "spans"):
        world, states = new_world(ClusterWork(requests=short), config, record=record, runs_engines=False)
        np.testing.assert_array_equal(world.engines, table_of(states))
