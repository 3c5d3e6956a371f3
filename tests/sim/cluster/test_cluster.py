"""A whole cluster against single engines, against itself by another way, and against what must always hold."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, InvalidConfig, LatencyModel, Outcomes, Requests, simulate
from sim.cluster.by_events import simulate_by_events
from sim.cluster.client_plans import ClientPlan, capped, closed_loop, sessions, waves
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.gateway.admission import TierShed, TokenBucket, UtilizationShed
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.routing.routing_policies import (
    AlwaysBusiest,
    CacheAware,
    KvCost,
    LeastLoaded,
    OwnPolicy,
    PowerOfTwo,
    RandomChoice,
    RoundRobin,
    RoutingPolicy,
    VllmDp,
    Weighted,
)
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.examples import examples
from tests.sim.strategies import Case, Pick, any_model, assert_same_outcomes, cases, requests_of

POLICIES: tuple[RoutingPolicy, ...] = (
    RoundRobin(),
    RandomChoice(),
    PowerOfTwo(),
    LeastLoaded(),
    LeastLoaded(ties="random"),
    AlwaysBusiest(),
    Weighted(),
    Weighted(scorers={"prefix-affinity": 3, "queue-depth": 2, "kv-utilization": 2}),
    Weighted(scorers={"precise-prefix-cache": 2, "running-requests": 1}),
    VllmDp(),
    CacheAware(balance_abs_threshold=2),
    KvCost(),
)

LATENCY = Blackbox(alpha0=500, alpha2=3, beta0=6000, beta1=20, beta2=30)


def alike(case: Case, instances: int = 1, **settings: object) -> ClusterConfig:
    """Return a cluster of engines that are configured as the case's."""
    pool = Pool(engine=case.config, latency=case.latency, instances=instances)
    return ClusterConfig(pools=(pool,), **settings)  # type: ignore[arg-type] # checked by the class


def rows_of(outcomes: Outcomes, rows: np.ndarray) -> Outcomes:
    return Outcomes(**{field.name: getattr(outcomes, field.name)[rows] for field in fields(Outcomes)})


def keeping_step(requests: Requests) -> ClientPlan:
    """Return clients of whom none waits for an answer: engines keep step, and nothing else changes."""
    n = len(requests)
    none = np.zeros(n, np.int64)
    return ClientPlan(
        arrives=np.ones(n, bool),
        held=none[:0],
        due_us=none,
        think_us=none,
        waiting=none[:0],
        awaited=none[:0],
        session=none - 1,
    )


def assert_same_run(ours: ClusterSimulation, theirs: ClusterSimulation) -> None:
    assert_same_outcomes(ours.outcomes, theirs.outcomes)
    for name in ("instance", "exit", "admitted_us", "dispatched_us", "routed_us"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)


def seen_at_once(pick: Pick) -> LatencyModel:
    """Return a model whose tokens are seen as they are made: a loop's places are then handed on in one order."""
    return replace(any_model(pick), alpha2=0)


open_cases = cases(model=any_model, impatient=True, costly=True)


