"""A cluster of one behind a gateway that decides nothing, run at once: from event to event the same comes out."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.by_events import simulate_by_events
from sim.cluster.client_plans import capped, closed_loop, waves
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool
from sim.cluster.cluster_simulation import is_direct, simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.gateway.admission import TokenBucket
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.infrastructure.infrastructure_config import Autoscaler, Failure, Failures, NodePool, Retries
from sim.cluster.routing.routing_policies import OwnPolicy
from sim.config import EngineConfig
from sim.latency import Blackbox
from sim.requests import Requests
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases

COLUMNS = ("instance", "exit", "admitted_us", "dispatched_us", "routed_us", "left_us")


@examples(200)
@given(
    cases(model=any_model, impatient=True, costly=True),
    st.sampled_from([None, None, 1, 900, 20_000]),
    st.data(),
)
def test_what_runs_at_once_is_what_runs_from_event_to_event(
    case: Case, until_us: int | None, data: st.DataObject
) -> None:
    config = ClusterConfig(
        pools=(Pool(engine=case.config, latency=case.latency, gpus_per_instance=3),),
        compatibility=case.config.compatibility,
    )
    order = np.array(data.draw(st.permutations(range(len(case.requests)))), np.int64)
    work = ClusterWork(requests=case.requests.take(order))  # traces need not ascend
    assert is_direct(work, config)
    ours = simulate_cluster(work, config, record="spans", until_us=until_us)
    theirs = simulate_by_events(work, config, record="spans", until_us=until_us)
    assert_same_outcomes(ours.outcomes, theirs.outcomes)
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    assert ours.duration_us == theirs.duration_us
    assert ours.undone == theirs.undone
    assert ours.infrastructure == theirs.infrastructure
    assert ours.split is theirs.split is ours.attempts is theirs.attempts is None
    one, other = ours.instances[0], theirs.instances[0]
    for field in fields(one):
        if field.name not in (
            "written",
            "num_jumps",
        ):  # what runs at once may be counted, which jumps less often
            assert getattr(one, field.name) == getattr(other, field.name), field.name
    mine, its = (each.written.inter_token_latencies() for each in (one, other))
    np.testing.assert_array_equal(mine.p99_us, its.p99_us)
    np.testing.assert_array_equal(mine.counts, its.counts)


SOME = Requests(
    arrival_us=np.arange(3),
    prompt_tokens=np.full(3, 5),
    output_tokens=np.full(3, 5),
    priority=np.zeros(3, np.int64),
    hash_offsets=np.zeros(4, np.int64),
    hash_ids=np.zeros(0, np.int64),
)
POOL = Pool(engine=EngineConfig(), latency=Blackbox(beta0=10))
PLAIN = ClusterConfig(pools=(POOL,))


@pytest.mark.parametrize(
    "config",
    [
        replace(PLAIN, pools=(replace(POOL, instances=2),)),
        replace(PLAIN, pools=(replace(POOL, autoscaler=Autoscaler(max_instances=2)),)),
        replace(PLAIN, pools=(POOL, replace(POOL, name="b"))),
        replace(PLAIN, routing=OwnPolicy(choose=lambda *_: 0)),
        replace(PLAIN, admission=TokenBucket(capacity=1, refill_per_s=1)),
        replace(PLAIN, flow_control=FlowControl()),
        replace(PLAIN, latency=PipelineLatency(routing_us=1)),
        replace(PLAIN, failures=Failures(schedule=(Failure(instance=0, at_us=1),))),
        replace(PLAIN, retries=Retries()),
        replace(PLAIN, lockstep=True),
        replace(PLAIN, node_pools=(NodePool(name="n"),)),
    ],
)
def test_what_a_gateway_may_decide_is_decided_event_by_event(config: ClusterConfig) -> None:
    assert is_direct(ClusterWork(requests=SOME), PLAIN)
    assert not is_direct(ClusterWork(requests=SOME), config)


def test_of_clients_that_wait_the_engine_knows_loops_and_caps() -> None:
    loop, cap = closed_loop(3, concurrency=1), capped(SOME.arrival_us, max_concurrency=1)
    assert is_direct(ClusterWork(requests=SOME, clients=loop), PLAIN)
    assert is_direct(ClusterWork(requests=SOME, clients=cap), PLAIN)
    assert not is_direct(ClusterWork(requests=SOME, clients=waves(np.array([0, 1, 1]))), PLAIN)
