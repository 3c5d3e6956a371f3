"""A cluster that is fed while it runs against the same cluster that knows everything beforehand."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Requests
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.gateway.admission import (
    AdmissionPolicy,
    AlwaysAdmit,
    TenantBudget,
    TierShed,
    TokenBucket,
    UtilizationShed,
)
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.infrastructure.infrastructure_config import Autoscaler, Failure, Failures, Retries
from sim.cluster.live.cluster import LiveCluster
from sim.cluster.live.writing import RequestOrigin
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.routing.routing_policies import (
    CacheAware,
    KvCost,
    LeastLoaded,
    OwnPolicy,
    RoundRobin,
    RoutingPolicy,
    Session,
    VllmDp,
    Weighted,
)
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.examples import examples
from tests.sim.cluster.run.changes.test_operations import Fleet, fleets
from tests.sim.cluster.test_cluster import POLICIES, alike, cluster, keeping_step
from tests.sim.cluster.transfer.test_disaggregation import links, split
from tests.sim.strategies import Case, any_model, cases, requests_of

PRIORITIES = (4, 3, -1, -3)
NUM_SESSIONS, TENANTS = 4, ("a", "b")
BOUNDED = 300
"""KV blocks where a drawn cache is unbounded: its size, which routers see, depends on what is known beforehand."""

open_cases = cases(model=any_model)


@dataclass
class Heard:
    """What a client heard of one request."""

    instance: int | None = None
    tokens: list[int] = field(default_factory=list)
    way: Exit = Exit.UNDER_WAY


def work_of(requests: Requests, seed: int = 1) -> ClusterWork:
    """Return requests in the order in which they arrive, each with a sender; engines keep step."""
    requests = requests.take(np.argsort(requests.arrival_us, kind="stable"))
    rng, n = np.random.default_rng(seed), len(requests)
    priority = rng.choice(PRIORITIES, n).astype(np.int64)
    priority[: len(PRIORITIES)] = PRIORITIES[:n]  # so that the gateway's queue has a band of each
    return ClusterWork(
        requests=requests,
        session=rng.integers(-1, NUM_SESSIONS, n),
        tenant=rng.integers(-1, len(TENANTS), n),
        tenants=TENANTS,
        slo_priority=priority,
        slo_target_us=rng.choice([-1, 50, 4000], n).astype(np.int64),
        clients=keeping_step(requests),
    )


def bounded(case: Case) -> Case:
    return case if case.config.num_gpu_blocks else case.under(num_gpu_blocks=BOUNDED)


def live_of(config: ClusterConfig, work: ClusterWork, *, num_rows: int) -> LiveCluster:
    assert work.slo_priority is not None
    return LiveCluster(
        config,
        num_keys=int(work.requests.hash_ids.max(initial=0)) + 1,
        num_sessions=NUM_SESSIONS,
        tenants=TENANTS,
        priorities=work.slo_priority.tolist() or [3],
        num_rows=num_rows,
    )


def fed(
    config: ClusterConfig,
    work: ClusterWork,
    *,
    until_us: int,
    looks: Sequence[int] = (),
    num_rows: int = 1024,
    lets_go: bool = True,
) -> list[Heard]:
    """Return what each client hears until a time; ``looks``: times at which somebody else lets time pass."""
    live = live_of(config, work, num_rows=num_rows)
    requests, heard = work.requests, [Heard() for _ in range(len(work.requests))]
    looks = sorted(looks)

    def listen(now_us: int) -> None:
        for number, at_us in live.tokens(now_us):
            assert at_us <= now_us
            heard[number].tokens.append(at_us)
            heard[number].instance = live.instance_of(number)
            if len(heard[number].tokens) == length_of(number):
                heard[number].way = Exit.COMPLETED
                if lets_go:
                    live.forget(number)
        for number, way in live.exits():
            heard[number].way, heard[number].instance = way, live.instance_of(number)
            if lets_go:
                live.forget(number)

    def length_of(number: int) -> int:
        return min(
            int(requests.output_tokens[number]), most_tokens(config, int(requests.prompt_tokens[number]))
        )

    def until(time_us: int) -> None:
        while (next_us := live.next_time_us()) is not None and next_us <= time_us:
            at = bisect.bisect_left(looks, next_us)
            for early_us in looks[max(0, at - 1) : at]:
                listen(early_us)
            listen(next_us)

    for row in range(len(requests)):
        now_us = int(requests.arrival_us[row]) - 1
        until(now_us)
        first = requests.hash_starts[row]
        end = first + requests.num_hashes[row]
        number, arrival_us = live.submit(
            now_us,
            prompt_tokens=int(requests.prompt_tokens[row]),
            output_tokens=int(requests.output_tokens[row]),
            priority=int(requests.priority[row]),
            hash_ids=requests.hash_ids[first:end].tolist(),
            sender=RequestOrigin(*(int(column[row]) for column in senders_of(work))),
        )
        assert (number, arrival_us) == (row, now_us + 1)
    until(until_us)
    return heard


def most_tokens(config: ClusterConfig, prompt_tokens: int) -> int:
    """Return how long an answer may be; all engines of a drawn cluster are alike."""
    engine = config.pools[0].engine
    if engine.frontend == "openai":
        return engine.max_model_len - prompt_tokens
    return max(1, engine.max_model_len - prompt_tokens)


def senders_of(work: ClusterWork) -> list[np.ndarray]:
    columns = [work.session, work.tenant, work.slo_priority, work.slo_target_us]
    assert all(column is not None for column in columns)
    return columns  # type: ignore[return-value] # just checked


def tokens_of(run: ClusterSimulation, number: int) -> list[list[int]]:
    """Return the times of each request's tokens on the instances that answer."""
    times: list[list[int]] = [[] for _ in range(number)]
    for place, instance in enumerate(run.instances):
        rows, at_us = instance.written.tokens()
        for row, time_us in zip(rows.tolist(), at_us.tolist(), strict=True):
            if run.instance[row] == place:
                times[row].append(time_us)
    return times


