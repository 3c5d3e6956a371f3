"""Grammars, adapters, encoders and drafts: what they add, by hand; the reference and the jumps have them at random."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from sim import Blackbox, EngineConfig, InvalidConfig, Requests, Simulation, Status, simulate
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, requests_of

SYNC = EngineConfig(async_scheduling=False)
MS = Blackbox(beta0=1000)
Setting = int | float | tuple[float, ...]


def crowd(*rows: tuple[int, int, int]) -> Requests:
    """Return requests of (arrival_us, prompt, output)."""
    return requests_of([{"arrival_us": a, "prompt": p, "output": o} for a, p, o in rows])


def run(requests: Requests, **settings: Setting) -> Simulation:
    return simulate(requests, replace(SYNC, **settings), MS)  # type: ignore[arg-type]


def test_a_grammar_compiles_before_its_request_can_run_and_keeps_its_place() -> None:
    """One seat; the second's grammar is there at 500, while the first runs, so it still goes before the third."""
    requests = replace(
        crowd((0, 1, 1), (0, 1, 1), (100, 1, 1)), is_guided=np.array([False, True, False], np.bool_)
    )
    outcomes = run(requests, guided_compile_us=500, max_num_seqs=1).outcomes
    assert outcomes.scheduled_us.tolist() == [0, 1000, 2000]
    assert outcomes.queued_us.tolist() == [0, 0, 100]


def test_a_grammar_that_takes_longer_lets_others_by() -> None:
    requests = replace(
        crowd((0, 1, 1), (0, 1, 1), (100, 1, 1)), is_guided=np.array([False, True, False], np.bool_)
    )
    outcomes = run(requests, guided_compile_us=1500, max_num_seqs=1).outcomes
    assert outcomes.scheduled_us.tolist() == [0, 2000, 1000]


def test_who_waits_for_a_grammar_at_a_horizon_is_not_stuck() -> None:
    """Nobody else is there: what comes next is the grammar, beyond the end."""
    requests = replace(crowd((0, 1, 1), (0, 1, 1)), is_guided=np.array([True, False]))
    cut = simulate(requests, replace(SYNC, guided_compile_us=5000), MS, until_us=3000)
    assert [Status(each).name for each in cut.outcomes.status] == ["UNFINISHED", "OK"]
    assert (cut.num_running, cut.num_waiting) == (0, 1)


def test_a_mask_takes_time_in_each_step_of_each_guided_request() -> None:
    """Two steps with three requests, two of them guided; then two of the first alone."""
    requests = replace(crowd((0, 1, 4), (0, 1, 2), (0, 1, 2)), is_guided=np.array([True, True, False]))
    outcomes = run(requests, guided_mask_us=10.5).outcomes
    assert outcomes.last_token_us.tolist() == [2 * 1021 + 1010 + 1010, 2042, 2042]


def test_an_encoder_works_once_when_the_prompt_is_first_scheduled() -> None:
    """Its prompt takes two steps of 64 tokens; preemption aside nothing is encoded again."""
    requests = replace(crowd((0, 128, 2)), encoder_tokens=np.array([100], np.int64))
    outcomes = run(requests, encoder_token_us=2.0, max_num_batched_tokens=64).outcomes
    assert outcomes.last_token_us.tolist() == [1200 + 1000 + 1000]


def test_drafting_takes_time_in_every_step_that_samples() -> None:
    plain = run(crowd((0, 1, 30)), num_speculative_tokens=3, synthetic_acceptance_rates=(0.5,))
    costly = run(crowd((0, 1, 30)), num_speculative_tokens=3, synthetic_acceptance_rates=(0.5,), draft_us=7.0)
    assert costly.num_steps == plain.num_steps
    assert costly.duration_us - plain.duration_us == 21 * plain.num_steps


