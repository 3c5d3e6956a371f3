"""Data-parallel ranks of a model with experts: they step together, and one with nothing to do computes a dummy."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Status, simulate
from sim.cluster.cluster_config import ClusterConfig, FlowControl, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.latency import PeakTimes, Physics, Roofline
from sim.latency.batch import StepBatch
from sim.latency.paced import at_pace
from tests.examples import examples
from tests.sim.cluster.test_cluster import alike, keeping_step, rows_of
from tests.sim.engine.test_reference import bounded, reference_outcomes
from tests.sim.reference import Batch, Reference
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, requests_of

MS = Blackbox(beta0=1000)


class Rank:
    """A scheduler and what it has planned, the batch on the device first."""

    def __init__(self, reference: Reference) -> None:
        self.reference, self.planned = reference, deque[Batch]()

    def plan(self, now_us: int) -> None:
        r = self.reference
        r.clock = now_us
        while True:
            r.give_up()
            r.join()
            has_news = r.config.async_scheduling and r.has_finished and self.planned
            has_work = r.running or r.waiting or has_news
            if r.is_blocked or not has_work or len(self.planned) == r.config.max_concurrent_batches:
                if not self.planned or self.planned[0].shares:
                    return
                r.update(self.planned.popleft())
                continue
            batch = r.schedule()
            does_nothing = not batch.shares and not batch.row["preempted"]
            r.is_blocked = does_nothing and not any(each.shares for each in self.planned)
            self.planned.append(batch)
            r.is_blocked = r.is_blocked or r.preempts_without_end(*self.planned)

    def end_step(self, now_us: int) -> None:
        self.reference.clock = now_us
        if self.planned:
            self.reference.update(self.planned.popleft())

    def events(self) -> list[int]:
        r = self.reference
        return [p.queued_us for p in r.pending[:1]] + [p.gives_up_us for p in r.with_deadlines()[:1]]


def run_together(ranks: list[Rank], *, dummy_us: int) -> None:
    now_us = 0
    while True:
        for rank in ranks:
            rank.plan(now_us)
        if any(rank.planned for rank in ranks):
            now_us += max(rank.planned[0].row["dur"] if rank.planned else dummy_us for rank in ranks)
            for rank in ranks:
                rank.end_step(now_us)
        elif events := [time_us for rank in ranks for time_us in rank.events()]:
            now_us = max(now_us, min(events))
        else:
            return


@examples(100)
@given(cases(model=any_model, impatient=True))
def test_a_rank_by_itself_is_the_single_engine(case: Case) -> None:
    ours = simulate_cluster(ClusterWork(requests=case.requests), alike(case, lockstep=True))
    assert_same_outcomes(ours.outcomes, case.run().outcomes)


@examples(150)
@given(cases(impatient=True), st.integers(2, 4))
def test_ranks_in_step_are_schedulers_that_wait_for_each_other(case: Case, num_ranks: int) -> None:
    case = bounded(case)
    ours = simulate_cluster(ClusterWork(requests=case.requests), alike(case, num_ranks, lockstep=True))
    order = np.argsort(case.requests.arrival_us, kind="stable")
    rows = [np.sort(order[rank::num_ranks]) for rank in range(num_ranks)]
    ranks = [Rank(Reference(case.requests.take(own), case.config, case.latency)) for own in rows]  # type: ignore[arg-type]
    us = ranks[0].reference.us
    run_together(ranks, dummy_us=round(us["beta0"] + us["beta2"]))
    for own, rank in zip(rows, ranks, strict=True):
        rank.reference.finish_run()
        if len(own):
            assert_same_outcomes(rows_of(ours.outcomes, own), reference_outcomes(rank.reference))


def test_a_rank_waits_for_the_slowest_and_keeps_step_with_one_that_has_no_request() -> None:
    """Rank 0 computes a prompt of 1,000 tokens, rank 1 decodes: both take what the prompt takes; so do the next.

    The last step is rank 1's alone: rank 0 has a dummy in it.
    """
    rows = [{"arrival_us": 0, "prompt": 1000, "output": 1}, {"arrival_us": 0, "prompt": 1, "output": 3}]
    rows.append({"arrival_us": 100, "prompt": 1, "output": 1})
    latency = Blackbox(beta0=1000, beta1=10)
    pool = Pool(engine=EngineConfig(async_scheduling=False), latency=latency, instances=2)
    ours = simulate_cluster(
        ClusterWork(requests=requests_of(rows)), ClusterConfig(pools=(pool,), lockstep=True)
    )
    assert ours.outcomes.last_token_us.tolist() == [11_000, 13_010, 12_010]
    assert ours.outcomes.scheduled_us.tolist() == [0, 0, 11_000]


def test_the_dummy_step_of_an_idle_rank_costs_what_a_lone_decode_does() -> None:
    """A latency model whose steps take time by their decodes only: the idle rank has one token, as its dummy has."""
    rows = [{"arrival_us": 0, "prompt": 7, "output": 1}]
    pool = Pool(engine=EngineConfig(async_scheduling=False), latency=Blackbox(beta2=500), instances=2)
    ours = simulate_cluster(
        ClusterWork(requests=requests_of(rows)), ClusterConfig(pools=(pool,), lockstep=True)
    )
    assert ours.outcomes.last_token_us.tolist() == [500]


def test_what_ranks_in_step_do_not_go_with_is_refused() -> None:
    pool = Pool(engine=EngineConfig(), latency=MS, instances=2)
    with pytest.raises(InvalidConfig, match="lockstep: cannot be combined with flow_control"):
        ClusterConfig(pools=(pool,), lockstep=True, flow_control=FlowControl())
    staged = replace(pool, engine=EngineConfig(pipeline_parallel_size=2))
    with pytest.raises(InvalidConfig, match="lockstep: cannot be combined with pipeline stages"):
        ClusterConfig(pools=(staged,), lockstep=True)
    requests = requests_of([{"arrival_us": 0, "prompt": 1, "output": 1}])
    with pytest.raises(InvalidConfig, match="lockstep: cannot be combined with clients"):
        simulate_cluster(
            ClusterWork(requests=requests, clients=keeping_step(requests)),
            ClusterConfig(pools=(pool,), lockstep=True),
        )


def test_from_0_33_on_an_engine_that_is_no_rank_may_not_hold_prompts_back() -> None:
    """vLLM 0.33.0 v1/core/sched/scheduler.py: local_prefill_interval; up to 0.32 it takes no notice."""
    requests = requests_of([{"arrival_us": 0, "prompt": 40, "output": 3}])
    older = EngineConfig(prefill_schedule_interval=4)
    assert simulate(requests, older, MS).outcomes.status[0] == Status.OK
    newer = replace(older, vllm_version="0.33.0")
    message = "prefill_schedule_interval: got 4 with vllm_version 0.33.0, expected 1"
    with pytest.raises(InvalidConfig, match=message):
        simulate(requests, newer, MS)
    pool = Pool(engine=newer, latency=MS, instances=2)
    with pytest.raises(InvalidConfig, match=message):
        ClusterConfig(pools=(pool,))
    assert ClusterConfig(pools=(pool,), lockstep=True).lockstep


SHARED = PeakTimes(
    **{"matmul": 0.5, "weights": 900.0, "head_matmul": 0.01, "head_weights": 50.0, "prefill_pair": 1e-4},
    **{"decode_entry": 1e-3, "kv_entry": 2e-3, "kv_write": 0.01, "activation": 0.05, "num_layers": 4},
    **{"expert_matmul": 8.0, "expert_weights": 2000.0, "num_experts": 64, "num_experts_per_token": 4},
    **{"num_moe_layers": 4, "all_to_all": 0.2, "num_all_to_alls": 8, "dp": 2, "ep": 2},
)
"""A model with experts, two ranks: the experts' part of a step is as large as the rest."""