def assert_same(heard: list[Heard], run: ClusterSimulation) -> None:
    """Compare what clients heard with what became of everybody; who never leaves has heard nothing else."""
    times = tokens_of(run, len(heard))
    for row, each in enumerate(heard):
        way = Exit(int(run.exit[row]))
        if way == Exit.UNDER_WAY:
            continue
        assert each.way == way, row
        if way in (Exit.COMPLETED, Exit.LOST, Exit.EVICTED) and each.instance is not None:
            assert each.instance == run.instance[row], row
        if way == Exit.COMPLETED:
            assert sorted(each.tokens) == sorted(times[row]), row
            assert each.tokens[0] == run.outcomes.first_token_us[row]
            assert each.tokens[-1] == run.outcomes.last_token_us[row]


MOST_US = 200_000
"""A longer run has snapshots seldom: each is an event, and a drawn one of seconds would have tens of thousands."""


def seldom(intervals: SnapshotIntervals) -> SnapshotIntervals:
    every = {each.name: getattr(intervals, each.name) for each in fields(intervals)}
    return SnapshotIntervals(**{name: every_us * 200 for name, every_us in every.items()})


def check(
    config: ClusterConfig, requests: Requests, *, looks: Sequence[float] = (), num_rows: int = 1024
) -> None:
    work = work_of(requests)
    run = simulate_cluster(work, config, record="tokens")
    if run.duration_us > MOST_US:
        config = replace(config, snapshot_interval_us=seldom(config.snapshot_interval_us))
        run = simulate_cluster(work, config, record="tokens")
    end_us = run.duration_us + 1
    heard = fed(
        config,
        work,
        until_us=end_us,
        looks=[int(each * end_us) for each in looks],
        num_rows=num_rows,
    )
    assert_same(heard, run)


moments = st.lists(st.floats(0, 1), max_size=6)
intervals = st.builds(
    SnapshotIntervals,
    queue=st.sampled_from([0, 0, 70, 1000]),
    kv=st.sampled_from([0, 0, 70, 300]),
    cache=st.sampled_from([0, 0, 210, 1000]),
)
FLOWS = (
    None,
    None,
    FlowControl(detector="concurrency", max_concurrency=2, order="fifo"),
    FlowControl(detector="concurrency", max_concurrency=2, fairness="round-robin"),
    FlowControl(detector="concurrency", max_concurrency=1, order="slo-deadline"),
    FlowControl(detector="concurrency", max_concurrency=3, lowest_ceiling=0.5),
    FlowControl(detector="concurrency", max_concurrency=1, capacity=3, band_capacity=2),
    FlowControl(detector="concurrency", max_concurrency=1, capacity=3, sheds=True, evicts=True),
    FlowControl(detector="concurrency", max_concurrency=1, ttl_us=300),
    FlowControl(queue_threshold=1, kv_threshold=0.6),
)
ADMISSIONS: tuple[AdmissionPolicy, ...] = (
    AlwaysAdmit(),
    AlwaysAdmit(),
    TokenBucket(capacity=60, refill_per_s=40_000),
    TierShed(max_load=1, min_priority=3),
    UtilizationShed(queue_threshold=1, kv_threshold=0.5),
    TenantBudget(budgets={"a": 0.1, "b": 0.3}, rejects_all=True),
)