@examples(100)
@given(open_cases, st.integers(2, 4))
def test_round_robin_over_n_is_n_single_runs_whose_steps_scatter_by_themselves(
    case: Case, num_instances: int
) -> None:
    ours = simulate_cluster(ClusterWork(requests=case.requests), alike(case, num_instances))
    order = np.argsort(case.requests.arrival_us, kind="stable")
    for number in range(num_instances):
        rows = np.sort(order[number::num_instances])
        scatters_alike = number == 0 or getattr(case.latency, "sigma", 0.0) == 0.0
        if len(rows) and scatters_alike:
            alone = simulate(case.requests.take(rows), case.config, case.latency)
            assert_same_outcomes(rows_of(ours.outcomes, rows), alone.outcomes)
            assert (ours.instance[rows] == number).all()


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_engines_that_run_ahead_and_engines_that_keep_step_are_one_cluster(policy: RoutingPolicy) -> None:
    @examples(25)
    @given(open_cases, st.integers(1, 4), st.sampled_from([0, 0, 70, 1000]), st.sampled_from([0, 40]))
    def is_one(case: Case, num_instances: int, interval_us: int, latency_us: int) -> None:
        config = alike(
            case,
            num_instances,
            routing=policy,
            snapshot_interval_us=SnapshotIntervals.every(interval_us),
            latency=PipelineLatency(admission_us=latency_us, routing_us=latency_us),
        )
        ahead = simulate_cluster(ClusterWork(requests=case.requests), config, records_decisions=True)
        stepping = simulate_cluster(
            ClusterWork(requests=case.requests, clients=keeping_step(case.requests)),
            config,
            records_decisions=True,
        )
        assert_same_run(ahead, stepping)
        assert ahead.decisions is not None
        assert stepping.decisions is not None
        for name in ("scores", "num_in_flight", "num_waiting", "num_running", "kv_usage"):
            ours, theirs = getattr(ahead.decisions, name), getattr(stepping.decisions, name)
            np.testing.assert_array_equal(ours, theirs, err_msg=name)

    is_one()


@examples(50)
@given(open_cases, st.integers(1, 3), st.sampled_from(POLICIES))
def test_jumps_change_nothing_in_a_cluster(case: Case, num_instances: int, policy: RoutingPolicy) -> None:
    config = alike(case, num_instances, routing=policy)
    work = ClusterWork(requests=case.requests)
    assert_same_run(simulate_cluster(work, config), simulate_cluster(work, config, coalesce=False))


@examples(100)
@given(cases(model=seen_at_once), st.integers(1, 4), st.sampled_from([0, 3, 500]))
def test_a_closed_loop_over_one_is_the_engine_s_own(case: Case, concurrency: int, think_us: int) -> None:
    plan = closed_loop(len(case.requests), concurrency=concurrency, think_time_us=think_us)
    ours = simulate_by_events(ClusterWork(requests=case.requests, clients=plan), alike(case))
    theirs = simulate(case.requests, case.config, case.latency, closed_loop=(concurrency, think_us))
    assert_same_outcomes(ours.outcomes, theirs.outcomes)


@examples(100)
@given(cases(model=seen_at_once), st.integers(1, 4))
def test_a_cap_over_one_is_the_engine_s_own(case: Case, most: int) -> None:
    plan = capped(case.requests.arrival_us, max_concurrency=most)
    ours = simulate_by_events(ClusterWork(requests=case.requests, clients=plan), alike(case))
    theirs = simulate(case.requests, case.config, case.latency, max_concurrency=most)
    assert_same_outcomes(ours.outcomes, theirs.outcomes)


@pytest.mark.parametrize("keeps_step", [False, True])
def test_who_gave_up_while_its_grammar_compiled_waits_nowhere(keeps_step: bool) -> None:
    """The first comes at 100 ms, gives up at 110, and would have joined at 170; the second runs from 150 on."""
    requests = replace(
        requests_of([{"arrival_us": ms * 1000, "prompt": 8, "output": 3} for ms in (100, 150, 200)]),
        deadline_us=np.array([110_000, -1, -1]),
        is_guided=np.array([True, False, False]),
    )
    engine = EngineConfig(guided_compile_us=70_000, num_gpu_blocks=100, async_scheduling=False)
    slow = Blackbox(beta0=100_000)
    work = ClusterWork(requests=requests, clients=keeping_step(requests) if keeps_step else None)
    config = ClusterConfig(pools=(Pool(engine=engine, latency=slow),))
    ours = simulate_cluster(work, config, records_decisions=True, points=100)
    assert ours.decisions is not None
    assert ours.decisions.num_waiting[:, 0].tolist() == [0, 0, 0]
    assert ours.decisions.num_running[:, 0].tolist() == [0, 0, 1]
    assert ours.over_time is not None
    between = (ours.over_time.time_us > 170_000) & (ours.over_time.time_us <= 200_000)
    assert between.any()
    assert not ours.over_time.num_waiting[between].any()
    alone = Engine(requests, engine, slow)
    alone.advance(170_000)
    assert alone.reported(170_000)[:2] == (0, 1)


