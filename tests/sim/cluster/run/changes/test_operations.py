"""Instances that come, go and fail, and clients that try again: what must hold, and where nothing may change."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool, SnapshotIntervals
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.infrastructure.infrastructure_config import (
    RETRYABLE,
    Autoscaler,
    Failure,
    Failures,
    NodePool,
    Retries,
    Size,
    Startup,
)
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.routing.routing_policies import (
    CacheAware,
    KvCost,
    LeastLoaded,
    PowerOfTwo,
    RoundRobin,
    RoutingPolicy,
    VllmDp,
    Weighted,
)
from sim.requests import Requests, Status
from tests.examples import examples
from tests.sim.cluster.test_cluster import assert_same_run, cluster, keeping_step, some_requests
from tests.sim.strategies import Case, Pick, any_model, cases, picks

POLICIES: tuple[RoutingPolicy, ...] = (
    RoundRobin(),
    PowerOfTwo(),
    LeastLoaded(),
    Weighted(),
    Weighted(scorers={"no-hit-lru": 1, "queue-depth": 1}),
    VllmDp(),
    CacheAware(balance_abs_threshold=2),
    KvCost(),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A drawn fleet and what it is given."""

    work: ClusterWork
    config: ClusterConfig


def a_scaler(pick: Pick, span_us: int) -> Autoscaler:
    """Return an autoscaler that acts within a run of ``span_us``."""
    some_us = (0, span_us // 50, span_us // 10)
    common = {
        "drain": pick(("wait", "requeue")),
        "drain_timeout_us": pick((0, 0, 5, span_us // 20)),
    }
    if pick((False, False, True)):
        times = sorted({pick((0, span_us // 7)), pick((span_us // 5, span_us // 3)), span_us // 2})
        sizes = tuple(Size(at_us=at_us, instances=pick((1, 2, 3))) for at_us in times)
        repeat_us = pick((0, max(times) + 1 + span_us // 10))
        return Autoscaler(policy="schedule", schedule=sizes, repeat_us=repeat_us, **common)
    policy = pick(("saturation", "target"))
    return Autoscaler(
        policy=policy,
        min_instances=pick((1, 2)),
        max_instances=pick((2, 3, 4)),
        interval_us=max(1, span_us // pick((10, 40))),
        target=pick((0.5, 1.0, 2.5)) if policy == "target" else None,
        metric=pick(("in-flight", "waiting", "running")),
        queue_threshold=pick((1.0, 3.0)),
        queue_spare=pick((0.5, 1.0)),
        actuation_us=pick(some_us),
        up_window_us=pick(some_us),
        down_window_us=pick(some_us),
        up_cooldown_us=pick(some_us),
        down_cooldown_us=pick(some_us),
        max_up=pick((0, 1)),
        max_down=pick((0, 1)),
        **common,
    )


def some_failures(pick: Pick, span_us: int) -> Failures | None:
    """Return failures within a run of ``span_us``."""
    if pick((True, False)):
        return None
    planned = tuple(
        Failure(at_us=pick((0, span_us // 4, span_us // 2)), instance=0, down_us=pick((0, span_us // 8)))
        for _ in range(pick((0, 1, 2)))
    )
    return Failures(mtbf_us=pick((0, span_us // 2)), mttr_us=pick((0, span_us // 10)), schedule=planned)


def some_retries(pick: Pick, span_us: int) -> Retries | None:
    """Return clients that try again within a run of ``span_us``."""
    if pick((True, False)):
        return None
    return Retries(
        max_attempts=pick((2, 3)),
        on=tuple(way for way in RETRYABLE if way == "lost" or pick((True, False))),
        backoff_us=pick((0, 3, span_us // 30)),
        jitter_frac=pick((0.0, 0.5)),
        timeout_us=pick((0, span_us // 3)),
    )


@st.composite
def fleets(draw: st.DrawFn, *, with_clients: bool = True) -> Fleet:
    """Draw a fleet that changes; ``with_clients``: who give up and try again."""
    case: Case = draw(cases(model=any_model, impatient=with_clients))
    pick = draw(picks())
    span_us = max(200, int(case.run().outcomes.last_token_us.max(initial=0)))
    pool = Pool(
        engine=case.config,
        latency=case.latency,
        instances=pick((1, 2)),
        gpus_per_instance=pick((2, 1)),
        startup=Startup(loading_us=pick((0, span_us // 20)), warm_up_us=pick((0, 3))),
        autoscaler=a_scaler(pick, span_us) if pick((True, True, False)) else None,
        node_pool=pick(("gpus", "gpus", None)),
    )
    flow = pick(
        (
            None,
            None,
            FlowControl(detector="concurrency", max_concurrency=2),
            FlowControl(detector="concurrency", max_concurrency=1, capacity=3, ttl_us=span_us // 5),
        )
    )
    config = ClusterConfig(
        pools=(pool,),
        routing=pick(POLICIES),
        flow_control=flow,
        latency=PipelineLatency(routing_us=pick((0, 40))),
        snapshot_interval_us=SnapshotIntervals(
            queue=pick((0, 0, 70, 1000)), kv=pick((0, 0, 70, 300)), cache=pick((0, 0, 210, 1000))
        ),
        node_pools=(
            NodePool(
                name="gpus",
                gpus_per_node=2,
                min_nodes=pick((0, 1)),
                max_nodes=4,
                provisioning_us=pick((0, span_us // 30)),
                idle_us=span_us // 30,
            ),
        ),
        failures=some_failures(pick, span_us),
        retries=some_retries(pick, span_us) if with_clients else None,
    )
    return Fleet(work=ClusterWork(requests=case.requests), config=config)


def times_on_instances(run: ClusterSimulation) -> list[tuple[int, int, int]]:
    """Return (instance, from, until) of every request's stay: routed until gone; of one that stays, until routed."""
    until_us = np.maximum(run.left_us, run.routed_us)
    is_there = (run.instance >= 0) & (run.exit != Exit.REFUSED)
    rows = np.flatnonzero(is_there)
    return [(int(run.instance[row]), int(run.routed_us[row]), int(until_us[row])) for row in rows]


def requests_and_blocks_add_up(fleet: Fleet, run: ClusterSimulation) -> None:
    n = len(fleet.work.requests)
    assert sum(run.num_by_exit.values()) == n
    assert ((run.exit == Exit.LOST) <= (run.outcomes.status == Status.ABORTED)).all()
    assert (run.outcomes.status[run.exit == Exit.COMPLETED] == Status.OK).all()
    if run.attempts is not None:
        made = run.attempts.num
        assert sum(run.attempts.num_by_exit.values()) == np.maximum(made, 1).sum()
        again = run.attempts.arrival_us[1:] >= 0
        left_us, exits = run.attempts.left_us[:-1], run.attempts.exit[:-1]
        assert (run.attempts.arrival_us[1:][again] >= left_us[again]).all()
        retried = [int(Exit[way.upper()]) for way in fleet.config.retries.on]  # type: ignore[union-attr]
        assert np.isin(exits[again], retried).all()
        assert (np.isin(run.exit, retried) <= (made == fleet.config.retries.max_attempts)).all()  # type: ignore[union-attr]
    under_way = run.exit == Exit.UNDER_WAY
    for number, instance in enumerate(run.instances):
        state = instance.written.state
        if not (under_way & (run.instance == number)).any():
            assert state.engine[0].queues.num_free_blocks == len(state.blocks) - 1
            assert state.engine[0].queues.num_running == state.engine[0].queues.num_waiting == 0


def no_request_is_on_an_instance_that_is_not_there(_fleet: Fleet, run: ClusterSimulation) -> None:
    lives = run.infrastructure.lives
    is_over = run.exit != Exit.TIMED_OUT
    assert (run.outcomes.last_token_us <= run.left_us)[is_over].all()
    for instance, routed_us, until_us in times_on_instances(run):
        assert any(
            life.ready_us is not None
            and life.ready_us <= routed_us
            and (life.drained_us is None or routed_us <= life.drained_us)
            and (life.stopped_us is None or until_us <= life.stopped_us)
            and not any(
                start < until_us and routed_us < (until_us if end is None else end)
                for start, end in life.downs
            )
            for life in lives
            if life.instance == instance
        )


def lives_do_not_overlap_and_cost_what_they_last(fleet: Fleet, run: ClusterSimulation) -> None:
    infrastructure, end_us = run.infrastructure, run.duration_us
    total = 0
    for number in range(fleet.config.num_instances):
        lives = [life for life in infrastructure.lives if life.instance == number]
        for life in lives:
            times = [life.ordered_us, life.placed_us, life.ready_us, life.drained_us, life.stopped_us]
            known = [time_us for time_us in times if time_us is not None]
            if life.drained_us is None or life.ready_us is not None:
                assert known == sorted(known)
            if life.placed_us is not None:
                stopped_us = end_us if life.stopped_us is None else min(end_us, life.stopped_us)
                total += life.num_gpus * max(0, stopped_us - life.placed_us)
        for before, after in itertools.pairwise(lives):
            assert before.stopped_us is not None
            assert before.stopped_us <= after.ordered_us
    assert infrastructure.gpu_hours() * 3.6e9 == pytest.approx(total)
    most = fleet.config.node_pools[0]
    for node in infrastructure.nodes:
        used = [life for life in infrastructure.lives if life.node is node]
        starts = sorted({life.placed_us for life in used if life.placed_us is not None})
        for time_us in starts:
            on_it = [
                life.num_gpus
                for life in used
                if life.placed_us is not None
                and life.placed_us <= time_us
                and (life.stopped_us is None or time_us < life.stopped_us)
            ]
            assert sum(on_it) <= most.gpus_per_node
            assert node.ready_us <= time_us
            assert node.removed_us is None or time_us <= node.removed_us


def a_fleet_at_its_end(model: Blackbox, *, prompt_tokens: int = 1, fails_us: int, shrinks_us: int) -> Fleet:
    """Return two instances of which one goes at ``shrinks_us``, if the autoscaler still looks; it looks every 49 µs.

    The one request arrives at 0. Its instance fails at ``fails_us``.
    """
    scaler = Autoscaler(
        policy="target", target=1.0, max_instances=2, interval_us=49, down_window_us=shrinks_us - 1
    )
    pool = Pool(engine=EngineConfig(max_model_len=100), latency=model, instances=2, autoscaler=scaler)
    requests = Requests(
        arrival_us=np.array([0]),
        prompt_tokens=np.array([prompt_tokens]),
        output_tokens=np.array([1]),
        priority=np.zeros(1, np.int64),
        hash_offsets=np.zeros(2, np.int64),
        hash_ids=np.zeros(0, np.int64),
    )
    failures = Failures(schedule=(Failure(at_us=fails_us, instance=0, down_us=0),))
    config = ClusterConfig(pools=(pool,), routing=RoundRobin(), failures=failures)
    return Fleet(work=ClusterWork(requests=requests), config=config)


LOST_IN_A_STEP = a_fleet_at_its_end(Blackbox(beta0=490), fails_us=134, shrinks_us=490)
"""The step ends at 490 without the request: the look at 490 finds nothing to come."""

LOST_WITH_A_TOKEN_ON_ITS_WAY = a_fleet_at_its_end(
    Blackbox(beta0=490, alpha2=100), fails_us=134, shrinks_us=539
)
"""Its client would have seen its token at 590."""

REFUSED = a_fleet_at_its_end(
    Blackbox(alpha0=500, beta0=490), prompt_tokens=200, fails_us=5000, shrinks_us=490
)
"""Its client sees the refusal at 500: until then the autoscaler looks."""


@examples(40)
@given(fleets(with_clients=False))
@example(LOST_IN_A_STEP)
@example(LOST_WITH_A_TOKEN_ON_ITS_WAY)
@example(REFUSED)
def test_a_fleet_that_changes_is_the_same_whether_engines_run_ahead_or_keep_step(fleet: Fleet) -> None:
    if fleet.config.flow_control is not None:
        return
    ahead = simulate_cluster(fleet.work, fleet.config)
    clients = keeping_step(fleet.work.requests)
    stepping = simulate_cluster(replace(fleet.work, clients=clients), fleet.config)
    assert_same_run(ahead, stepping)
    assert ahead.infrastructure == stepping.infrastructure


@pytest.mark.parametrize(
    ("fleet", "is_looked_at"),
    [(LOST_IN_A_STEP, False), (LOST_WITH_A_TOKEN_ON_ITS_WAY, False), (REFUSED, True)],
)
@pytest.mark.parametrize("keeps_step", [False, True])
def test_an_autoscaler_looks_until_the_last_answer_has_come(
    fleet: Fleet, is_looked_at: bool, keeps_step: bool
) -> None:
    clients = keeping_step(fleet.work.requests) if keeps_step else None
    run = simulate_cluster(replace(fleet.work, clients=clients), fleet.config)
    scaler = fleet.config.pools[0].autoscaler
    assert scaler is not None
    expected = [(scaler.down_window_us + 1, 2, 1)] if is_looked_at else []
    assert [(each.time_us, each.before, each.after) for each in run.infrastructure.changes] == expected


@examples(40)
@given(fleets(), st.sampled_from([3, 20]))
def test_looks_that_cut_slices_change_no_column_not_even_of_who_gave_up(fleet: Fleet, points: int) -> None:
    """Engines are brought to every look and every autoscaler's interval, wherever they are: nobody can tell."""
    whole = simulate_cluster(fleet.work, fleet.config, record="spans")
    sliced = simulate_cluster(fleet.work, fleet.config, record="spans", points=points, coalesce=False)
    assert_same_run(whole, sliced)
    unscheduled = whole.outcomes.scheduled_us < 0
    assert (whole.outcomes.taken_in_us[unscheduled] < 0).all()


@examples(40)
@given(fleets(with_clients=False), st.data())
def test_a_fleet_whose_clients_give_up_is_the_same_ahead_and_in_step(
    fleet: Fleet, data: st.DataObject
) -> None:
    if fleet.config.flow_control is not None:
        return
    requests = fleet.work.requests
    patience = data.draw(st.integers(0, 2000))
    requests = replace(requests, deadline_us=requests.arrival_us + patience)
    ahead = simulate_cluster(ClusterWork(requests=requests), fleet.config)
    work = ClusterWork(requests=requests, clients=keeping_step(requests))
    assert_same_run(ahead, simulate_cluster(work, fleet.config))


@examples(25)
@given(fleets())
def test_a_fleet_that_changes_does_so_twice_in_the_same_way_and_with_single_steps(fleet: Fleet) -> None:
    once = simulate_cluster(fleet.work, fleet.config)
    again = simulate_cluster(fleet.work, fleet.config, coalesce=False)
    assert_same_run(once, again)
    assert once.infrastructure == again.infrastructure


def with_pool(config: ClusterConfig, **settings: object) -> ClusterConfig:
    return replace(config, pools=(replace(config.pools[0], **settings),))  # type: ignore[arg-type] # checked by the class


@examples(25)
@given(fleets(), st.integers(1, 3))
def test_an_autoscaler_that_never_acts_changes_nothing(fleet: Fleet, num: int) -> None:
    fixed = with_pool(replace(fleet.config, failures=None), autoscaler=None, instances=num, node_pool=None)
    idle = Autoscaler(policy="target", target=1.0, min_instances=num, max_instances=num, interval_us=4999)
    scaled = simulate_cluster(fleet.work, with_pool(fixed, autoscaler=idle))
    assert_same_run(scaled, simulate_cluster(fleet.work, fixed))
    assert scaled.infrastructure.changes == ()


@examples(25)
@given(fleets(), st.integers(2, 4))
def test_a_schedule_that_begins_with_more_instances_is_the_larger_fleet(fleet: Fleet, num: int) -> None:
    fixed = with_pool(replace(fleet.config, failures=None), autoscaler=None, instances=num, node_pool=None)
    schedule = Autoscaler(policy="schedule", schedule=(Size(at_us=0, instances=num),))
    scheduled = simulate_cluster(fleet.work, with_pool(fixed, autoscaler=schedule, instances=1))
    fixed_run = simulate_cluster(fleet.work, fixed)
    assert_same_run(scheduled, fixed_run)
    assert scheduled.infrastructure.gpu_hours() == fixed_run.infrastructure.gpu_hours()


def test_the_failure_of_an_instance_that_nobody_used_changes_nothing() -> None:
    work = ClusterWork(requests=some_requests(100, per_s=1))
    plain = simulate_cluster(work, cluster(6, routing=LeastLoaded()))
    assert 5 not in plain.instance
    failures = Failures(schedule=(Failure(at_us=30_000_000, instance=5, down_us=5_000_000),))
    failed = simulate_cluster(work, cluster(6, routing=LeastLoaded(), failures=failures))
    assert_same_run(failed, plain)
    assert failed.infrastructure.lives[5].downs == [(30_000_000, 35_000_000)]
    assert failed.infrastructure.gpu_hours() == plain.infrastructure.gpu_hours()


RARE: dict[str, Callable[[ClusterSimulation], bool]] = {
    "an instance is ordered": lambda run: any(
        change.after > change.before for change in run.infrastructure.changes
    ),
    "one goes": lambda run: any(life.stopped_us is not None for life in run.infrastructure.lives),
    "one lives again": lambda run: (
        len({life.instance for life in run.infrastructure.lives}) < len(run.infrastructure.lives)
    ),
    "one comes back": lambda run: any(
        end is not None for life in run.infrastructure.lives for _, end in life.downs
    ),
    "a request is lost for good": lambda run: bool((run.exit == Exit.LOST).any()),
    "a retry succeeds": lambda run: (
        run.attempts is not None and bool(((run.attempts.num > 1) & (run.exit == Exit.COMPLETED)).any())
    ),
    "a node goes": lambda run: any(node.removed_us is not None for node in run.infrastructure.nodes),
    "a node comes later": lambda run: any(node.ordered_us > 0 for node in run.infrastructure.nodes),
}


def test_whatever_comes_goes_and_fails_everything_adds_up() -> None:
    seen = dict.fromkeys(RARE, 0)

    @examples(50, is_counted=True)
    @given(fleets())
    def adds_up(fleet: Fleet) -> None:
        run = simulate_cluster(fleet.work, fleet.config)
        requests_and_blocks_add_up(fleet, run)
        no_request_is_on_an_instance_that_is_not_there(fleet, run)
        lives_do_not_overlap_and_cost_what_they_last(fleet, run)
        for name, is_so in RARE.items():
            seen[name] += is_so(run)

    adds_up()
    assert min(seen.values()) >= 2, str(seen)