@pytest.mark.parametrize("model", [Physics(peak=SHARED, alpha0=0), Roofline(peak=SHARED, alpha0=0)])
@pytest.mark.parametrize(("prompt", "is_captured"), [(2001, False), (301, True)])
def test_experts_take_what_the_tokens_of_all_ranks_take(
    model: Physics | Roofline, prompt: int, is_captured: bool
) -> None:
    """Rank 0 computes a prompt, rank 1 a token: the experts of each have half of both, not the prompt twice.

    A prompt that a CUDA graph holds is another thing: rank 1 is padded to it.
    """
    rows = [{"arrival_us": 0, "prompt": prompt, "output": 1}, {"arrival_us": 0, "prompt": 1, "output": 1}]
    pool = Pool(
        engine=EngineConfig(async_scheduling=False, max_num_batched_tokens=4096), latency=model, instances=2
    )
    ours = simulate_cluster(
        ClusterWork(requests=requests_of(rows)), ClusterConfig(pools=(pool,), lockstep=True)
    )
    tokens = np.array([prompt])
    batch = StepBatch(
        num_prefill_tokens=tokens,
        num_decode_tokens=np.zeros(1, np.int64),
        decode_context_tokens=np.zeros(1, np.int64),
        prefill_pairs=tokens * (tokens + 1) // 2,
        num_prefill_seqs=np.ones(1, np.int64),
        prefill_context_tokens=tokens,
    )
    table = model.step_table()
    alone, among = table.durations(batch), table.durations(batch, expert_tokens=(tokens + 1) // 2)
    assert among < alone - 100
    expected = int(np.rint(alone if is_captured else among)[0])
    assert ours.outcomes.last_token_us.tolist() == [expected, expected]


def test_ranks_that_bring_as_many_tokens_take_what_each_was_planned_for() -> None:
    rows = [{"arrival_us": 0, "prompt": 1000, "output": 3}] * 2
    pool = Pool(engine=EngineConfig(), latency=Physics(peak=SHARED), instances=2)
    ours = simulate_cluster(
        ClusterWork(requests=requests_of(rows)), ClusterConfig(pools=(pool,), lockstep=True)
    )
    alone = simulate(requests_of(rows[:1]), pool.engine, pool.latency)
    assert ours.outcomes.last_token_us.tolist() == [alone.outcomes.last_token_us[0]] * 2


def test_ranks_at_another_pace_take_twice_as_long_with_what_they_exchange() -> None:
    peak = replace(SHARED, all_to_all=3.0)
    rows = [{"arrival_us": 0, "prompt": 2001, "output": 1}, {"arrival_us": 0, "prompt": 1, "output": 1}]
    ends = []
    for model in (Physics(peak=peak, alpha0=0), at_pace(Physics(peak=peak, alpha0=0), 2.0)):
        engine = EngineConfig(async_scheduling=False, max_num_batched_tokens=4096)
        pool = Pool(engine=engine, latency=model, instances=2)
        ours = simulate_cluster(
            ClusterWork(requests=requests_of(rows)), ClusterConfig(pools=(pool,), lockstep=True)
        )
        ends.append(int(ours.outcomes.last_token_us[0]))
    assert ends[1] == pytest.approx(2 * ends[0], abs=2)