@pytest.mark.parametrize("policy", [*POLICIES, Session()], ids=lambda policy: policy.name)
def test_every_policy_decides_as_in_the_whole_run(policy: RoutingPolicy) -> None:
    @examples(25)
    @given(
        open_cases,
        st.integers(1, 4),
        intervals,
        st.sampled_from(FLOWS),
        st.sampled_from(ADMISSIONS),
        st.sampled_from([0, 40]),
        st.sampled_from([0, 40]),
        moments,
    )
    def is_same(
        case: Case,
        num_instances: int,
        interval: SnapshotIntervals,
        flow: FlowControl | None,
        admission: AdmissionPolicy,
        admission_us: int,
        routing_us: int,
        looks: list[float],
    ) -> None:
        config = alike(
            bounded(case),
            num_instances,
            routing=policy,
            snapshot_interval_us=interval,
            flow_control=flow,
            admission=admission,
            latency=PipelineLatency(admission_us=admission_us, routing_us=routing_us),
        )
        check(config, case.requests, looks=looks)

    is_same()


@examples(100)
@given(
    open_cases,
    st.integers(1, 2),
    st.integers(1, 3),
    links,
    st.sampled_from(POLICIES),
    st.sampled_from(FLOWS),
    moments,
)
def test_prompts_are_handed_on_as_in_the_whole_run(
    case: Case,
    prefill: int,
    decode: int,
    link: Disaggregation,
    policy: RoutingPolicy,
    flow: FlowControl | None,
    looks: list[float],
) -> None:
    config = split(bounded(case), prefill, decode, disaggregation=link, routing=policy, flow_control=flow)
    check(config, case.requests, looks=looks)


def test_a_prompt_is_let_go_after_the_very_step_that_makes_room_in_the_whole_run_too() -> None:
    """Nothing else happens while the seventh request decodes: its first step there, from 163 to 194, makes room."""
    rows = [{"arrival_us": 0, "prompt": 1, "output": output} for output in (1, 1, 1, 1, 1, 2, 4)]
    requests = requests_of([*rows, {"arrival_us": 50, "prompt": 1, "output": 1}])
    engine = EngineConfig(
        max_num_seqs=4, max_num_batched_tokens=17, num_gpu_blocks=4, block_size=4, max_model_len=1000
    )
    case = Case(requests=requests, config=engine, latency=Blackbox(alpha0=0.7, beta0=31))
    config = split(
        case,
        2,
        1,
        disaggregation=Disaggregation(kv_bytes_per_token=0, kv_base_latency_us=0),
        flow_control=FlowControl(queue_threshold=1, kv_threshold=0.6),
    )
    check(config, requests)


@examples(100)
@given(fleets(with_clients=False), moments)
def test_instances_come_go_and_fail_as_in_the_whole_run(fleet: Fleet, looks: list[float]) -> None:
    pools = tuple(
        replace(pool, engine=replace(pool.engine, num_gpu_blocks=pool.engine.num_gpu_blocks or BOUNDED))
        for pool in fleet.config.pools
    )
    check(replace(fleet.config, pools=pools), fleet.work.requests, looks=looks)


@examples(60)
@given(
    open_cases,
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    links,
    st.lists(
        st.tuples(st.integers(0, 6000), st.integers(0, 4), st.integers(0, 3000)), min_size=1, max_size=5
    ),
    moments,
)
def test_prefill_and_decode_instances_fail_as_in_the_whole_run(
    case: Case,
    sizes: tuple[int, int],
    link: Disaggregation,
    failing: list[tuple[int, int, int]],
    looks: list[float],
) -> None:
    schedule = tuple(
        Failure(at_us=at_us, instance=which % sum(sizes), down_us=down_us)
        for at_us, which, down_us in failing
    )
    config = split(bounded(case), *sizes, disaggregation=link, failures=Failures(schedule=schedule))
    check(config, case.requests, looks=looks)


