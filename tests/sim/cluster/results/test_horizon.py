"""Clusters that a horizon cuts: nothing before it changes, and what is undone is counted where it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig
from sim.cluster.cluster_config import ClusterConfig, PipelineLatency, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.gateway.flow_config import FlowControl
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.routing.routing_policies import LeastLoaded, RoundRobin, RoutingPolicy
from sim.cluster.transfer.disaggregation_config import Disaggregation
from sim.config import InvalidConfig
from sim.requests import Requests, Status
from tests.examples import examples
from tests.sim.cluster.run.changes.test_operations import Fleet, fleets
from tests.sim.cluster.test_cluster import (
    alike,
    assert_same_run,
    cluster,
    keeping_step,
    open_cases,
    some_requests,
)
from tests.sim.cluster.transfer.test_disaggregation import pools_of
from tests.sim.strategies import Case, assert_same_outcomes

SHARES = st.sampled_from([0.5, 0.25, 0.75, 0.1, 0.9, 1.0, 2.0])


def everybody_is_counted_once(run: ClusterSimulation, requests: Requests) -> None:
    unfinished = run.outcomes.status == Status.UNFINISHED
    unsent = unfinished & (run.outcomes.arrival_us < 0)
    undone = run.undone
    counted = undone.num_running + undone.num_waiting + undone.num_in_gateway + int(unsent.sum())
    assert counted == unfinished.sum()
    assert sum(run.num_by_exit.values()) == len(requests)
    assert np.isin(run.exit[unfinished], (Exit.UNDER_WAY, Exit.NOT_SENT)).all()
    assert (run.outcomes.status[run.exit == Exit.COMPLETED] == Status.OK).all()


@examples(60)
@given(open_cases, SHARES)
def test_a_cluster_of_one_that_is_cut_is_the_single_engine_that_is_cut(case: Case, share: float) -> None:
    until_us = max(1, int(case.run().duration_us * share))
    alone = replace(case, until_us=until_us).run()
    ours = simulate_cluster(ClusterWork(requests=case.requests), alike(case), until_us=until_us)
    assert_same_outcomes(ours.outcomes, alone.outcomes)
    assert (ours.undone.num_running, ours.undone.num_waiting) == (alone.num_running, alone.num_waiting)
    assert ours.duration_us == alone.duration_us
    everybody_is_counted_once(ours, case.requests)


@examples(25)
@given(open_cases, SHARES, st.integers(1, 3), st.sampled_from([RoundRobin(), LeastLoaded()]))
def test_engines_that_run_ahead_are_cut_as_those_that_keep_step(
    case: Case, share: float, num: int, policy: RoutingPolicy
) -> None:
    whole = case.run()
    until_us = max(1, int(whole.duration_us * share / num))
    config = alike(case, num, routing=policy, latency=PipelineLatency(routing_us=40))
    ahead = simulate_cluster(ClusterWork(requests=case.requests), config, until_us=until_us)
    work = ClusterWork(requests=case.requests, clients=keeping_step(case.requests))
    stepping = simulate_cluster(work, config, record="spans", points=5, until_us=until_us)
    assert_same_run(ahead, stepping)
    assert ahead.undone == stepping.undone
    assert ahead.duration_us == stepping.duration_us


@pytest.mark.parametrize("later_us", [0, 1])
def test_what_can_never_be_computed_is_stuck_whether_the_last_news_comes_before_the_horizon(
    later_us: int,
) -> None:
    """The second prompt needs more KV blocks than there are; the first one's last token is seen as the time is up."""
    requests = replace(some_requests(2, per_s=1e6, output=20), prompt_tokens=np.array([100, 900]))
    config = cluster(1, latency=PipelineLatency(routing_us=40))
    pool = replace(config.pools[0], engine=replace(config.pools[0].engine, num_gpu_blocks=40))
    config = replace(config, pools=(pool,))
    whole = simulate_cluster(ClusterWork(requests=requests), config)
    until_us = int(whole.outcomes.last_token_us[0]) + later_us
    for clients in (None, keeping_step(requests)):
        work = ClusterWork(requests=requests, clients=clients)
        cut = simulate_cluster(work, config, until_us=until_us)
        assert cut.outcomes.status.tolist() == [Status.OK, Status.STUCK]
        assert (cut.undone.num_running, cut.undone.num_waiting, cut.duration_us) == (
            0,
            0,
            until_us - later_us,
        )


def test_a_refusal_that_nobody_heard_of_before_the_horizon_is_one() -> None:
    """The front end takes 450 µs to see that the prompt is longer than the model allows; the time is up after 300."""
    requests = replace(some_requests(1, per_s=1e6), prompt_tokens=np.array([900]))
    pool = Pool(engine=EngineConfig(max_model_len=256), latency=Blackbox(alpha1=0.5, beta0=10))
    config = ClusterConfig(pools=(pool,), latency=PipelineLatency(routing_us=40))
    for clients in (None, keeping_step(requests)):
        cut = simulate_cluster(ClusterWork(requests=requests, clients=clients), config, until_us=300)
        assert (cut.outcomes.status[0], cut.exit[0], cut.duration_us) == (Status.REJECTED, Exit.REFUSED, 300)
        assert cut.left_us[0] == cut.outcomes.queued_us[0]


