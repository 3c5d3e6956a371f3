"""A run that counts KV blocks gives the bits of one that hands them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, Simulation, Simulator, simulate
from sim.engine.counting.counted_run import CANNOT_COUNT, HANDED_OVER
from sim.kv_cache_groups import KVCacheGroup
from sim.resumable import FOREVER, Engine
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, crowds, requests_of

ROOMY = 10_000
"""Blocks that no drawn case comes near."""

FULL, STATE = KVCacheGroup(kind="full"), KVCacheGroup(kind="state")
WINDOW, WIDE_WINDOW = (KVCacheGroup(kind="sliding", window=window) for window in (3, 9))
GROUPS = (
    (FULL, WINDOW),
    (WINDOW,),
    (FULL, *[WIDE_WINDOW] * 5),
    (FULL, WIDE_WINDOW, WINDOW, KVCacheGroup(kind="chunked", chunk=8)),
    (FULL, STATE),
    (FULL, KVCacheGroup(kind="sliding", window=5, block_size=32)),
)
"""Layers that cache differently."""

counted_cases = cases(closed=None, model=any_model, stopping=True)
impatient_cases = st.one_of(
    cases(closed=None, model=any_model, stopping=True, impatient=True).map(
        lambda case: case.under(max_model_len=4096)  # none is refused, so that closed loops are counted, too
    ),
    cases(closed=None, model=any_model, stopping=True, impatient=True),
    crowds(model=any_model),
)
"""With deadlines."""


def roomy(case: Case, *, num_blocks: int = ROOMY, host_us: float = 0.0, cap: int = 0) -> Case:
    """Return a case whose requests share no content, in a cache of so many blocks."""
    n = len(case.requests)
    alone = replace(
        case.requests,
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        hash_counts=None,
    )
    case = replace(case.under(num_gpu_blocks=num_blocks), requests=alone)
    if cap and case.closed_loop is None:
        case = replace(case, max_concurrency=cap)
    return case.under(host_step_us=host_us, host_prefill_us=host_us / 2, launch_us=7 * host_us)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list to which each run that counts adds whether it came to its end so."""
    answers: list[bool] = []
    original = Engine._count

    def noted(self: Engine, until_us: int = FOREVER) -> int:
        reason = original(self, until_us)
        answers.append(reason not in (HANDED_OVER, CANNOT_COUNT))
        return reason

    monkeypatch.setattr(Engine, "_count", noted)
    return answers


def assert_same_run(case: Case) -> None:
    """Assert that all that a run tells is the same with blocks counted and with each step taken singly."""
    fast, full = (case.run(coalesce=coalesce, record="spans") for coalesce in (True, False))
    assert_same_outcomes(fast.outcomes, full.outcomes)
    for field in Simulation.__dataclass_fields__:
        if field not in ("outcomes", "engine_cpu_s", "written", "num_jumps"):
            assert getattr(fast, field) == getattr(full, field), field
    for name in ("batch_sizes", "step_tokens", "step_times"):
        for column in ("values", "counts"):
            np.testing.assert_array_equal(
                getattr(getattr(fast, name)(), column), getattr(getattr(full, name)(), column)
            )
    gaps, gaps_of_full = fast.inter_token_latencies(), full.inter_token_latencies()
    for name in ("mean_us", "p99_us", "gaps_us", "counts"):
        np.testing.assert_array_equal(getattr(gaps, name), getattr(gaps_of_full, name), err_msg=name)
    totals, totals_of_full = (run.written.state.engine[0].totals for run in (fast, full))
    for name in ("num_cache_queries", "num_completed", "num_emissions"):
        assert totals[name] == totals_of_full[name], name


@examples(600)
@given(counted_cases, st.sampled_from((0.0, 0.0, 3.5, 60.0)), st.sampled_from((0, 0, 1, 2, 5)))
def test_counting_changes_nothing_that_is_told(case: Case, host_us: float, cap: int) -> None:
    assert_same_run(roomy(case, host_us=host_us, cap=cap))


@examples(900)
@given(st.one_of(counted_cases, impatient_cases), st.integers(11, 60), st.sampled_from((0, 0, 2)))
def test_where_blocks_lack_or_a_client_gives_up_the_full_engine_goes_on(
    case: Case, num_blocks: int, cap: int
) -> None:
    """Eleven blocks hold the longest request; one that they do not hold preempts itself without end."""
    assert_same_run(roomy(case, num_blocks=num_blocks, cap=cap))


