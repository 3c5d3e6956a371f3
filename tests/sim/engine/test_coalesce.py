"""Taking many decode steps at once and taking them singly give the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, Extended, Simulation, Status
from sim.engine.state import State
from tests.examples import examples
from tests.sim.strategies import (
    Case,
    any_model,
    assert_same_outcomes,
    blackbox,
    cases,
    requests_of,
)


def assert_same_totals(jumped: Simulation, stepped: Simulation) -> None:
    for name in ("num_steps", "num_preemptions", "num_kv_allocation_failures", "duration_us"):
        assert getattr(jumped, name) == getattr(stepped, name), name


@examples(250)
@given(cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True))
def test_jumps_change_no_outcome_and_no_total(case: Case) -> None:
    jumped, stepped = case.run(), case.run(coalesce=False)
    assert_same_outcomes(jumped.outcomes, stepped.outcomes)
    assert_same_totals(jumped, stepped)
    assert stepped.num_jumps == 0


def test_a_head_whose_hits_are_evicted_asks_for_no_block_once_its_prompt_is_too_long_for_a_step() -> None:
    """Without chunked prefill: one that was preempted finds its own blocks, until decoding evicts them."""
    prompts, outputs = (5, 3, 3, 3, 1, 1, 1, 1), (17, 1, 11, 7, 1, 1, 1, 1)
    rows = [
        {"arrival_us": 50 * (number > 1), "prompt": prompt, "output": output}
        for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    ]
    config = EngineConfig(
        max_num_seqs=4,
        max_num_batched_tokens=8,
        num_gpu_blocks=11,
        block_size=4,
        max_model_len=1000,
        enable_chunked_prefill=False,
        async_scheduling=False,
    )
    latency = Extended(
        beta0=0.7, beta1=0.7, beta2=0.7, beta3=0.07, beta4=0.007, beta5=0.7, floor=7, kappa=0, u0=0
    )
    case = Case(requests=requests_of(rows), config=config, latency=replace(latency, tau_s=1e-4))
    jumped, stepped = case.run(), case.run(coalesce=False)
    assert stepped.num_preemptions > 0
    assert_same_totals(jumped, stepped)


@examples(100)
@given(cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True))
def test_jumps_change_no_token_s_time_nor_the_order_of_tokens(case: Case) -> None:
    (jumped, jumped_us), (stepped, stepped_us) = (
        case.run(coalesce=is_on, record="tokens").tokens() for is_on in (True, False)
    )
    np.testing.assert_array_equal(jumped, stepped)
    np.testing.assert_array_equal(jumped_us, stepped_us)


@examples(100)
@given(cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True))
def test_jumps_change_no_inter_token_latency(case: Case) -> None:
    jumped, stepped = (
        case.run(coalesce=is_on, record="spans").inter_token_latencies() for is_on in (True, False)
    )
    for name in ("mean_us", "p99_us", "gaps_us", "counts"):
        np.testing.assert_array_equal(getattr(jumped, name), getattr(stepped, name), err_msg=name)


@examples(100)
@given(cases(closed=None, model=any_model, costly=True, stopping=True))
def test_jumps_change_no_count_of_a_step_s_requests_tokens_and_time(case: Case) -> None:
    jumped, stepped = (case.run(coalesce=is_on, record="spans") for is_on in (True, False))
    for name in ("batch_sizes", "step_tokens", "step_times"):
        np.testing.assert_array_equal(getattr(jumped, name)().values, getattr(stepped, name)().values)
        np.testing.assert_array_equal(getattr(jumped, name)().counts, getattr(stepped, name)().counts)


@examples(50)
@given(cases(closed=None, model=any_model, stopping=True))
def test_tokens_per_step_are_those_of_the_steps(case: Case) -> None:
    run = case.run(record="steps")
    tokens = np.array([n for n in (step.P + step.D for step in run.steps()) if n], np.int64)
    values, counts = np.unique(tokens, return_counts=True)
    found = run.step_tokens()
    np.testing.assert_array_equal(found.values[found.values < 512], values[values < 512])
    np.testing.assert_array_equal(found.counts[found.values < 512], counts[values < 512])
    assert found.counts.sum() == len(tokens)


@examples(100)
@given(cases(is_async=False, closed=None, model=any_model, stopping=True))
def test_a_sync_engine_does_not_ask_who_ends_by_itself(case: Case) -> None:
    case = case.under(frontend="none")  # another one refuses by max_tokens
    plain = replace(case, requests=replace(case.requests, max_tokens=None))
    assert_same_outcomes(case.run().outcomes, plain.run().outcomes)


def test_an_end_that_nobody_has_seen_costs_an_async_engine_one_decode_more() -> None:
    """Two requests of 5 and 9 tokens: the first decodes for nobody in the step beside the other's sixth decode."""
    rows = [{"arrival_us": 0, "prompt": 4, "output": output} for output in (5, 9)]
    config = EngineConfig(async_scheduling=True, num_gpu_blocks=100)
    case = Case(requests=requests_of(rows), config=config, latency=Blackbox(beta0=100, beta2=10))
    stops = replace(case, requests=replace(case.requests, max_tokens=np.array([6, 9])))
    at_limit, by_itself = (
        each.run(record="steps").step_batches()[0].num_decode_tokens for each in (case, stops)
    )
    assert at_limit.sum() == 4 + 8
    assert by_itself.sum() == 4 + 8 + 1
    later_us = stops.run().outcomes.last_token_us - case.run().outcomes.last_token_us
    assert later_us.tolist() == [0, 10]
    assert_same_outcomes(stops.run().outcomes, stops.run(coalesce=False).outcomes)