@examples(40)
@given(fleets(), SHARES)
def test_whatever_a_fleet_does_a_horizon_changes_nothing_before_it(fleet: Fleet, share: float) -> None:
    whole = simulate_cluster(fleet.work, fleet.config)
    until_us = max(1, int(whole.duration_us * share))
    cut = simulate_cluster(fleet.work, fleet.config, until_us=until_us)
    everybody_is_counted_once(cut, fleet.work.requests)
    assert cut.duration_us <= until_us
    done = (whole.exit == Exit.COMPLETED) & (
        whole.outcomes.last_token_us < until_us
    )  # a step may take no time
    assert (cut.exit[done] == Exit.COMPLETED).all()
    for name in ("arrival_us", "taken_in_us", "scheduled_us", "first_token_us", "last_token_us"):
        ours, theirs = getattr(cut.outcomes, name), getattr(whole.outcomes, name)
        np.testing.assert_array_equal(ours[done], theirs[done], err_msg=name)
    late = (whole.exit == Exit.COMPLETED) & (whole.outcomes.last_token_us > until_us)
    assert (cut.exit[late] != Exit.COMPLETED).all()


def test_who_waits_at_the_gateway_is_counted_there() -> None:
    """One seat is let through: at 2.5 s of ten requests of 1 s each, two are done, one runs, the others wait."""
    requests = replace(some_requests(10, per_s=1e6), prompt_tokens=np.ones(10, np.int64))
    flow = FlowControl(detector="concurrency", max_concurrency=1)
    config = cluster(1, flow_control=flow)
    alone = simulate_cluster(ClusterWork(requests=requests.take(np.arange(3))), config)
    until_us = int(alone.outcomes.scheduled_us[2]) + 1
    cut = simulate_cluster(ClusterWork(requests=requests), config, until_us=until_us)
    assert (cut.undone.num_running, cut.undone.num_waiting, cut.undone.num_in_gateway) == (1, 0, 7)
    assert cut.num_by_exit[Exit.COMPLETED] == 2


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_prompts_on_their_way_are_counted_where_they_are(share: float) -> None:
    requests = some_requests(60, per_s=400, prompt=300)
    moves = Disaggregation(kv_bytes_per_token=100_000, kv_bandwidth_gbps=1.0)
    config = replace(cluster(), pools=pools_of("prefill", "decode"), disaggregation=moves)
    whole = simulate_cluster(ClusterWork(requests=requests), config)
    until_us = int(whole.duration_us * share)
    cut = simulate_cluster(ClusterWork(requests=requests), config, until_us=until_us)
    everybody_is_counted_once(cut, requests)
    done = whole.outcomes.last_token_us <= until_us
    assert (cut.outcomes.status == Status.OK).tolist() == done.tolist()
    assert cut.undone.num_running > 0


def test_a_request_that_is_preempted_when_the_time_is_up_has_been_so_for_no_longer_than_it_will_be() -> None:
    """Prompts are all computed by then, so that the prefill engine's clock has long stood still."""
    requests = replace(
        some_requests(40, per_s=400, prompt=100, output=300), arrival_us=np.zeros(40, np.int64)
    )
    moves = Disaggregation(kv_bytes_per_token=1000, kv_bandwidth_gbps=100.0)
    prefill, decode = pools_of("prefill", "decode")
    decode = replace(decode, engine=replace(decode.engine, num_gpu_blocks=120, max_num_seqs=32))
    config = replace(cluster(), pools=(prefill, decode), disaggregation=moves)
    whole = simulate_cluster(ClusterWork(requests=requests), config)
    assert whole.outcomes.num_preemptions.sum() > 0
    were = 0
    for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        cut = simulate_cluster(
            ClusterWork(requests=requests), config, until_us=int(whole.duration_us * share)
        )
        mine, theirs = cut.outcomes.preempted_us, whole.outcomes.preempted_us
        assert (mine >= 0).all()
        assert (mine <= theirs).all()
        were += int(((mine > 0) & (cut.outcomes.status == Status.UNFINISHED)).sum())
    assert were > 0


def test_ranks_in_step_are_cut_too() -> None:
    requests = some_requests(60, per_s=400)
    config = cluster(2, lockstep=True)
    whole = simulate_cluster(ClusterWork(requests=requests), config)
    until_us = whole.duration_us // 2
    cut = simulate_cluster(ClusterWork(requests=requests), config, until_us=until_us)
    everybody_is_counted_once(cut, requests)
    done = whole.outcomes.last_token_us <= until_us
    assert (cut.outcomes.status == Status.OK).tolist() == done.tolist()
    assert 0 < done.sum() < 60


def test_a_horizon_of_no_time_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^until_us: got 0, expected an integer >= 1"):
        simulate_cluster(ClusterWork(requests=some_requests(1, per_s=1)), cluster(), until_us=0)
