"""Prefill and decode on different instances: what must hold under every policy, load and link, and the limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Requests, simulate
from sim.cluster.cluster_config import ClusterConfig, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.routing.routing_policies import (
    KvCost,
    LeastLoaded,
    OwnPolicy,
    PowerOfTwo,
    RoundRobin,
    RoutingPolicy,
    VllmDp,
    Weighted,
)
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.examples import examples
from tests.sim.cluster.test_cluster import POLICIES, assert_same_run, some_requests
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases

LINK = Disaggregation(kv_bytes_per_token=131072)
FREE = Disaggregation(kv_bytes_per_token=0, kv_base_latency_us=0)
LATENCY = Blackbox(alpha0=500, alpha2=3, beta0=6000, beta1=20, beta2=30)

links = st.builds(
    Disaggregation,
    kv_bandwidth_gbps=st.sampled_from([0.01, 0.5, 25]),
    kv_base_latency_us=st.sampled_from([0, 0, 30, 700]),
    contention=st.booleans(),
    kv_bytes_per_token=st.sampled_from([0, 100, 2000]),
    decider=st.sampled_from(["always", "always", "prefix-threshold"]),
    prefix_threshold=st.sampled_from([0, 3, 16]),
)
open_cases = cases(model=any_model, impatient=True)


def split(case: Case, prefill: int, decode: int, **settings: object) -> ClusterConfig:
    """Return prefill and decode instances that are configured as the case's."""
    pools = (
        Pool(engine=case.config, latency=case.latency, instances=decode, name="d", role="decode"),
        Pool(engine=case.config, latency=case.latency, instances=prefill, name="p", role="prefill"),
    )
    return ClusterConfig(pools=pools, **settings)  # type: ignore[arg-type] # checked by the class


def assert_nothing_is_lost(work: ClusterWork, run: ClusterSimulation) -> None:
    """Check what must hold of every run: ways out, transfers, causality, and blocks where nobody is stuck."""
    n, parts, outcomes = len(work.requests), run.split, run.outcomes
    assert parts is not None
    assert sum(run.num_by_exit.values()) == n
    assert parts.num_started == parts.num_ended == int((parts.transfer_end_us >= 0).sum())
    done = run.exit == Exit.COMPLETED
    is_split = parts.prefill_instance >= 0
    moved = parts.transfer_end_us >= 0
    assert (moved <= is_split).all()
    assert (moved[done & is_split]).all()
    chain = [
        outcomes.scheduled_us,
        parts.prefilled_us,
        parts.transfer_start_us,
        parts.transfer_end_us,
        outcomes.first_token_us,
        outcomes.last_token_us,
    ]
    assert (outcomes.arrival_us <= run.routed_us)[done].all()
    assert (run.routed_us <= outcomes.queued_us)[done].all()
    for cause, effect in pairwise(chain):
        assert (cause <= effect)[done & moved].all()
    if run.num_by_exit[Exit.UNDER_WAY] == 0:
        for instance in run.instances:
            engine, state = instance.written.state.engine[0], instance.written.state
            assert engine.queues.num_free_blocks == len(state.blocks) - 1
            assert not state.blocks["ref_cnt"].any()
            assert engine.queues.num_free_slots == len(state.block_table)
            kv = engine.kv_transfers
            assert kv.num_holding == kv.num_ready == kv.num_delayed == 0
            assert kv.num_delivered == kv.num_polled == kv.num_applied


@examples(150)
@given(open_cases, st.integers(1, 2), st.integers(1, 3), links, st.sampled_from(POLICIES))
def test_transfers_that_start_end_and_nobody_and_no_block_is_lost(
    case: Case, prefill: int, decode: int, link: Disaggregation, policy: RoutingPolicy
) -> None:
    work = ClusterWork(requests=case.requests)
    config = split(case, prefill, decode, disaggregation=link, routing=policy)
    stepping = simulate_cluster(work, config, coalesce=False)
    assert_nothing_is_lost(work, stepping)
    jumping = simulate_cluster(work, config)
    assert_same_run(jumping, stepping)
    assert jumping.split is not None
    assert stepping.split is not None
    for name in (
        "prefill_instance",
        "prefilled_us",
        "transfer_start_us",
        "transfer_end_us",
        "transfer_blocks",
    ):
        ours, theirs = getattr(jumping.split, name), getattr(stepping.split, name)
        np.testing.assert_array_equal(ours, theirs, err_msg=name)