@examples(600)
@given(
    st.one_of(counted_cases, impatient_cases),
    st.sampled_from((ROOMY, 120, 40)),
    st.sampled_from((0, 0, 2)),
    st.sampled_from(GROUPS),
)
def test_groups_are_counted_where_they_have_room(
    case: Case, num_blocks: int, cap: int, groups: tuple[KVCacheGroup, ...]
) -> None:
    case = roomy(case, num_blocks=num_blocks, cap=cap)
    if any(group.kind == "state" for group in groups):
        case = case.under(enable_prefix_caching=False)
    if case.config.block_size == 3:  # vLLM wants the sizes of groups to divide each other
        case = case.under(block_size=4)
    assert_same_run(case.under(kv_cache_groups=groups))


def crowd(**changes: Any) -> Case:  # noqa: ANN401 - settings of any kind
    """Return 300 requests that come faster than they are served: the cache runs full while most of them wait."""
    random = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for number in range(300):
        prompt, output = random.integers(1, 200, 2).tolist()
        rows.append({"arrival_us": 700 * number, "prompt": prompt, "output": output, "priority": number % 3})
        rows[-1]["hash_ids"] = [number * 100 + block for block in range(prompt // 16)]
    settings = {"num_gpu_blocks": 300, "max_num_seqs": 64, "max_num_batched_tokens": 512}
    config = EngineConfig(**{**settings, **changes})
    return Case(requests=requests_of(rows), config=config, latency=Blackbox(beta0=500, beta1=1, beta2=2))


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"enable_prefix_caching": False},
        {"scheduling_policy": "priority"},
        {"watermark": 0.05, "scheduler_reserve_full_isl": False},
    ],
    ids=lambda changes: next(iter(changes), "plain"),
)
def test_a_full_cache_is_handed_over_as_it_is(
    counted: list[bool], is_async: bool, changes: dict[str, Any]
) -> None:
    case = crowd(async_scheduling=is_async, **changes)
    full = case.run(coalesce=False)
    assert full.num_preemptions > 10
    assert_same_run(case)
    assert counted == [False]
    for percent in (5, 10, 20, 40, 70):
        assert_same_run(replace(case, until_us=full.duration_us * percent // 100))


def test_a_head_that_does_not_fit_is_waited_for_while_blocks_are_counted(counted: list[bool]) -> None:
    """Prompts of nine blocks and three more tokens: the cache is full of prompts, and none of them needs a block."""
    rows = [{"arrival_us": 10 * number, "prompt": 140, "output": 3} for number in range(200)]
    case = Case(
        requests=requests_of(rows),
        config=EngineConfig(num_gpu_blocks=60, max_num_seqs=64, max_num_batched_tokens=512),
        latency=Blackbox(beta0=500, beta1=1, beta2=2),
    )
    assert case.run(coalesce=False).num_kv_allocation_failures > 100
    assert_same_run(case)
    assert counted == [True]


@examples(100)
@given(cases(closed=None, model=any_model), cases(model=any_model), st.sampled_from((ROOMY, 40)))
def test_a_simulator_counts_where_it_can(case: Case, other: Case, num_blocks: int) -> None:
    case = roomy(case, num_blocks=num_blocks)
    simulator = Simulator(case.requests, case.config, closed_loop=case.closed_loop)
    for latency in (case.latency, other.latency, case.latency):
        expected = replace(case, latency=latency).run(coalesce=False).outcomes
        assert_same_outcomes(simulator.outcomes(latency), expected)


def three(**changes: Any) -> Case:  # noqa: ANN401 - settings of any kind
    """Return a small case that counts, with some settings changed."""
    rows = [{"arrival_us": at, "prompt": 20, "output": 5} for at in (0, 10, 5000)]
    config = EngineConfig(num_gpu_blocks=100, max_num_seqs=8, **changes)
    return Case(requests=requests_of(rows), config=config, latency=Blackbox(beta0=100, beta1=1, beta2=2))


def test_most_plain_runs_count(counted: list[bool]) -> None:
    three().run()
    assert counted == [True]


@pytest.mark.parametrize(
    "changes",
    [
        {"pipeline_parallel_size": 2},
        {"max_num_batched_tokens": 7},
        {"batching": "orca", "async_scheduling": False, "enable_prefix_caching": False},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_counting_does_not_know_is_refused(counted: list[bool], changes: dict[str, Any]) -> None:
    assert_same_outcomes(three(**changes).run().outcomes, three(**changes).run(coalesce=False).outcomes)
    assert not any(counted)


def test_shared_prompts_and_records_of_steps_are_refused(counted: list[bool]) -> None:
    case = three()
    requests = case.requests
    shared = replace(requests, hash_offsets=np.array([0, 1, 2, 2]), hash_ids=np.array([0, 0]))
    same_place = replace(
        requests, hash_offsets=np.zeros(3, np.int64), hash_counts=np.array([1, 1, 0]), hash_ids=np.array([0])
    )
    for changed in (shared, same_place):
        replace(case, requests=changed).run()
    case.run(record="steps")
    case.run(record="tokens")
    assert not any(counted)
    apart = replace(requests, hash_offsets=np.array([0, 1, 2, 2]), hash_ids=np.array([0, 1]))
    replace(case, requests=apart).run()
    assert counted[-1]


def test_a_cache_that_might_run_full_is_noticed_and_nothing_is_lost(counted: list[bool]) -> None:
    case = three(block_size=16)
    tight = case.under(num_gpu_blocks=5)  # two requests hold two blocks each; the null block is one
    assert_same_outcomes(tight.run().outcomes, tight.run(coalesce=False).outcomes)
    waits = case.under(num_gpu_blocks=4)  # the second waits until the first is done
    assert_same_run(waits)
    grow = replace(waits, requests=replace(case.requests, prompt_tokens=np.full(3, 16)))
    assert_same_run(grow)  # two are admitted with a block each; their second ones are one too many
    assert counted == [True, True, False]


def test_a_horizon_is_counted_up_to(counted: list[bool]) -> None:
    case = three()
    cut = simulate(case.requests, case.config, case.latency, until_us=300)
    assert counted == [True]
    assert cut.num_running == 2


@pytest.mark.parametrize("is_async", [True, False])
def test_a_request_may_come_at_any_microsecond_of_a_jump(is_async: bool) -> None:
    """Steps of 12 µs: it comes when one ends, just before and just after, and while all seats are taken."""
    config = EngineConfig(num_gpu_blocks=100, max_num_seqs=2, async_scheduling=is_async)
    for at in range(40, 70):
        rows = [
            {"arrival_us": 0, "prompt": 2, "output": 9},
            {"arrival_us": at, "prompt": 2, "output": 4},
            {"arrival_us": at + 5, "prompt": 2, "output": 2},
        ]
        latency = Blackbox(beta0=10, beta1=1, beta2=2)
        assert_same_run(Case(requests=requests_of(rows), config=config, latency=latency))


@pytest.mark.parametrize("deadline_us, expected", [(9000, True), (300, False)])
def test_a_run_counts_where_nobody_gives_up(counted: list[bool], deadline_us: int, expected: bool) -> None:
    case = three()
    patience = np.array([-1, deadline_us, -1])
    case = replace(case, requests=replace(case.requests, deadline_us=patience))
    assert_same_outcomes(case.run().outcomes, case.run(coalesce=False).outcomes)
    assert counted == [expected]


@examples(600)
@given(impatient_cases, st.sampled_from((0.0, 3.5)), st.sampled_from((0, 0, 2, 5)))
def test_deadlines_change_nothing_that_is_told(case: Case, host_us: float, cap: int) -> None:
    assert_same_run(roomy(case, host_us=host_us, cap=cap))


@examples(600)
@given(
    st.one_of(counted_cases, impatient_cases),
    st.sampled_from((0.0, 0.0, 3.5, 60.0)),
    st.sampled_from((0, 0, 2, 5)),
    st.sampled_from((ROOMY, ROOMY, ROOMY, 40)),
    st.integers(1, 99),
)
def test_a_horizon_cuts_where_it_cuts_a_full_run(
    case: Case, host_us: float, cap: int, num_blocks: int, percent: int
) -> None:
    case = roomy(case, num_blocks=num_blocks, host_us=host_us, cap=cap)
    horizon_us = max(case.run().duration_us * percent // 100, 1)
    assert_same_run(replace(case, until_us=horizon_us))


@examples(600)
@given(
    counted_cases,
    st.sampled_from((0.0, 0.0, 3.5, 60.0)),
    st.sampled_from((0, 0, 2, 5)),
    st.sampled_from((ROOMY, ROOMY, ROOMY, 40)),
    st.sampled_from((1, 4, 16)),
)
def test_looks_see_what_they_see_of_a_full_run(
    case: Case, host_us: float, cap: int, num_blocks: int, block_size: int
) -> None:
    """So many looks that one falls on each µs of most runs, and on the very bounds of their steps."""
    assert_same_looks(
        roomy(case.under(block_size=block_size), num_blocks=num_blocks, host_us=host_us, cap=cap)
    )


def assert_same_looks(case: Case) -> None:
    """Assert that a counted run shows at each look what the full engine shows."""
    fast, full = (
        case.run(coalesce=coalesce, record="spans", points=4000).looks for coalesce in (True, False)
    )
    assert fast is not None
    assert full is not None
    np.testing.assert_array_equal(fast.time_us, full.time_us)
    np.testing.assert_array_equal(fast.rows, full.rows)