def test_a_refusal_lets_the_next_one_go_after_the_answers_that_came_before_it() -> None:
    """Two may be under way; the second is refused after 500 µs, and the first has its answer long before."""
    requests = Requests(
        arrival_us=np.zeros(4, np.int64),
        prompt_tokens=np.array([8, 900, 8, 8]),
        output_tokens=np.full(4, 1),
        priority=np.zeros(4, np.int64),
        hash_offsets=np.zeros(5, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    engine = EngineConfig(max_model_len=256, num_gpu_blocks=100, async_scheduling=False)
    pool = Pool(engine=engine, latency=Blackbox(alpha1=0.5, beta0=10))
    work = ClusterWork(requests=requests, clients=capped(requests.arrival_us, max_concurrency=2))
    ours = simulate_by_events(work, ClusterConfig(pools=(pool,))).outcomes
    assert_same_outcomes(ours, simulate(requests, engine, pool.latency, max_concurrency=2).outcomes)
    assert ours.arrival_us.tolist() == [0, 0, 14, 28]
    assert ours.queued_us[1] == 450


@pytest.mark.parametrize("order", ["drawn", "falling"])
def test_thousands_that_join_in_another_order_than_they_come_join_as_in_the_engine(order: str) -> None:
    """All come at once, the front end takes 0 to 900 µs over each: the list of who is to join is searched by places."""
    rng = np.random.default_rng(5)
    prompt = rng.integers(1, 900, 6000)
    requests = replace(some_requests(6000, per_s=1e9), arrival_us=np.sort(rng.integers(0, 40, 6000)))
    prompt = prompt if order == "drawn" else np.sort(prompt)[::-1]
    requests = replace(requests, prompt_tokens=prompt, output_tokens=np.full(6000, 2))
    pool = Pool(
        engine=EngineConfig(max_num_seqs=64, num_gpu_blocks=4000), latency=Blackbox(alpha1=1, beta0=3)
    )
    ours = simulate_by_events(ClusterWork(requests=requests), ClusterConfig(pools=(pool,)))
    assert_same_outcomes(ours.outcomes, simulate(requests, pool.engine, pool.latency).outcomes)


def some_requests(
    number: int, *, per_s: float, prompt: int = 200, output: int = 40, seed: int = 1
) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests(
        arrival_us=np.cumsum(rng.exponential(1e6 / per_s, number)).astype(np.int64),
        prompt_tokens=np.maximum(1, rng.normal(prompt, prompt / 2, number)).astype(np.int64),
        output_tokens=np.maximum(1, rng.normal(output, output / 2, number)).astype(np.int64),
        priority=np.zeros(number, np.int64),
        hash_offsets=np.zeros(number + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


def cluster(instances: int = 3, **settings: object) -> ClusterConfig:
    engine = EngineConfig(max_num_seqs=8, num_gpu_blocks=400, max_model_len=4096)
    pool = Pool(engine=engine, latency=LATENCY, instances=instances)
    return ClusterConfig(pools=(pool,), **settings)  # type: ignore[arg-type] # checked by the class


GATEWAYS = {
    "queue": FlowControl(detector="concurrency", max_concurrency=4),
    "small queue": FlowControl(detector="concurrency", max_concurrency=4, capacity=20),
    "shedding": FlowControl(detector="concurrency", max_concurrency=4, capacity=20, sheds=True, evicts=True),
    "impatient": FlowControl(detector="utilization", queue_threshold=1, ttl_us=300_000),
}


def test_a_queued_request_goes_after_the_very_step_that_makes_room() -> None:
    """One seat, and one that waits is enough: each goes when the step has started that takes in the one before.

    The first runs from 0 to 300; the second, which has waited at the instance since 100, is in the step from 300 on.
    Three steps compute its prompt, and nobody hears of the first two.
    """
    rows = [{"arrival_us": 0, "prompt": prompt, "output": 3} for prompt in (1, 30, 1)]
    engine = EngineConfig(
        max_num_seqs=1, max_num_batched_tokens=10, num_gpu_blocks=100, async_scheduling=False
    )
    case = Case(requests=requests_of(rows), config=engine, latency=Blackbox(beta0=100))
    ours = simulate_cluster(
        ClusterWork(requests=case.requests), alike(case, flow_control=FlowControl(queue_threshold=1))
    )
    assert ours.dispatched_us.tolist() == [0, 100, 400]


@pytest.mark.parametrize("name", GATEWAYS)
def test_every_request_leaves_by_one_way_and_every_block_comes_back(name: str) -> None:
    requests = some_requests(600, per_s=200)
    classes = np.random.default_rng(3).choice([4, 3, -1, -3], len(requests)).astype(np.int64)
    ours = simulate_cluster(
        ClusterWork(requests=requests, slo_priority=classes),
        cluster(flow_control=GATEWAYS[name], routing=LeastLoaded()),
    )
    counts = {way: number for way, number in ours.num_by_exit.items() if number}
    assert sum(counts.values()) == len(requests)
    expected = {
        "queue": {Exit.COMPLETED},
        "small queue": {Exit.COMPLETED, Exit.QUEUE_FULL},
        "shedding": {Exit.COMPLETED, Exit.QUEUE_FULL, Exit.SHED, Exit.EVICTED},
        "impatient": {Exit.COMPLETED, Exit.EXPIRED},
    }
    assert set(counts) == expected[name]
    for instance in ours.instances:
        state = instance.written.state
        assert state.engine[0].queues.num_free_blocks == len(state.blocks) - 1
    sent = ours.instance >= 0
    assert (ours.routed_us[sent] >= ours.dispatched_us[sent]).all()
    assert (ours.dispatched_us[sent] >= ours.admitted_us[sent]).all()
    assert (ours.admitted_us >= requests.arrival_us).all()
    done = ours.exit == Exit.COMPLETED
    assert (ours.outcomes.queued_us[done] >= ours.routed_us[done]).all()
    if name == "shedding":
        assert (classes[ours.exit == Exit.EVICTED] < 0).all()
        assert (classes[ours.exit == Exit.SHED] < 0).all()


def test_the_queue_in_front_never_lets_more_through_than_it_may() -> None:
    requests = some_requests(300, per_s=500)
    flow = FlowControl(detector="concurrency", max_concurrency=2)
    ours = simulate_cluster(ClusterWork(requests=requests), cluster(flow_control=flow, routing=LeastLoaded()))
    starts, ends = np.sort(ours.routed_us), np.sort(ours.outcomes.last_token_us)
    under_way = np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")
    assert under_way.max() == 3 * 2


def test_critical_requests_overtake_in_the_gateway_s_queue() -> None:
    requests = some_requests(400, per_s=300)
    classes = np.where(np.arange(400) % 4 == 0, 4, -1)
    means = {}
    for order in ("fifo", "priority"):
        flow = FlowControl(detector="concurrency", max_concurrency=8, order=order)  # type: ignore[arg-type]
        ours = simulate_cluster(
            ClusterWork(requests=requests, slo_priority=classes),
            cluster(flow_control=flow, routing=LeastLoaded()),
        )
        ttft_us = ours.outcomes.first_token_us - ours.outcomes.arrival_us
        means[order] = (ttft_us[classes == 4].mean(), ttft_us[classes == -1].mean())
    assert means["priority"][0] < 0.2 * means["fifo"][0]
    assert means["priority"][1] > means["fifo"][1]


def test_admission_looks_at_the_fleet_as_it_is() -> None:
    requests = some_requests(400, per_s=300)
    classes = np.where(np.arange(400) % 2 == 0, 4, -1)
    work = ClusterWork(requests=requests, slo_priority=classes)
    for admission in (TierShed(max_load=8), UtilizationShed(queue_threshold=1)):
        ours = simulate_cluster(work, cluster(admission=admission, routing=LeastLoaded()))
        rejected = ours.exit == Exit.REJECTED
        assert 0 < rejected.sum() < 200
        assert (classes[rejected] == -1).all()
    bucket = simulate_cluster(work, cluster(admission=TokenBucket(capacity=1000, refill_per_s=10_000)))
    admitted = bucket.exit != Exit.REJECTED
    spent = np.cumsum(requests.prompt_tokens * admitted)
    assert (spent <= 1000 + requests.arrival_us / 100 + 1).all()


def test_a_round_of_a_session_waits_for_the_answer_before_it() -> None:
    requests = some_requests(300, per_s=100)
    session, number = np.arange(300) // 5, np.arange(300) % 5
    think_us = np.full(300, 20_000)
    plan = sessions(session, number, think_us=think_us, concurrency=7)
    ours = simulate_cluster(ClusterWork(requests=requests, session=session, clients=plan), cluster())
    arrival_us, end_us = ours.outcomes.arrival_us, ours.outcomes.last_token_us
    later = np.flatnonzero(number > 0)
    np.testing.assert_array_equal(arrival_us[later], end_us[later - 1] + 20_000)
    first, last = arrival_us[number == 0], end_us[number == 4]
    assert max(int((first <= t).sum() - (last <= t - 20_000).sum()) for t in first) == 7


def test_a_wave_begins_when_the_one_before_it_is_answered() -> None:
    requests = some_requests(60, per_s=1e5)
    wave = np.arange(60) // 20
    plan = waves(wave, pause_us=1000)
    ours = simulate_cluster(ClusterWork(requests=requests, clients=plan), cluster())
    for number in (1, 2):
        began = ours.outcomes.arrival_us[wave == number]
        assert (began == ours.outcomes.last_token_us[wave == number - 1].max() + 1000).all()


def test_a_forced_decision_changes_nothing_before_it() -> None:
    requests = some_requests(300, per_s=80)
    config = cluster(routing=LeastLoaded())
    plain = simulate_cluster(ClusterWork(requests=requests), config)
    forced = np.full(300, -1)
    forced[150] = (plain.instance[150] + 1) % 3
    changed = simulate_cluster(ClusterWork(requests=requests), config, forced=forced)
    assert changed.instance[150] == forced[150]
    np.testing.assert_array_equal(changed.instance[:150], plain.instance[:150])
    ended = plain.outcomes.last_token_us < plain.routed_us[150]
    assert ended.sum() > 100
    assert_same_outcomes(rows_of(changed.outcomes, ended), rows_of(plain.outcomes, ended))
    assert (changed.outcomes.last_token_us != plain.outcomes.last_token_us).any()


def test_what_the_least_loaded_policy_saw_is_what_it_chose_by() -> None:
    requests = some_requests(300, per_s=80)
    ours = simulate_cluster(
        ClusterWork(requests=requests), cluster(routing=LeastLoaded()), records_decisions=True
    )
    log = ours.decisions
    assert log is not None
    assert len(log.decisions) == 300
    np.testing.assert_array_equal(log.decisions["instance"], np.argmin(log.num_in_flight, axis=1))
    np.testing.assert_array_equal(ours.instance[log.decisions["request"]], log.decisions["instance"])


def test_a_user_s_own_policy_is_asked_once_per_request() -> None:
    asked = []

    def fewest(fleet: object, request: object, _time_us: int) -> int:
        asked.append(request.number)  # type: ignore[attr-defined]
        return int(np.argmin(fleet.num_in_flight))  # type: ignore[attr-defined]

    requests = some_requests(200, per_s=80)
    own = simulate_cluster(ClusterWork(requests=requests), cluster(routing=OwnPolicy(choose=fewest)))
    built_in = simulate_cluster(ClusterWork(requests=requests), cluster(routing=LeastLoaded()))
    assert asked == list(range(200))
    np.testing.assert_array_equal(own.instance, built_in.instance)


@pytest.mark.parametrize("answer", [99, None, True, 1 / 3])
def test_a_user_s_own_policy_that_names_no_instance_is_told_so(answer: object) -> None:
    policy = OwnPolicy(choose=lambda _fleet, _request, _time_us: answer)  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidConfig, match=r"for request 0 at test_cluster\.py:\d+, expected"):
        simulate_cluster(ClusterWork(requests=some_requests(3, per_s=1)), cluster(routing=policy))


def test_a_user_s_own_policy_that_fails_is_told_with_its_request() -> None:
    def fails(_fleet: object, request: object, _time_us: int) -> int:
        return 1 // (2 - request.number)  # type: ignore[attr-defined,no-any-return]

    with pytest.raises(InvalidConfig, match="got ZeroDivisionError for request 2"):
        simulate_cluster(
            ClusterWork(requests=some_requests(5, per_s=1)), cluster(routing=OwnPolicy(choose=fails))
        )


def test_a_run_ends_with_its_last_answer_however_long_others_might_have_waited() -> None:
    requests = some_requests(100, per_s=50)
    ends = [
        simulate_cluster(
            ClusterWork(requests=requests),
            cluster(flow_control=FlowControl(detector="concurrency", max_concurrency=8, ttl_us=ttl_us)),
        )
        for ttl_us in (0, 60_000_000)
    ]
    assert ends[0].duration_us == ends[1].duration_us == ends[0].outcomes.last_token_us.max()


def test_stale_snapshots_herd() -> None:
    requests = some_requests(600, per_s=60)
    queue_depth = Weighted(scorers={"queue-depth": 1, "running-requests": 1})
    spread = []
    for interval_us in (0, 500_000):
        config = cluster(4, routing=queue_depth, snapshot_interval_us=SnapshotIntervals.every(interval_us))
        ours = simulate_cluster(ClusterWork(requests=requests), config)
        wait_us = ours.outcomes.scheduled_us - ours.outcomes.queued_us
        spread.append(wait_us.mean())
    assert spread[1] > 3 * spread[0]


def test_requests_of_an_adapter_go_where_it_is_in_use() -> None:
    requests = some_requests(400, per_s=60)
    adapter = np.random.default_rng(2).integers(0, 4, 400)
    shares = {}
    for name in ("lora-affinity", "load-balance"):
        config = cluster(4, routing=Weighted(scorers={name: 1}))
        ours = simulate_cluster(
            ClusterWork(requests=requests, adapter=adapter), config, records_decisions=True
        )
        pairs = np.bincount(ours.instance * 4 + adapter, minlength=16).reshape(4, 4)
        shares[name] = pairs.max(axis=0).sum() / 400
    assert shares["lora-affinity"] > 0.7
    assert shares["load-balance"] < 0.5


def test_pools_may_differ() -> None:
    fast = Pool(
        name="fast", engine=EngineConfig(max_model_len=4096), latency=Blackbox(beta0=2000), instances=1
    )
    slow = Pool(
        name="slow",
        engine=EngineConfig(max_model_len=300),
        latency=Blackbox(beta0=9000, alpha0=7),
        instances=2,
    )
    requests = some_requests(300, per_s=40)
    ours = simulate_cluster(ClusterWork(requests=requests), ClusterConfig(pools=(fast, slow)))
    for number, pool in enumerate((fast, slow, slow)):
        rows = np.flatnonzero(ours.instance == number)
        alone = simulate(requests.take(rows), pool.engine, pool.latency)
        assert_same_outcomes(rows_of(ours.outcomes, rows), alone.outcomes)
    assert ours.num_by_exit[Exit.REFUSED] > 0


def test_an_engine_that_gets_its_prompts_computed_elsewhere_encodes_nothing() -> None:
    """One request, 100 tokens of pictures at 5 µs: 500 µs more on the prefill side, none on the decode side."""
    engine = EngineConfig(async_scheduling=False, num_gpu_blocks=400, max_model_len=4096)
    moves = Disaggregation(kv_bytes_per_token=0, kv_base_latency_us=0)

    def of_cost(encoder_token_us: float) -> ClusterSimulation:
        costly = replace(engine, encoder_token_us=encoder_token_us)
        pools = tuple(
            Pool(engine=costly, latency=LATENCY, name=role, role=role) for role in ("prefill", "decode")
        )
        requests = replace(some_requests(1, per_s=1), encoder_tokens=np.array([100], np.int64))
        config = ClusterConfig(pools=pools, disaggregation=moves)
        return simulate_cluster(ClusterWork(requests=requests), config)

    free, costly = of_cost(0.0), of_cost(5.0)
    assert (costly.outcomes.last_token_us - free.outcomes.last_token_us).tolist() == [500]
    assert free.split is not None
    assert costly.split is not None
    assert (costly.split.prefilled_us - free.split.prefilled_us).tolist() == [500]


def erlang_c(servers: int, load: float) -> float:
    """Return the chance to wait in M/M/c (Erlang's second formula, by the recursion of his first)."""
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked / (1 - load / servers * (1 - blocked))


def single_seats(number: int, *, load: float, seed: int) -> tuple[Requests, EngineConfig, Blackbox]:
    """Return ``load`` requests a second, exponential service of 1 s in steps of 5 ms, and an engine of one seat."""
    rng = np.random.default_rng(seed)
    service = np.maximum(1, rng.exponential(200, number)).astype(np.int64)
    requests = replace(
        some_requests(number, per_s=load, seed=seed + 1000),
        prompt_tokens=np.ones(number, np.int64),
        output_tokens=service,
    )
    engine = EngineConfig(
        max_num_seqs=1, max_model_len=20_000, async_scheduling=False, enable_prefix_caching=False
    )
    return requests, engine, Blackbox(beta0=5000)


def test_one_queue_before_c_seats_is_m_m_c() -> None:
    servers, load = 4, 3.2
    means = []
    for seed in range(8):
        requests, engine, latency = single_seats(10_000, load=load, seed=seed)
        config = ClusterConfig(
            pools=(Pool(engine=engine, latency=latency, instances=servers),),
            routing=LeastLoaded(),
            flow_control=FlowControl(detector="concurrency", max_concurrency=1),
        )
        ours = simulate_cluster(ClusterWork(requests=requests), config)
        means.append((ours.dispatched_us - ours.outcomes.arrival_us)[1000:].mean() / 1e6)
    expected = erlang_c(servers, load) / (servers - load)
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert abs(np.mean(means) - expected) < 3 * error + 0.01 * expected


def test_the_power_of_two_choices_is_the_supermarket_model() -> None:
    """Mean time in the system in the limit of many servers: the sum of load^(2^i - 2) from i = 1 on."""
    load, servers = 0.9, 200
    requests, engine, latency = single_seats(60_000, load=load * servers, seed=5)
    means = {}
    for policy in (RandomChoice(), PowerOfTwo()):
        config = ClusterConfig(
            pools=(Pool(engine=engine, latency=latency, instances=servers),), routing=policy
        )
        ours = simulate_cluster(ClusterWork(requests=requests), config)
        e2e_us = ours.outcomes.last_token_us - ours.outcomes.arrival_us
        means[policy.name] = e2e_us[20_000:50_000].mean() / 1e6
    expected = sum(load ** (2**i - 2) for i in range(1, 12))
    assert means["power-of-two"] == pytest.approx(expected, rel=0.05)
    assert means["random"] > 2.5 * means["power-of-two"]
