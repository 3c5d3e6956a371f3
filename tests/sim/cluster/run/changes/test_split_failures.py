"""Prefill and decode instances that fail: against the twin, and what must hold whatever else goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, Requests
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.cluster_simulation import simulate_cluster
from sim.cluster.cluster_work import ClusterWork
from sim.cluster.exits import Exit
from sim.cluster.infrastructure.infrastructure_config import Failure, Failures, Retries
from sim.cluster.results.finished import ClusterSimulation
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.examples import examples
from tests.sim.cluster.run.changes.split_failures import Twin
from tests.sim.cluster.test_cluster import POLICIES
from tests.sim.cluster.transfer.test_disaggregation import LINK, links, open_cases, split
from tests.sim.strategies import Case

STEP_US, BASE_US, BYTES, PAUSE_US, MOST = 997, 310, 1000, 1511, 3
ENGINE = EngineConfig(
    max_num_seqs=64,
    num_gpu_blocks=4000,
    max_num_batched_tokens=8192,
    enable_prefix_caching=False,
    async_scheduling=False,
)
STAGES = {"done": Exit.COMPLETED, "lost": Exit.LOST, "dropped": Exit.DROPPED}


def pools(num_prefill: int, num_decode: int) -> tuple[Pool, ...]:
    """Return instances whose steps all take STEP_US."""
    latency = Blackbox(beta0=STEP_US)
    return (
        Pool(engine=ENGINE, latency=latency, instances=num_prefill, name="p", role="prefill"),
        Pool(engine=ENGINE, latency=latency, instances=num_decode, name="d", role="decode"),
    )


def bare_requests(drawn: list[tuple[int, int, int]]) -> Requests:
    """Return requests of (arrival_us, prompt tokens, output tokens)."""
    arrival, prompt, output = (np.array(column, np.int64) for column in zip(*drawn, strict=True))
    none = np.zeros(0, np.int64)
    return Requests(
        arrival_us=arrival,
        prompt_tokens=prompt,
        output_tokens=output,
        priority=np.zeros(len(drawn), np.int64),
        hash_offsets=np.zeros(len(drawn) + 1, np.int64),
        hash_ids=none,
    )


def assert_blocks_are_free(run: ClusterSimulation) -> None:
    """Check that no instance holds anything, and that every transfer has ended, or was cut off."""
    assert run.split is not None
    assert run.split.num_started == run.split.num_ended + run.split.num_cut_off
    for instance in run.instances:
        state = instance.written.state
        queues, kv = state.engine[0].queues, state.engine[0].kv_transfers
        assert queues.num_free_blocks == len(state.blocks) - 1
        assert not state.blocks["ref_cnt"].any()
        assert queues.num_free_slots == len(state.block_table)
        assert queues.num_running == queues.num_waiting == 0
        assert kv.num_holding == kv.num_ready == kv.num_delayed == 0
        assert kv.num_delivered == kv.num_polled == kv.num_applied


@examples(150)
@given(
    drawn=st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(1, 200), st.integers(1, 9)), min_size=1, max_size=14
    ),
    failing=st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 3), st.integers(0, 9_000)), max_size=6),
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_what_fails_is_lost_and_sent_again_as_by_the_twin(
    drawn: list[tuple[int, int, int]], failing: list[tuple[int, int, int]], sizes: tuple[int, int]
) -> None:
    failing = [(at_us, which % sum(sizes), down_us) for at_us, which, down_us in failing]
    twin = Twin(*sizes, step_us=STEP_US, pause_us=PAUSE_US, most=MOST)
    for number, (at_us, prompt, output) in enumerate(drawn):
        moves_us = BASE_US + -(-prompt // 16) * 16 * BYTES // 1000
        twin.send(number, at_us, output, moves_us)
    for at_us, which, down_us in failing:
        twin.fail(which, at_us, down_us)
    twin.run()
    config = ClusterConfig(
        pools=pools(*sizes),
        disaggregation=Disaggregation(
            kv_bytes_per_token=BYTES, kv_bandwidth_gbps=1.0, kv_base_latency_us=BASE_US, contention=False
        ),
        failures=Failures(
            schedule=tuple(
                Failure(at_us=at_us, instance=which, down_us=down) for at_us, which, down in failing
            )
        ),
        retries=Retries(max_attempts=MOST, on=("lost",), backoff_us=PAUSE_US, backoff_factor=1.0),
    )
    run = simulate_cluster(ClusterWork(requests=bare_requests(drawn)), config)
    last = {attempt.number: attempt for attempt in twin.attempts}  # later ones in the place of earlier ones
    assert run.split is not None
    assert run.attempts is not None
    for number, attempt in last.items():
        ours = {
            "instance": run.instance[number],
            "prefill_instance": run.split.prefill_instance[number],
            "prefilled_us": run.split.prefilled_us[number],
            "transfer_start_us": run.split.transfer_start_us[number],
            "transfer_end_us": run.split.transfer_end_us[number],
            "left_us": run.left_us[number] if attempt.stage == "lost" else -1,
            "first_token_us": run.outcomes.first_token_us[number],
            "last_token_us": run.outcomes.last_token_us[number] if attempt.stage == "done" else -1,
        }
        assert run.exit[number] == STAGES[attempt.stage]
        assert run.attempts.num[number] == attempt.times
        assert {name: int(us) for name, us in ours.items()} == {
            name: attempt.seen.get(name, -1) for name in ours
        }
    assert run.split.num_cut_off == twin.num_cut_off
    assert_blocks_are_free(run)


@examples(60)
@given(
    open_cases,
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    links,
    st.sampled_from(POLICIES),
    st.integers(2, 30),
)
def test_whatever_fails_every_request_leaves_once_and_every_block_is_free_again(
    case: Case, sizes: tuple[int, int], link: Disaggregation, policy: object, parts: int
) -> None:
    span_us = max(200, int(case.run().outcomes.last_token_us.max(initial=0)))
    config = split(
        case,
        *sizes,
        disaggregation=link,
        routing=policy,
        failures=Failures(mtbf_us=max(1, span_us // parts), mttr_us=span_us // 20),
        retries=Retries(on=("lost", "dropped", "timed_out"), backoff_us=span_us // 30, jitter_frac=0.5),
    )
    run = simulate_cluster(ClusterWork(requests=case.requests), config)
    assert sum(run.num_by_exit.values()) == len(case.requests)
    if run.num_by_exit[Exit.UNDER_WAY] == 0:
        assert_blocks_are_free(run)
    stepping = simulate_cluster(ClusterWork(requests=case.requests), config, coalesce=False)
    np.testing.assert_array_equal(run.exit, stepping.exit)
    np.testing.assert_array_equal(run.outcomes.last_token_us, stepping.outcomes.last_token_us)


def test_while_no_prefill_instance_is_up_the_decode_instance_computes_the_prompt() -> None:
    config = ClusterConfig(
        pools=pools(1, 1)[::-1],
        disaggregation=replace(LINK, contention=False),
        failures=Failures(schedule=(Failure(at_us=10, instance=1, down_us=10**9),)),
    )
    run = simulate_cluster(ClusterWork(requests=bare_requests([(20, 100, 3)])), config)
    assert run.split is not None
    assert run.num_by_exit[Exit.COMPLETED] == 1
    assert run.split.prefill_instance.tolist() == [-1]
    assert run.outcomes.first_token_us.tolist() == [20 + STEP_US]