# -- rows that are given again --------------------------------------------------------------------------------

CERTAIN: tuple[RoutingPolicy, ...] = (
    RoundRobin(),
    LeastLoaded(),
    VllmDp(),
    CacheAware(balance_abs_threshold=2),
)
"""Policies that never draw: draws, those between equals too, follow the rows that requests get."""


def requests_of_apps(number: int, *, seed: int = 5) -> Requests:
    """Return requests of five applications, each with a beginning of its own that all its prompts share."""
    rng = np.random.default_rng(seed)
    app, own = rng.integers(0, 5, number), rng.integers(0, 12, number)
    shared = 4 + app  # blocks
    ids = [
        [*(100 * app[row] + np.arange(shared[row])), *(1000 + 20 * row + np.arange(own[row]))]
        for row in range(number)
    ]
    return Requests(
        arrival_us=np.cumsum(rng.integers(3_000, 15_000, number)),
        prompt_tokens=(shared + own) * 16 + rng.integers(1, 16, number),
        output_tokens=rng.integers(1, 40, number),
        priority=np.zeros(number, np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum([len(each) for each in ids])]).astype(np.int64),
        hash_ids=np.concatenate(ids).astype(np.int64),
    )


KINDS = {
    "plain": {},
    "queue": {"flow_control": FlowControl(detector="concurrency", max_concurrency=4, ttl_us=400_000)},
    "stale": {"snapshot_interval_us": SnapshotIntervals(queue=70_000, kv=30_000, cache=50_000)},
    "scaled": {},
    "split": {"disaggregation": Disaggregation(kv_bytes_per_token=20_000)},
}


