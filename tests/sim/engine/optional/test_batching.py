"""``engine.batching``: other schedulers than vLLM's against their rules written once more, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, Status, simulate
from sim.cluster.cluster_config import ClusterConfig, Pool
from sim.cluster.transfer.disaggregation_config import Disaggregation
from tests.examples import examples
from tests.sim.engine.test_reference import KEYS, MANY_BLOCKS, reference_outcomes
from tests.sim.other_batching import REFERENCES
from tests.sim.strategies import Case, assert_same_outcomes, cases, requests_of

PLAIN: dict[str, Any] = {
    "async_scheduling": False,
    "enable_prefix_caching": False,
    "enable_chunked_prefill": True,
    "scheduling_policy": "fcfs",
    "priority_scoring": "constant",
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
}
"""What the other schedulers have not."""
V0: dict[str, Any] = {
    "enable_chunked_prefill": False,
    "scheduler_reserve_full_isl": True,
    "max_num_batched_tokens": 10_000,
}
"""What vLLM's first engine is simulated with."""


@st.composite
def batched_otherwise(draw: st.DrawFn) -> Case:
    """Draw a case for one of the other schedulers, with a cache that fills."""
    case = draw(cases(closed=None, impatient=True))
    kind = draw(st.sampled_from(sorted(REFERENCES)))
    blocks = case.config.num_gpu_blocks or MANY_BLOCKS
    own = {**V0, "enable_prefix_caching": draw(st.booleans())} if kind == "vllm-v0" else {}
    return case.under(**{**PLAIN, **own}, batching=kind, num_gpu_blocks=blocks)


@examples(80)
@given(batched_otherwise())
def test_every_step_and_every_block_is_the_rules_(case: Case) -> None:
    reference = REFERENCES[case.config.batching](
        case.requests, case.config, case.latency, closed_loop=case.closed_loop
    ).run()
    simulation = case.run(record="blocks")
    steps = simulation.steps()
    for mine, theirs in zip(steps, reference.steps, strict=False):
        assert {key: value for key in KEYS if (value := getattr(mine, key)) is not None} == theirs
    assert len(steps) == len(reference.steps)
    assert_same_outcomes(simulation.outcomes, reference_outcomes(reference))
    assert_same_outcomes(case.run().outcomes, simulation.outcomes)  # taken in jumps


def answered(batching: str, rows: list[dict[str, int]], **settings: object) -> tuple[list[int], list[int]]:
    """Return when each request was first scheduled and when it ended, steps of 100 µs whatever is in them."""
    config = EngineConfig(
        **{"max_num_seqs": 4, "max_num_batched_tokens": 8, "block_size": 4, **PLAIN, **settings},
        batching=batching,
    )
    outcomes = simulate(requests_of(rows), config, Blackbox(beta0=100)).outcomes
    assert (outcomes.status == Status.OK).all()
    return outcomes.scheduled_us.tolist(), outcomes.last_token_us.tolist()


def test_only_static_batching_lets_a_short_request_wait_for_a_long_one() -> None:
    rows = [
        {"arrival_us": 0, "prompt": 4, "output": 9},
        {"arrival_us": 0, "prompt": 4, "output": 2},
        {"arrival_us": 150, "prompt": 4, "output": 2},
    ]
    assert answered("static", rows)[0][2] == 900
    for batching in ("orca", "sarathi", "vllm"):
        assert answered(batching, rows)[0][2] == 200


def test_only_chunks_keep_a_long_prompt_from_holding_decodes_up() -> None:
    rows = [
        {"arrival_us": 0, "prompt": 4, "output": 9},
        {"arrival_us": 50, "prompt": 30, "output": 1},
    ]
    config = EngineConfig(max_num_seqs=4, max_num_batched_tokens=8, block_size=4, **PLAIN)
    latency = Blackbox(beta0=100, beta1=10)
    longest = {}
    for batching in ("orca", "sarathi"):
        run = simulate(requests_of(rows), replace(config, batching=batching), latency, record="steps")
        longest[batching] = max(step.P for step in run.steps())
    assert longest == {"orca": 30, "sarathi": 7}