@examples(60)
@given(open_cases, st.integers(1, 2), st.integers(1, 3), st.sampled_from(POLICIES))
def test_with_the_decider_never_the_decode_pool_is_a_cluster_of_its_own(
    case: Case, prefill: int, decode: int, policy: RoutingPolicy
) -> None:
    work = ClusterWork(requests=case.requests)
    config = split(case, prefill, decode, disaggregation=Disaggregation(decider="never"), routing=policy)
    shared = Pool(engine=case.config, latency=case.latency, instances=decode, name="d")
    alone = ClusterConfig(pools=(shared,), routing=policy)
    ours, theirs = simulate_cluster(work, config), simulate_cluster(work, alone)
    assert_same_run(ours, theirs)
    assert ours.split is None


@examples(60)
@given(cases(), st.integers(1, 2))  # of no model whose steps scatter by their numbers: an empty one counts
def test_with_room_for_all_and_free_links_the_prefill_side_is_an_engine_that_makes_one_token(
    case: Case, decode: int
) -> None:
    case = case.under(num_gpu_blocks=0)
    run = simulate_cluster(ClusterWork(requests=case.requests), split(case, 1, decode, disaggregation=FREE))
    assert run.split is not None
    went = np.flatnonzero(run.split.prefill_instance >= 0)  # the others' front end refused them
    sent = case.requests.take(went)
    one_token = replace(sent, output_tokens=np.minimum(sent.output_tokens, 1))
    alone = simulate(one_token, case.config, case.latency).outcomes
    np.testing.assert_array_equal(run.outcomes.scheduled_us[went], alone.scheduled_us)
    np.testing.assert_array_equal(run.split.prefilled_us[went], alone.last_token_us)