def fleet_of(kind: str, policy: RoutingPolicy) -> ClusterConfig:
    config = cluster(3, routing=policy)
    pool = config.pools[0]
    if kind == "scaled":
        scaler = Autoscaler(
            policy="target",
            target=3.0,
            min_instances=1,
            max_instances=3,
            interval_us=200_000,
            drain="requeue",
        )
        pools = (replace(pool, instances=1, autoscaler=scaler),)
        failures = Failures(mtbf_us=1_500_000, mttr_us=100_000)
        return replace(config, pools=pools, failures=failures)
    if kind == "split":
        both = (replace(pool, name="d", role="decode", instances=2), replace(pool, name="p", role="prefill"))
        return replace(config, pools=both, **KINDS[kind])  # type: ignore[arg-type] # checked by the class
    return replace(config, **KINDS[kind])  # type: ignore[arg-type] # likewise


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", CERTAIN, ids=lambda policy: policy.name)
def test_with_few_rows_given_again_and_again_everything_is_the_same(policy: RoutingPolicy, kind: str) -> None:
    check(fleet_of(kind, policy), requests_of_apps(250), num_rows=8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", [Weighted(), KvCost(), Session()], ids=lambda policy: policy.name)
def test_a_long_run_with_rows_for_all_is_the_same(policy: RoutingPolicy, kind: str) -> None:
    check(fleet_of(kind, policy), requests_of_apps(250))


def arrays_with(length: int, parts: tuple[object, ...]) -> set[str]:
    """Return the names of all arrays along one of whose axes there are so many."""
    found = set()
    for name, part in zip(parts._fields, parts, strict=True):  # type: ignore[attr-defined] # a named tuple
        if isinstance(part, tuple):
            found |= {f"{name}.{each}" for each in arrays_with(length, part)}
        elif isinstance(part, np.ndarray) and length in part.shape:
            found.add(name)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_array_with_a_row_per_request_grows(kind: str) -> None:
    """An array that was forgotten would be written to behind its end."""
    number = 997
    flow = FlowControl() if kind == "queue" else None
    config = replace(fleet_of(kind, Weighted()), flow_control=flow)
    engine = replace(config.pools[0].engine, guided_mask_us=3.0)
    config = replace(config, pools=tuple(replace(pool, engine=engine) for pool in config.pools))
    live = LiveCluster(config, num_keys=7919, num_sessions=3, num_rows=number)
    parts = [live._driver.world, *live._driver.states]
    before = [arrays_with(number, part) | arrays_with(number + 1, part) for part in parts]
    assert {"rows", "journeys", "requests.hash_starts", "requests.num_hashes", "delays_us"} < before[0]
    assert {"requests", "traits", "skipped"} < before[1]
    live._rows._grow()
    parts = [live._driver.world, *live._driver.states]
    needless = {"clients.due_us", "clients.think_us"}
    for part in parts:
        assert arrays_with(number, part) | arrays_with(number + 1, part) <= needless
    grown = [arrays_with(2 * number, part) | arrays_with(2 * number + 1, part) for part in parts]
    assert grown == [names - needless for names in before]


@pytest.mark.parametrize("policy", [RoundRobin(), CacheAware(), KvCost()], ids=lambda policy: policy.name)
def test_memory_follows_the_requests_under_way_not_those_there_were(policy: RoutingPolicy) -> None:
    live = LiveCluster(fleet_of("plain", policy), num_keys=1000, num_rows=8)
    blocks = np.arange(40).tolist()
    for number in range(200):
        live.submit(number * 10**6, prompt_tokens=645, output_tokens=2, hash_ids=blocks)
        assert [request for request, _ in live.tokens(number * 10**6 + 999_999)] == [number, number]
        live.forget(number)
    assert live.num_rows == 8
    assert len(live._driver.world.requests.hash_ids) <= 16 * len(blocks)


# -- who is dropped -------------------------------------------------------------------------------------------


def assert_nobody_is_left(live: LiveCluster) -> None:
    world = live._driver.world
    assert not world.fleet.instances["num_in_flight"].any()
    assert not world.admission.num_in_flight.any()
    assert world.queue.counts[0].num_queued == world.loop[0].num_in_transit == 0
    for router in (world.router, world.prefill_router):
        assert router.settings[0].num_active_pairs == 0, "blocks that a router takes for used"
        assert not router.work["num_prefill_tokens"].any()
        assert not router.work["num_active_blocks"].any()
    for state in live._driver.states:
        engine = state.engine[0]
        assert engine.queues.num_free_blocks == len(state.blocks) - 1
        assert engine.queues.num_running == engine.queues.num_waiting == 0
        assert engine.kv_transfers.num_holding == engine.kv_transfers.num_delayed == 0
    assert not live._rows._needed().any()


def ids_of(live: LiveCluster, number: int) -> list[int]:
    """Return the ids of a request's blocks as routers have them, which engines must have, too; [] once it is gone."""
    row, world = live._row_of[number], live._driver.world
    if world.journeys["exit"][row] != Exit.UNDER_WAY:
        return []
    first, num = world.requests.hash_starts[row], world.requests.num_hashes[row]
    ids = world.requests.hash_ids[first : first + num].tolist()
    for state in live._driver.states:
        start = int(state.requests["hash_start"][row])
        assert state.hash_ids[start : start + len(ids)].tolist() == ids
    return ids  # type: ignore[no-any-return] # numpy's


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(
    st.sampled_from([LeastLoaded(), KvCost(), CacheAware(), Weighted()]),
    st.lists(st.integers(0, 100_000), min_size=60, max_size=60),
    st.sampled_from([0, 2_000]),
    st.sampled_from(ADMISSIONS),
    st.integers(8, 40),
)
def test_whoever_is_dropped_anywhere_leaves_nothing_behind(
    kind: str,
    policy: RoutingPolicy,
    patience_us: list[int],
    gateway_us: int,
    admission: AdmissionPolicy,
    num_rows: int,
) -> None:
    config = replace(
        fleet_of(kind, policy),
        latency=PipelineLatency(admission_us=gateway_us, routing_us=gateway_us),
        admission=admission,
    )
    requests = requests_of_apps(60)
    live, ends = live_of(config, work_of(requests), num_rows=num_rows), dict[int, int]()
    blocks: list[list[int]] = []
    num_tokens = [0] * len(requests)
    for row in range(len(requests)):
        now_us = int(requests.arrival_us[row]) // 2
        for number in [number for number, end_us in ends.items() if end_us <= now_us]:
            live.abort(max(ends.pop(number), int(requests.arrival_us[row - 1]) // 2), number)
        first = requests.hash_starts[row]
        end = first + requests.num_hashes[row]
        number, _ = live.submit(
            now_us,
            prompt_tokens=int(requests.prompt_tokens[row]),
            output_tokens=int(requests.output_tokens[row]),
            hash_ids=requests.hash_ids[first:end].tolist(),
            sender=RequestOrigin(tenant=row % 2, slo_priority=PRIORITIES[row % 4]),
        )
        ends[number] = now_us + patience_us[row]
        blocks.append(requests.hash_ids[first:end].tolist())
        for each in ends:
            assert ids_of(live, each) in ([], blocks[each]), "another's blocks"
        for number, _ in live.tokens(now_us):
            assert number in ends, "a token for nobody"
            num_tokens[number] += 1
    for number in ends:
        live.abort(now_us + 1, number)
    live.tokens(now_us + 10**7)
    assert all(made <= asked for made, asked in zip(num_tokens, requests.output_tokens, strict=True))
    assert_nobody_is_left(live)
    assert live.tokens(now_us + 10**7) == live.exits() == []


# -- an idle cluster ------------------------------------------------------------------------------------------


def test_an_idle_cluster_comes_to_rest_though_snapshots_are_taken() -> None:
    config = cluster(2, routing=Weighted(), snapshot_interval_us=SnapshotIntervals.every(5_000))
    live = LiveCluster(config, num_keys=1)
    live.submit(0, prompt_tokens=40, output_tokens=2)
    times = []
    while (next_us := live.next_time_us()) is not None:
        times.append(next_us)
        live.tokens(next_us)
    last_us = int(live.outcome(0).last_token_us[0])
    assert times[-1] == -(-last_us // 5_000) * 5_000, "the first snapshot after the last token"
    assert not live._driver.world.fleet.instances["num_running"].any(), "the last snapshot shows it at rest"


def test_an_autoscaler_looks_on_while_nobody_is_there_and_lets_instances_go() -> None:
    scaler = Autoscaler(
        policy="target",
        target=2.0,
        min_instances=1,
        max_instances=3,
        interval_us=100_000,
        down_window_us=1_000_000,
    )
    pool = replace(cluster(1).pools[0], autoscaler=scaler)
    live = LiveCluster(ClusterConfig(pools=(pool,), routing=LeastLoaded()), num_keys=1)
    assert live.states == ["ready", "off", "off"]
    for _ in range(6):
        live.submit(0, prompt_tokens=200, output_tokens=40)
    live.tokens(150_000)
    assert live.states == ["ready", "ready", "ready"]
    now_us = 150_000
    while live.states.count("ready") > 1:
        next_us = live.next_time_us()
        assert next_us is not None
        assert now_us < next_us <= now_us + 100_000
        assert next_us < 5_000_000
        now_us = next_us
        live.tokens(now_us)
    assert now_us > 1_000_000


def test_who_is_on_an_instance_that_fails_is_lost_and_it_takes_requests_again() -> None:
    failures = Failures(schedule=(Failure(at_us=50_000, instance=0, down_us=100_000),))
    live = LiveCluster(cluster(1, failures=failures), num_keys=1)
    first, _ = live.submit(0, prompt_tokens=40, output_tokens=50)
    early = live.tokens(49_999)
    assert {number for number, _ in early} == {first}
    assert live.tokens(50_000) == []
    assert live.exits() == [(first, Exit.LOST)]
    second, _ = live.submit(60_000, prompt_tokens=40, output_tokens=2)
    assert live.states == ["down"]
    live.tokens(60_001)
    assert live.exits() == [(second, Exit.DROPPED)]
    live.tokens(150_000)
    assert live.states == ["ready"]
    third, _ = live.submit(160_000, prompt_tokens=40, output_tokens=2)
    assert [number for number, _ in live.tokens(200_000)] == [third, third]


# -- a user's own function, and what is refused ---------------------------------------------------------------


def by_number(modulus: int) -> Callable[..., int]:
    return lambda _fleet, request, _time_us: request.number % modulus


def test_a_user_s_own_function_decides_as_in_the_whole_run() -> None:
    policy = OwnPolicy(choose=by_number(3))
    check(cluster(3, routing=policy), requests_of_apps(60))


def test_a_user_s_own_function_that_chooses_nobody_is_an_error() -> None:
    live = LiveCluster(cluster(3, routing=OwnPolicy(choose=by_number(9))), num_keys=1)
    for _ in range(4):
        live.submit(0, prompt_tokens=40, output_tokens=1)
    with pytest.raises(InvalidConfig, match=r"routing\.policy: got instance 3 for request 3"):
        live.tokens(1)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"retries": Retries()}, "^retries: got them for clients"),
        ({"lockstep": True}, "^lockstep: got true for"),
    ],
)
def test_what_needs_a_whole_trace_is_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        LiveCluster(cluster(2, **settings), num_keys=1)