def test_each_try_for_a_block_that_is_not_free_counts() -> None:
    """Four blocks for two prompts of three: in both steps of the first the second is tried, in vain."""
    rows = [{"arrival_us": 0, "prompt": 11, "output": 2}, {"arrival_us": 0, "prompt": 11, "output": 1}]
    config = EngineConfig(block_size=4, num_gpu_blocks=5, async_scheduling=False, enable_prefix_caching=False)
    case = Case(requests=requests_of(rows), config=config, latency=Blackbox(beta0=100))
    assert [case.run(coalesce=is_on).num_kv_allocation_failures for is_on in (True, False)] == [2, 2]


@examples(50)
@given(cases(model=blackbox))
def test_what_is_recorded_changes_nothing(case: Case) -> None:
    plain = case.run()
    for record in ("spans", "steps", "blocks", "tokens"):
        recorded = case.run(record=record)
        assert_same_outcomes(recorded.outcomes, plain.outcomes)
        assert_same_totals(recorded, plain)


@examples(30)
@given(cases(model=blackbox))
def test_a_run_longer_than_a_jump_may_be_is_several_jumps(case: Case) -> None:
    """5,000 outputs each, where a jump takes 4,096 steps at most."""
    requests = replace(case.requests, output_tokens=case.requests.output_tokens + 5000)
    longer = replace(case, requests=requests).under(max_model_len=100_000, num_gpu_blocks=0)
    jumped, stepped = longer.run(), longer.run(coalesce=False)
    assert_same_outcomes(jumped.outcomes, stepped.outcomes)
    assert_same_totals(jumped, stepped)
    assert jumped.num_jumps * 10 < stepped.num_steps


@examples(50)
@given(cases(model=any_model))
def test_asking_twice_gives_the_same_tokens(case: Case) -> None:
    simulation = case.run(record="tokens")
    first, second = simulation.tokens(), simulation.tokens()
    np.testing.assert_array_equal(first, second)
    assert len(first[0]) == simulation.outcomes.num_output_tokens.sum()


NOT_COMPARED = {"num_jumps", "oldest_batch", "next_grammar_us"}
"""How many jumps there were, which of the two batches is which, and what the last look through the queue passed over:
a jump takes none. And all of ``current_step``, a step's scratch."""


def what_lasts(state: State) -> dict[str, np.ndarray]:
    """Return every array of an engine that outlives a step, cut to what is in use."""
    queues = state.engine[0].queues
    lasting = {
        name: array[name]
        for array in (
            state.engine[part]
            for part in ("settings", "clock", "queues", "totals", "log_fill", "last_schedule")
        )
        for name in array.dtype.names
        if name not in NOT_COMPARED
    }
    for name in state.requests.dtype.names:
        lasting[f"request.{name}"] = state.requests[name]
    for name in state.blocks.dtype.names:
        lasting[f"block.{name}"] = state.blocks[name]
    owners = state.requests[state.requests["slot"] >= 0]
    tables = [state.block_table[row["slot"], : row["num_blocks"]] for row in owners]
    lasting["block_table"] = np.concatenate([*tables, np.zeros(0, np.uint32)])
    lasting["hash.oldest"], lasting["hash.newest"] = state.hashes["oldest"], state.hashes["newest"]
    lasting["running"] = state.running[: queues.num_running]
    lasting["batch_sizes"], lasting["step_times"] = state.batch_sizes, state.step_times
    lasting["step_tokens"] = state.step_tokens
    lasting["heap"] = state.heap[: queues.num_waiting]
    return lasting


@examples(200)
@given(
    cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True),
    st.lists(st.integers(0, 2000), min_size=1, max_size=5),
)
def test_jumps_leave_the_very_state_that_steps_leave(case: Case, slices: list[int]) -> None:
    """Every block, hash and queue, at any time one cares to stop at."""
    assert_same_states(case, slices)


def assert_same_states(case: Case, slices: list[int]) -> None:
    """Compare what jumps and single steps leave after each of some slices of time, in µs."""
    jumping, stepping = (
        Engine(case.requests, case.config, case.latency, coalesce=is_on) for is_on in (True, False)
    )
    now_us = 0
    for length_us in slices:
        now_us += length_us
        jumping.advance(now_us)
        stepping.advance(now_us)
        theirs = what_lasts(stepping._state)
        for name, ours in what_lasts(jumping._state).items():
            np.testing.assert_array_equal(ours, theirs[name], err_msg=name)


def test_a_refusal_within_the_last_step_is_as_pending_after_a_jump_as_after_the_step() -> None:
    """The front end refuses at 150 a prompt as long as the model's limit; the step ends at 200."""
    rows = [{"arrival_us": 0, "prompt": 1, "output": 50}, {"arrival_us": 150, "prompt": 100, "output": 2}]
    config = EngineConfig(block_size=4, max_model_len=100, async_scheduling=False)
    case = Case(requests=requests_of(rows), config=config, latency=Blackbox(beta0=100))
    assert Status(int(case.run().outcomes.status[1])) == Status.REJECTED
    assert_same_states(case, [113, 100, 100])


def test_a_jump_stops_where_decoding_fills_a_block_that_lets_the_head_in() -> None:
    """The second prompt is what the first request is writing: a block it fills is one the head need not have."""
    rows = [
        {"arrival_us": 0, "prompt": 4, "output": 40, "hash_ids": range(11)},
        {"arrival_us": 1850, "prompt": 44, "output": 1, "hash_ids": range(11)},
    ]
    config = EngineConfig(block_size=4, num_gpu_blocks=12, async_scheduling=False)
    case = Case(requests=requests_of(rows), config=config, latency=Blackbox(beta0=100))
    outcomes = case.run().outcomes
    assert_same_outcomes(outcomes, case.run(coalesce=False).outcomes)
    assert outcomes.queued_us[1] + 100 < outcomes.scheduled_us[1] < outcomes.last_token_us[0]
