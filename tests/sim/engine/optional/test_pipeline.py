"""Pipeline stages: several batches in flight, as vLLM's batch queue has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import get_args
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, EngineConfig, InvalidConfig, PeakTimes, Roofline, simulate
from sim.features.pipeline_stage_settings import AsyncPipeline
from sim.versions import VersionRules, rules_of
from tests.examples import examples
from tests.sim.engine.test_reference import KEYS, bounded, reference_outcomes, run_reference
from tests.sim.step_batches import batch_of
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, requests_of

MS = Blackbox(beta0=1000)
ROOMS = ("sim.engine_settings", "sim.setting_faults", "sim.engine.initial_state", "tests.sim.reference")


@contextmanager
def async_pipeline(way: AsyncPipeline) -> Iterator[None]:
    """Let every version do with stages and async scheduling what one of them does."""

    def changed(version: str) -> VersionRules:
        return replace(rules_of(version), async_pipeline=way)

    with ExitStack() as stack:
        for room in ROOMS:
            stack.enter_context(mock.patch(f"{room}.rules_of", changed))
        yield


def assert_equals_the_reference(case: Case) -> None:
    reference, simulation = run_reference(case), case.run(record="blocks")
    steps = simulation.steps()
    for mine, theirs in zip(steps, reference.steps, strict=False):
        assert {key: value for key in KEYS if (value := getattr(mine, key)) is not None} == theirs
    assert len(steps) == len(reference.steps)
    assert_same_outcomes(simulation.outcomes, reference_outcomes(reference))


@examples(200)
@given(cases(closed=None, impatient=True, costly=True, staged=True))
def test_every_step_and_every_block_with_stages_is_the_reference_s(case: Case) -> None:
    assert_equals_the_reference(bounded(case))


@examples(100)
@given(cases(closed=None, staged=True, is_async=True), st.sampled_from(get_args(AsyncPipeline)[1:]))
def test_older_ways_of_async_scheduling_with_stages_are_the_reference_s(
    case: Case, way: AsyncPipeline
) -> None:
    with async_pipeline(way):
        assert_equals_the_reference(bounded(case))


@examples(100)
@given(cases(staged=True, model=any_model))
def test_batches_leave_the_stages_one_after_the_other_each_in_at_least_its_time(case: Case) -> None:
    steps = [step for step in case.run(record="steps").steps() if step.sched and step.exec_start is not None]
    for step in steps:
        assert step.t <= (step.exec_start or 0)
        assert (step.exec_start or 0) + step.dur <= (step.exec_end or 0) <= step.t_end
    by_number = sorted(steps, key=lambda step: step.step)
    ends = [step.exec_end for step in by_number]
    assert ends == sorted(ends)  # type: ignore[type-var]  # none is None, as above
    starts = [step.exec_start for step in by_number]
    assert starts == sorted(starts)  # type: ignore[type-var]


# -- what stages are for ---------------------------------------------------------------------------------


def decodes(num_stages: int, rows: list[dict[str, int]], *, is_async: bool) -> np.ndarray:
    """Return when each of some requests got its last token, all of a model of 1 ms per batch and stages together."""
    config = EngineConfig(pipeline_parallel_size=num_stages, async_scheduling=is_async, max_num_seqs=64)
    return simulate(requests_of(rows), config, MS).outcomes.last_token_us  # type: ignore[no-any-return]


def test_requests_that_fit_into_one_batch_leave_the_other_stages_idle() -> None:
    """vLLM fills its queue with an empty batch and waits: who comes meanwhile joins the next batch, and stays in it."""
    rows = [{"arrival_us": 0, "prompt": 1, "output": 50}, {"arrival_us": 500, "prompt": 1, "output": 50}]
    assert decodes(2, rows, is_async=False).tolist() == [50_000, 51_000]


@pytest.mark.parametrize("is_async", [False, True])
def test_saturated_by_decodes_two_stages_have_twice_the_throughput(is_async: bool) -> None:
    """Seats and tokens per step of one batch hold 8 requests; 400 wait. Each stage has its own batch of 8."""
    rows = [{"arrival_us": 0, "prompt": 1, "output": 20} for _ in range(400)]
    spans_us = []
    for num_stages in (1, 2):
        config = EngineConfig(
            pipeline_parallel_size=num_stages,
            async_scheduling=is_async,
            max_num_seqs=8 * num_stages,
            max_num_batched_tokens=8,
        )
        spans_us.append(int(simulate(requests_of(rows), config, MS).outcomes.last_token_us.max()))
    assert spans_us[0] / spans_us[1] == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("num_stages", [1, 2, 3, 4])
@pytest.mark.parametrize("is_async", [False, True])
def test_alone_a_request_takes_as_long_whatever_the_stages(num_stages: int, is_async: bool) -> None:
    ends_us = decodes(num_stages, [{"arrival_us": 0, "prompt": 9, "output": 30}], is_async=is_async)
    assert ends_us.tolist() == [30_000]


def test_a_prompt_s_chunks_follow_each_other_through_the_stages() -> None:
    """Four chunks of 1 ms in two stages of 0.5 ms: the last one leaves after 0.5 x (4 + 1) ms."""
    config = EngineConfig(
        pipeline_parallel_size=2, max_num_batched_tokens=16, max_num_seqs=1, async_scheduling=False
    )
    simulation = simulate(requests_of([{"arrival_us": 0, "prompt": 64, "output": 1}]), config, MS)
    assert simulation.outcomes.first_token_us.tolist() == [2500]


def test_every_batch_waits_for_the_tokens_it_reads_where_no_rule_keeps_them_apart() -> None:
    """Async scheduling from 0.16 to 0.22: each batch holds all decodes, so that one stage is busy at a time."""
    rows = [{"arrival_us": 0, "prompt": 1, "output": 100} for _ in range(2)]
    with async_pipeline("every batch"):
        config = EngineConfig(pipeline_parallel_size=2)
        assert simulate(requests_of(rows), config, MS).outcomes.last_token_us.tolist() == [100_000] * 2


# -- the time of a stage ---------------------------------------------------------------------------------

PEAK = PeakTimes(
    matmul=8,
    weights=4000,
    head_matmul=3,
    head_weights=900,
    prefill_pair=0.01,
    decode_entry=0,
    kv_entry=0.5,
    kv_write=0,
    activation=1,
    num_layers=10,
    pp=2,
)
STEPS = batch_of([[(1, 500, True)] * 9, [(300, 0, False), (1, 50, True)], [(1, 1, True)]])


def test_a_batch_takes_as_long_in_stages_as_on_one_gpu_and_the_hop_between() -> None:
    """Roofline: layers are divided, nothing of a batch is done twice; the hop is one launch."""
    usual = {"cpu_step_us": 0.0, "cpu_sequence_us": 0.0}
    staged, whole = (Roofline(peak=replace(PEAK, pp=pp), **usual) for pp in (2, 1))  # type: ignore[arg-type]
    hop_us = staged.all_reduce_us
    assert staged.durations_us(STEPS) == pytest.approx(whole.durations_us(STEPS) + hop_us, abs=1)


def test_the_last_stage_has_the_lm_head_and_the_end_of_the_step_to_itself() -> None:
    """A request alone: its second batch of two goes in when the first stage is free, before the last has done."""
    model = Roofline(alpha0=0, peak=PEAK, cpu_step_us=0, cpu_sequence_us=0)
    config = EngineConfig(pipeline_parallel_size=2, max_num_batched_tokens=100, async_scheduling=False)
    requests = requests_of([{"arrival_us": 0, "prompt": 200, "output": 1}])
    first, second = (step for step in simulate(requests, config, model, record="steps").steps() if step.sched)
    ends_us = 900 / 0.85 + model.step_us + model.sequence_us
    assert first.exec_end is not None
    assert second.exec_start is not None
    assert 2 * second.exec_start == pytest.approx(first.dur - ends_us, abs=3)
    assert first.exec_end == first.dur


# -- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pipeline_parallel_size": 0}, "pipeline_parallel_size: got 0, expected an integer >= 1"),
        (
            {"num_speculative_tokens": 2, "synthetic_acceptance_rates": (0.5,)},
            "pipeline_parallel_size: cannot be combined with num_speculative_tokens, expected 1",
        ),
        (
            {"compatibility": "blis", "async_scheduling": False},
            "pipeline_parallel_size: got 2 with compatibility blis, expected 1",
        ),
        (
            {"vllm_version": "0.14.1", "async_scheduling": True},
            "async_scheduling: got true with pipeline_parallel_size 2, expected false: vLLM 0.14.1 cannot do both",
        ),
    ],
)
def test_what_stages_do_not_go_with_is_refused(settings: dict[str, object], message: str) -> None:
    version = str(settings.pop("vllm_version", "0.32.0"))
    with pytest.raises(InvalidConfig, match=message):
        EngineConfig.for_version(version, **{"pipeline_parallel_size": 2, **settings})


def test_the_batch_queue_is_as_long_as_vllm_s() -> None:
    """config/vllm.py:max_concurrent_batches of 0.23 to 0.32; the executors' up to 0.22."""
    lengths = {
        (version, stages): EngineConfig.for_version(
            version, pipeline_parallel_size=stages
        ).max_concurrent_batches
        for version in ("0.13.0", "0.14.0", "0.15.1", "0.22.0", "0.23.0", "0.32.0")
        for stages in (1, 3)
    }
    assert lengths == {
        ("0.13.0", 1): 1, ("0.13.0", 3): 3, ("0.14.0", 1): 2, ("0.14.0", 3): 3, ("0.15.1", 1): 2, ("0.15.1", 3): 3,
        ("0.22.0", 1): 2, ("0.22.0", 3): 3, ("0.23.0", 1): 2, ("0.23.0", 3): 4, ("0.32.0", 1): 2, ("0.32.0", 3): 4,
    }  # fmt: skip
    assert EngineConfig(async_scheduling=False, pipeline_parallel_size=3).max_concurrent_batches == 3