def test_only_orca_and_static_reserve_what_may_never_be_used() -> None:
    rows = [{"arrival_us": 0, "prompt": 4, "output": 40}, {"arrival_us": 0, "prompt": 4, "output": 4}]
    # 12 blocks: the first sequence may take 11 of them, its prompt takes one
    for batching, waits in (("orca", True), ("static", True), ("sarathi", False), ("vllm", False)):
        scheduled, _ = answered(batching, rows, num_gpu_blocks=13)
        assert (scheduled[1] > 0) == waits, batching


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("async_scheduling", True),
        ("enable_prefix_caching", True),
        ("pipeline_parallel_size", 2),
        ("num_speculative_tokens", 2),
        ("long_prefill_token_threshold", 100),
        ("num_cpu_blocks", 10),
        ("max_loras", 1),
        ("scheduling_policy", "priority"),
        ("compatibility", "blis"),
        ("enable_chunked_prefill", False),
    ],
)
def test_what_does_not_go_with_another_scheduler_is_refused_in_a_line(name: str, value: object) -> None:
    rates = {"synthetic_acceptance_rates": (0.5,)} if name == "num_speculative_tokens" else {}
    settings = {**PLAIN, **rates, name: value}
    with pytest.raises(InvalidConfig, match=rf"^{name}: got \S+ with batching sarathi, expected \S+$"):
        EngineConfig(batching="sarathi", **settings)


def test_decodes_stand_still_while_prompts_come_in_vllm_s_first_engine() -> None:
    """One of 9 tokens begins; a prompt that comes meanwhile takes a step of its own, and two of one time share one."""
    rows = [
        {"arrival_us": 0, "prompt": 4, "output": 9},
        {"arrival_us": 150, "prompt": 30, "output": 1},
        {"arrival_us": 450, "prompt": 30, "output": 1},
        {"arrival_us": 450, "prompt": 30, "output": 1},
    ]
    scheduled, ends = answered("vllm-v0", rows, **{**V0, "max_num_batched_tokens": 60})
    assert scheduled == [0, 200, 500, 500]
    assert ends == [1100, 300, 600, 600]


def test_vllm_s_first_engine_wants_room_for_a_prompt_whatever_of_it_is_cached() -> None:
    """17 blocks, two prompts of the same 10: beside the first there are 6 left, of which the second needs 1."""
    same: list[dict[str, Any]] = [
        {"arrival_us": at, "prompt": 41, "output": 4, "hash_ids": [*range(10)]} for at in (0, 150)
    ]
    settings = {**V0, "enable_prefix_caching": True, "num_gpu_blocks": 18}
    assert answered("vllm-v0", same, **settings)[0] == [0, 400]
    assert answered("vllm", same, **settings)[0] == [0, 200]


@pytest.mark.parametrize("num_cpu_blocks", [0, 40])
def test_in_vllm_s_first_engine_jumps_are_single_steps_with_a_second_tier_too(num_cpu_blocks: int) -> None:
    rows = [
        {
            "arrival_us": 500 * i,
            "prompt": 40 + 8 * (i % 3),
            "output": 3 + i % 20,
            "hash_ids": [*range(10 * (i % 5), 10 * (i % 5) + 10)],
        }
        for i in range(60)
    ]
    config = EngineConfig(
        **{**PLAIN, **V0, "enable_prefix_caching": True},
        batching="vllm-v0",
        num_gpu_blocks=60,
        block_size=4,
        num_cpu_blocks=num_cpu_blocks,
        kv_offloading="native",
        kv_load_us_per_block=90,
    )
    requests, latency = requests_of(rows), Blackbox(beta0=100, beta1=10, beta2=5)
    runs = [simulate(requests, config, latency, coalesce=coalesce) for coalesce in (True, False)]
    assert_same_outcomes(runs[0].outcomes, runs[1].outcomes)
    assert (runs[0].outcomes.status == Status.OK).all()
    assert runs[0].outcomes.num_cached_tokens.sum() > 0


def test_pools_that_hand_kv_on_and_ranks_in_step_batch_as_vllm_does() -> None:
    engine = EngineConfig(batching="orca", **PLAIN)
    latency = Blackbox(beta0=100)
    with pytest.raises(
        InvalidConfig,
        match=r"engine.batching: orca cannot be combined with a prefill pool yet, expected vllm",
    ):
        ClusterConfig(
            pools=(
                Pool(engine=engine, latency=latency, name="p", role="prefill"),
                Pool(engine=engine, latency=latency, name="d", role="decode"),
            ),
            disaggregation=Disaggregation(kv_bytes_per_token=1),
        )
    with pytest.raises(InvalidConfig, match="another batching than vLLM's"):
        ClusterConfig(pools=(Pool(engine=engine, latency=latency),), lockstep=True)


def test_an_unknown_scheduler_is_told_which_there_are() -> None:
    with pytest.raises(
        InvalidConfig, match="batching: got 'fast', expected one of vllm, orca, sarathi, static, vllm-v0"
    ):
        EngineConfig(batching="fast")  # type: ignore[arg-type]