def test_a_batch_holds_so_many_adapters_and_the_queue_goes_on_behind_who_waits() -> None:
    """The second wants another adapter than the first; the third, of the first's, goes by; so does one of none."""
    requests = replace(
        crowd((0, 1, 3), (0, 1, 1), (0, 1, 1), (0, 1, 1)), adapter=np.array([0, 1, 0, -1], np.int64)
    )
    outcomes = run(requests, max_loras=1).outcomes
    assert outcomes.scheduled_us.tolist() == [0, 3000, 0, 0]


def test_an_adapter_is_loaded_once_while_it_keeps_its_place() -> None:
    """One place: 0 and 1 take turns and are loaded each time; two places: once each."""
    requests = replace(
        crowd((0, 1, 1), (10_000, 1, 1), (20_000, 1, 1), (30_000, 1, 1)),
        adapter=np.array([0, 1, 0, 0], np.int64),
    )
    for places, loads in ((1, [1, 1, 1, 0]), (2, [1, 1, 0, 0]), (0, [1, 1, 0, 0])):
        simulation = run(requests, max_loras=places, lora_load_us=300)
        took_us = simulation.outcomes.last_token_us - simulation.outcomes.scheduled_us
        assert took_us.tolist() == [1000 + 300 * load for load in loads]
        assert simulation.num_lora_loads == sum(loads)


def test_steps_with_an_adapter_are_longer_by_a_factor() -> None:
    requests = replace(crowd((0, 1, 2), (50_000, 1, 2)), adapter=np.array([-1, 4], np.int64))
    outcomes = run(requests, lora_step_factor=1.25).outcomes
    assert (outcomes.last_token_us - outcomes.scheduled_us).tolist() == [2000, 2500]


@examples(100)
@given(cases(closed=None, model=any_model, costly=True))
def test_traits_cost_nothing_where_no_setting_says_so(case: Case) -> None:
    free = case.under(
        max_loras=0,
        lora_load_us=0,
        lora_step_factor=1.0,
        guided_compile_us=0,
        guided_mask_us=0.0,
        encoder_step_us=0.0,
        encoder_token_us=0.0,
    )
    plain = replace(free, requests=replace(case.requests, is_guided=None, encoder_tokens=None, adapter=None))
    assert_same_outcomes(free.run().outcomes, plain.run().outcomes)


@examples(150)
@given(cases(model=any_model, costly=True))
def test_no_step_has_more_adapters_than_it_may(case: Case) -> None:
    """But for running requests that had to sit a step out while others were admitted, which vLLM does not check."""
    adapter, limit = case.requests.adapter, case.config.max_loras
    if adapter is None or limit == 0:
        return
    for step in case.run(record="steps").steps():
        admitted = {request for request, _ in step.hits}
        before = {adapter[request] for request, *_ in step.sched if request not in admitted} - {-1}
        after = {adapter[request] for request, *_ in step.sched} - {-1}
        assert len(after) <= max(limit, len(before))


def test_the_drawn_cases_load_adapters_and_let_others_by() -> None:
    seen: Counter[str] = Counter()

    @examples(300, is_counted=True)
    @given(cases(closed=None, costly=True))
    def count(case: Case) -> None:
        if case.requests.adapter is None:
            return
        simulation = case.run()
        seen["loads"] += simulation.num_lora_loads > 3
        if case.config.scheduling_policy == "fcfs" and case.config.max_loras:
            order = np.argsort(simulation.outcomes.queued_us, kind="stable")
            scheduled = simulation.outcomes.scheduled_us[order]
            seen["passed"] += bool((np.diff(scheduled[scheduled >= 0]) < 0).any())
        seen["jumps"] += simulation.num_jumps > 0

    count()
    assert all(seen[name] >= 8 for name in ("loads", "passed", "jumps")), seen


@pytest.mark.parametrize(
    ("setting", "value"),
    [("guided_mask_us", -1.0), ("lora_step_factor", 0.5), ("draft_us", float("inf")), ("max_loras", -1)],
)
def test_a_cost_that_is_none_is_refused(setting: str, value: float) -> None:
    with pytest.raises(InvalidConfig, match=rf"^{setting}: got {value}, expected "):
        EngineConfig(**{setting: value})  # type: ignore[arg-type]