def lone(prompt: int, output: int) -> Requests:
    """Return one request that arrives at 1000 µs."""
    return Requests(
        arrival_us=np.array([1000]),
        prompt_tokens=np.array([prompt]),
        output_tokens=np.array([output]),
        priority=np.zeros(1, np.int64),
        hash_offsets=np.zeros(2, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )


@pytest.mark.parametrize("is_async", [False, True])
def test_a_lone_request_s_first_token_has_every_part_in_it(is_async: bool) -> None:
    engine = EngineConfig(async_scheduling=is_async)
    pools = tuple(
        Pool(engine=engine, latency=LATENCY, name=role, role=role) for role in ("prefill", "decode")
    )
    run = simulate_cluster(
        ClusterWork(requests=lone(100, 3)), ClusterConfig(pools=pools, disaggregation=LINK)
    )
    prefilled_us = (
        1000 + 500 + 6000 + 20 * 100 + 3
    )  # queue delay, a step of 100 tokens, the way to the client
    asked_us = prefilled_us + 500
    transfer_us = 50 + -(-7 * 16 * 131072 // 25000)  # seven blocks at 25 GB/s
    step_us = 6000 + 20  # the last token of the prompt is computed again
    assert run.split is not None
    assert run.split.prefilled_us[0] == prefilled_us
    assert run.split.transfer_start_us[0] == asked_us
    assert run.split.transfer_end_us[0] == asked_us + transfer_us
    assert run.outcomes.first_token_us[0] == asked_us + transfer_us + step_us + 3
    assert run.outcomes.last_token_us[0] == run.outcomes.first_token_us[0] + 2 * (6000 + 30 + 3)


def test_transfers_that_meet_on_a_link_take_longer_unless_they_do_not_contend() -> None:
    rows = [lone(1000, 2) for _ in range(4)]
    together = Requests(
        **{
            name: np.concatenate([getattr(each, name) for each in rows])
            for name in ("arrival_us", "prompt_tokens", "output_tokens", "priority")
        },
        hash_offsets=np.zeros(5, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    engine = EngineConfig(max_num_batched_tokens=8192)
    pools = (
        Pool(engine=engine, latency=LATENCY, name="p", role="prefill"),
        Pool(engine=engine, latency=LATENCY, name="d", role="decode"),
    )
    lasted = {}
    for contention in (True, False):
        link = replace(LINK, contention=contention)
        run = simulate_cluster(
            ClusterWork(requests=together), ClusterConfig(pools=pools, disaggregation=link)
        )
        assert run.split is not None
        lasted[contention] = run.split.transfer_end_us - run.split.transfer_start_us - 50
    alone = -(-63 * 16 * 131072 // 25000)
    assert (lasted[False] == alone).all()
    assert abs(lasted[True] - 4 * alone).max() <= 4


def test_a_prompt_that_the_decode_instance_has_is_not_sent_away() -> None:
    n, blocks = 20, 12
    ids = np.tile(np.arange(blocks), n)
    requests = Requests(
        arrival_us=np.arange(n) * 500_000,
        prompt_tokens=np.full(n, blocks * 16 + 5),
        output_tokens=np.full(n, 4),
        priority=np.zeros(n, np.int64),
        hash_offsets=np.arange(n + 1) * blocks,
        hash_ids=ids,
    )
    pools = tuple(
        Pool(engine=EngineConfig(num_gpu_blocks=500), latency=LATENCY, name=role, role=role)
        for role in ("prefill", "decode")
    )
    for threshold, expected in ((5, 1), (4, n), (blocks * 16 + 5, 0)):
        link = replace(LINK, decider="prefix-threshold", prefix_threshold=threshold)
        run = simulate_cluster(
            ClusterWork(requests=requests), ClusterConfig(pools=pools, disaggregation=link)
        )
        assert run.split is not None
        assert int((run.split.prefill_instance >= 0).sum()) == expected
        assert_nothing_is_lost(ClusterWork(requests=requests), run)


@pytest.mark.parametrize(
    "policy", [RoundRobin(), LeastLoaded(), PowerOfTwo(), Weighted(), VllmDp(), KvCost()]
)
@pytest.mark.parametrize("interval_us", [0, 50_000])
def test_both_decisions_are_written_down_and_each_among_its_own(
    policy: RoutingPolicy, interval_us: int
) -> None:
    engine = EngineConfig(max_num_seqs=8, num_gpu_blocks=400, max_model_len=4096)
    pools = (
        Pool(engine=engine, latency=LATENCY, instances=2, name="p", role="prefill"),
        Pool(engine=engine, latency=LATENCY, instances=3, name="d", role="decode"),
        Pool(engine=engine, latency=LATENCY, instances=1, name="s"),
    )
    config = ClusterConfig(
        pools=pools,
        disaggregation=LINK,
        routing=policy,
        snapshot_interval_us=SnapshotIntervals.every(interval_us),
    )
    requests = some_requests(120, per_s=60)
    run = simulate_cluster(ClusterWork(requests=requests), config, records_decisions=True)
    assert_nothing_is_lost(ClusterWork(requests=requests), run)
    assert run.decisions is not None
    assert run.split is not None
    rows = run.decisions.decisions
    main = rows[rows["is_prefill"] == 0]
    prefill = rows[rows["is_prefill"] == 1]
    assert len(main) == len(requests)
    assert set(main["instance"]) <= {2, 3, 4, 5}
    assert set(prefill["instance"]) == {0, 1}
    np.testing.assert_array_equal(run.instance[main["request"]], main["instance"])
    np.testing.assert_array_equal(run.split.prefill_instance[prefill["request"]], prefill["instance"])
    in_whole = run.split.prefill_instance < 0
    assert set(run.instance[in_whole]) <= {5}  # a shared instance serves requests whole
    assert (run.instance[~in_whole] < 5).all()


def test_what_is_evicted_or_given_up_on_its_way_leaves_nothing_behind() -> None:
    requests = some_requests(400, per_s=150, prompt=400)
    rng = np.random.default_rng(3)
    requests = replace(
        requests, deadline_us=requests.arrival_us + rng.integers(20_000, 400_000, len(requests))
    )
    classes = rng.choice([4, 3, -1, -3], len(requests)).astype(np.int64)
    engine = EngineConfig(max_num_seqs=8, num_gpu_blocks=300, max_model_len=4096)
    pools = (
        Pool(engine=engine, latency=LATENCY, name="p", role="prefill"),
        Pool(engine=engine, latency=LATENCY, instances=2, name="d", role="decode"),
    )
    config = ClusterConfig(
        pools=pools,
        disaggregation=replace(LINK, kv_bandwidth_gbps=1.0),
        flow_control=FlowControl(detector="concurrency", max_concurrency=12, evicts=True),
        routing=LeastLoaded(),
    )
    work = ClusterWork(requests=requests, slo_priority=classes)
    run = simulate_cluster(work, config)
    assert_nothing_is_lost(work, run)
    assert run.num_by_exit[Exit.EVICTED] > 0
    assert run.num_by_exit[Exit.TIMED_OUT] > 20
    assert run.split is not None
    gone = run.exit == Exit.TIMED_OUT
    assert (gone & (run.split.prefilled_us < 0) & (run.split.prefill_instance >= 0)).any()  # while prefilling
    assert (gone & (run.split.prefilled_us >= 0)).any()


def test_the_same_run_twice_is_the_same_run() -> None:
    requests = some_requests(200, per_s=60)
    pools = tuple(
        Pool(engine=EngineConfig(num_gpu_blocks=300), latency=LATENCY, instances=2, name=role, role=role)
        for role in ("prefill", "decode")
    )
    config = ClusterConfig(pools=pools, disaggregation=LINK, routing=PowerOfTwo())
    once, again = (simulate_cluster(ClusterWork(requests=requests), config) for _ in range(2))
    assert_same_outcomes(once.outcomes, again.outcomes)
    assert_same_run(once, again)


ENGINE = EngineConfig(num_gpu_blocks=300)


def pools_of(*roles: str, engine: EngineConfig = ENGINE) -> tuple[Pool, ...]:
    return tuple(Pool(engine=engine, latency=LATENCY, name=role, role=role) for role in roles)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pools", "settings", "complaint"),
    [
        (pools_of("prefill"), {"disaggregation": LINK}, "got role prefill without decode"),
        (pools_of("prefill", "decode"), {}, "got none with prefill and decode pools"),
        (pools_of("shared"), {"disaggregation": LINK}, "got it without prefill and decode pools"),
        (
            pools_of("prefill", "decode"),
            {"disaggregation": Disaggregation()},
            "disaggregation.kv_bytes_per_token: got nothing",
        ),
        (
            pools_of("prefill", "decode"),
            {"disaggregation": LINK, "routing": OwnPolicy(choose=lambda *_: 0)},
            "expected a built-in policy with disaggregation",
        ),
        (
            pools_of("prefill", "decode", engine=replace(ENGINE, num_cpu_blocks=10)),
            {"disaggregation": LINK},
            "engine.num_cpu_blocks: 10 cannot be combined with a prefill pool",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    pools: tuple[Pool, ...], settings: dict[str, object], complaint: str
) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        ClusterConfig(pools=pools, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("decider", "sometimes"), ("kv_bandwidth_gbps", 0), ("kv_base_latency_us", -1), ("contention", 1)],
)
def test_a_bad_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"^{name}: got "):
        Disaggregation(**{name: value})  # type: ignore[arg-type]


def test_nothing_is_forced_onto_a_prefill_instance() -> None:
    config = ClusterConfig(pools=pools_of("prefill", "decode"), disaggregation=LINK)
    with pytest.raises(InvalidConfig, match="an instance that decodes"):
        simulate_cluster(ClusterWork(requests=lone(10, 2)), config, forced=np.zeros(1, np.int64))
