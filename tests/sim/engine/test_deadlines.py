"""Clients that give up at their deadline, and runs that end at a horizon."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, Engine, EngineConfig, InvalidConfig, Outcomes, Simulation, Status, simulate
from tests.examples import examples
from tests.sim.strategies import (
    Case,
    Pick,
    any_model,
    assert_same_outcomes,
    blackbox,
    cases,
    picks,
    requests_of,
)

SYNC = EngineConfig(async_scheduling=False)
MS = Blackbox(beta0=1000)


def run(
    *rows: dict[str, Any],
    deadlines: list[int],
    config: EngineConfig = SYNC,
    latency: Blackbox = MS,
    **options: tuple[int, int] | int | str | bool,
) -> Simulation:
    """Simulate rows of one prompt token where they say no other, all arriving at 0 likewise."""
    requests = requests_of([{"arrival_us": 0, "prompt": 1, **row} for row in rows])
    requests = replace(requests, deadline_us=np.array(deadlines, np.int64))
    return simulate(requests, config, latency, **options)


def names(outcomes: Outcomes) -> list[str]:
    return [Status(code).name for code in outcomes.status]


def test_a_running_request_is_dropped_between_two_steps_and_its_place_is_taken() -> None:
    """At 3,500 it computes its fourth token, whose step ends; the next one begins with the other request."""
    outcomes = run(
        {"output": 10}, {"output": 2}, deadlines=[3500, -1], config=replace(SYNC, max_num_seqs=1)
    ).outcomes
    assert names(outcomes) == ["TIMEOUT", "OK"]
    assert outcomes.num_output_tokens.tolist() == [4, 2]
    assert outcomes.scheduled_us.tolist() == [0, 4000]


def test_results_in_flight_are_dropped() -> None:
    """An async engine at 3,000: it has launched the fourth step and takes in the third's results; then it looks."""
    outcomes = run({"output": 10}, deadlines=[2500], config=EngineConfig()).outcomes
    assert names(outcomes) == ["TIMEOUT"]
    assert outcomes.num_output_tokens.tolist() == [3]


def test_an_answer_at_the_deadline_has_come_in_time() -> None:
    outcomes = run({"output": 3}, {"output": 3}, deadlines=[3000, 2999]).outcomes
    assert names(outcomes) == ["OK", "TIMEOUT"]


def test_what_the_client_sees_counts_not_what_the_engine_has() -> None:
    outcomes = run({"output": 3}, deadlines=[3002], latency=Blackbox(beta0=1000, alpha2=1)).outcomes
    assert names(outcomes) == ["TIMEOUT"]
    assert outcomes.num_output_tokens.tolist() == [3]


def test_a_first_token_after_the_deadline_is_not_seen() -> None:
    outcomes = run({"output": 1}, deadlines=[999]).outcomes
    assert (names(outcomes), outcomes.first_token_us.tolist()) == (["TIMEOUT"], [-1])


def test_a_waiting_request_that_blocks_the_queue_makes_way() -> None:
    """The first never fits; the second could run at once, but waits behind it until it goes."""
    config = replace(SYNC, num_gpu_blocks=4)
    outcomes = run({"prompt": 100, "output": 1}, {"output": 1}, deadlines=[5000, -1], config=config).outcomes
    assert names(outcomes) == ["TIMEOUT", "OK"]
    assert outcomes.scheduled_us.tolist() == [-1, 5000]


def test_a_request_may_time_out_on_its_way_into_the_queue() -> None:
    latency = Blackbox(alpha0=5000, beta0=1000)
    outcomes = run({"output": 1}, {"output": 1}, deadlines=[100, -1], latency=latency).outcomes
    assert names(outcomes) == ["TIMEOUT", "OK"]
    assert outcomes.last_token_us.tolist() == [-1, 6000]


def test_a_closed_loop_goes_on_from_the_deadline_and_gives_each_its_time_from_its_arrival() -> None:
    outcomes = run(
        {"output": 9}, {"output": 9}, {"output": 9}, deadlines=[1500, 1500, -1], closed_loop=(1, 100)
    ).outcomes
    assert names(outcomes) == ["TIMEOUT", "TIMEOUT", "OK"]
    assert outcomes.arrival_us.tolist() == [0, 1600, 3200]
    assert outcomes.scheduled_us.tolist() == [0, 2000, 4000]


def test_a_cap_s_slot_is_free_at_the_deadline_which_stays_where_it_is() -> None:
    """The second is sent when the first gives up, and its own deadline is over before its first step."""
    outcomes = run(
        {"output": 9}, {"output": 1}, {"output": 1}, deadlines=[1500, 1600, -1], max_concurrency=1
    ).outcomes
    assert names(outcomes) == ["TIMEOUT", "TIMEOUT", "OK"]
    assert outcomes.arrival_us.tolist() == [0, 1500, 1600]
    assert outcomes.scheduled_us.tolist() == [0, -1, 2000]


@pytest.mark.parametrize("coalesce", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
def test_of_refusals_and_clients_that_give_up_the_first_lets_the_next_go(
    coalesce: bool, is_async: bool
) -> None:
    """While the first step runs: the second is refused at 600, the third comes then and its client leaves at 650, the
    fourth comes then and is refused at 750, when the fifth comes.
    """
    outcomes = run(
        {"output": 3},
        {"output": 99, "arrival_us": 500},
        {"output": 1},
        {"output": 99},
        {"output": 1},
        deadlines=[-1, -1, 50, -1, -1],
        config=EngineConfig(async_scheduling=is_async, max_model_len=50),
        latency=Blackbox(alpha0=100, beta0=1000),
        closed_loop=(2, 0),
        coalesce=coalesce,
    ).outcomes
    assert names(outcomes) == ["OK", "REJECTED", "TIMEOUT", "REJECTED", "OK"]
    assert outcomes.arrival_us.tolist() == [0, 500, 600, 650, 750]
    assert outcomes.scheduled_us.tolist() == [100, -1, -1, -1, 1100]


def test_a_request_that_was_not_sent_before_a_horizon_has_not_timed_out() -> None:
    outcomes = run(
        {"output": 9}, {"output": 1}, deadlines=[-1, 6], closed_loop=(1, 0), until_us=5000
    ).outcomes
    assert names(outcomes) == ["UNFINISHED", "UNFINISHED"]


@examples(150)
@given(cases(closed=None, model=blackbox, impatient=True, costly=True))
def test_no_block_is_lost_by_those_who_go(case: Case) -> None:
    engine = Engine(case.requests, case.config, case.latency)
    if case.closed_loop is not None:
        engine.hold(*case.closed_loop, is_capped=False)
    free = engine.view().num_free_blocks
    engine.advance()
    assume(not (engine.outcomes().status == Status.UNFINISHED).any())
    assert engine.view().num_free_blocks == free
    assert engine.view().num_running == engine.view().num_waiting == 0


@examples(150)
@given(cases(closed=None, model=any_model, impatient=True, costly=True))
def test_who_is_in_time_and_who_is_not(case: Case) -> None:
    """Of an open loop: nobody is OK past its deadline, nobody else is TIMEOUT."""
    assume(case.closed_loop is None and case.requests.deadline_us is not None)
    outcomes, deadline_us = case.run().outcomes, case.requests.deadline_us
    ok, late = outcomes.status == Status.OK, outcomes.status == Status.TIMEOUT
    assert deadline_us is not None
    assert (outcomes.last_token_us[ok & (deadline_us >= 0)] <= deadline_us[ok & (deadline_us >= 0)]).all()
    assert (deadline_us[late] >= 0).all()
    assert not ((outcomes.status == Status.STUCK) & (deadline_us >= 0)).any()


@examples(100)
@given(cases(model=any_model))
def test_deadlines_that_nobody_misses_change_nothing(case: Case) -> None:
    plain = case.run().outcomes
    assume(bool((plain.status == Status.OK).all()))
    patient = replace(case.requests, deadline_us=plain.last_token_us + 1)
    assert_same_outcomes(replace(case, requests=patient).run().outcomes, plain)


def test_the_drawn_cases_time_out_in_every_state() -> None:
    """Running, waiting, preempted, not yet queued, and finished where the client no longer looks."""
    seen: Counter[str] = Counter()

    @examples(400, is_counted=True)
    @given(cases(closed=None, impatient=True, costly=True))
    def count(case: Case) -> None:
        if case.requests.deadline_us is None:
            return
        outcomes = case.run().outcomes
        for i in np.flatnonzero(outcomes.status == Status.TIMEOUT):
            seen["never scheduled"] += outcomes.scheduled_us[i] < 0
            seen["with tokens"] += 0 < outcomes.num_output_tokens[i] < case.requests.output_tokens[i]
            seen["preempted"] += outcomes.num_preemptions[i] > 0
            seen["all tokens"] += outcomes.num_output_tokens[i] == case.requests.output_tokens[i]

    count()
    assert all(seen[name] >= 1 for name in ("never scheduled", "with tokens", "preempted", "all tokens")), (
        seen
    )


# -- horizons -------------------------------------------------------------------------------------------------


@examples(200)
@given(cases(closed=None, model=any_model, impatient=True, costly=True), picks(), st.booleans())
def test_a_horizon_cuts_a_run_and_changes_nothing_before_it(case: Case, pick: Pick, coalesce: bool) -> None:
    whole = case.run()
    until_us = max(1, int(whole.duration_us * pick((0.5, 0.25, 0.75, 0.1, 0.9, 1.0, 2.0))))
    cut = replace(case, until_us=until_us).run(coalesce=coalesce)
    ended = {
        "OK": whole.outcomes.last_token_us <= until_us,
        "REJECTED": (whole.outcomes.arrival_us >= 0) & (whole.outcomes.arrival_us < until_us),
    }
    for name, is_before in ended.items():
        before = (whole.outcomes.status == Status[name]) & is_before
        assert (cut.outcomes.status[before] == Status[name]).all()
        for column in ("arrival_us", "scheduled_us", "first_token_us", "last_token_us", "num_output_tokens"):
            ours, theirs = getattr(cut.outcomes, column), getattr(whole.outcomes, column)
            np.testing.assert_array_equal(ours[before], theirs[before])
        after = (whole.outcomes.status == Status[name]) & ~is_before
        assert np.isin(cut.outcomes.status[after], (Status.UNFINISHED, Status.TIMEOUT)).all()
    unfinished = cut.outcomes.status == Status.UNFINISHED
    absent = unfinished & (cut.outcomes.arrival_us < 0)
    assert cut.num_running + cut.num_waiting == unfinished.sum() - absent.sum()
    assert cut.duration_us <= until_us


@examples(100)
@given(cases(closed=None, model=any_model, impatient=True, costly=True), picks())
def test_jumps_change_nothing_of_a_run_that_is_cut(case: Case, pick: Pick) -> None:
    until_us = max(1, int(case.run().duration_us * pick((0.5, 0.25, 0.75, 0.9))))
    jumped, stepped = (replace(case, until_us=until_us).run(coalesce=is_on) for is_on in (True, False))
    assert_same_outcomes(jumped.outcomes, stepped.outcomes)
    for name in ("num_steps", "num_running", "num_waiting", "duration_us"):
        assert getattr(jumped, name) == getattr(stepped, name)


def test_what_runs_what_waits_and_what_has_not_come() -> None:
    """At 2,500 the first computes its third token, the second waits for its seat, the third comes later."""
    cut = run(
        {"output": 9},
        {"output": 1},
        {"output": 1, "arrival_us": 2500},
        deadlines=[-1, -1, -1],
        config=replace(SYNC, max_num_seqs=1),
        until_us=2500,
    )
    assert names(cut.outcomes) == ["UNFINISHED"] * 3
    assert (cut.num_running, cut.num_waiting, cut.duration_us) == (1, 1, 2500)
    assert cut.outcomes.arrival_us.tolist() == [0, 0, -1]


def test_who_is_stuck_is_stuck_at_a_horizon_too() -> None:
    config = replace(SYNC, num_gpu_blocks=4)
    cut = run({"prompt": 100, "output": 1}, deadlines=[-1], config=config, until_us=10_000)
    assert names(cut.outcomes) == ["STUCK"]


def test_a_horizon_of_no_time_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^until_us: got 0, expected an integer >= 1"):
        simulate(requests_of([]), SYNC, MS, until_us=0)


# -- what steps were like -------------------------------------------------------------------------------------


@examples(100)
@given(cases(closed=None, model=any_model, impatient=True, costly=True))
def test_every_step_with_requests_is_counted_once(case: Case) -> None:
    """Jumps count all their steps; recorded step by step they are the same, and each duration is its bin's."""
    jumped, stepped = case.run(record="spans"), case.run(record="steps")
    steps = [step for step in stepped.steps() if step.sched]
    sizes = Counter(len(step.sched) for step in steps)
    for run_ in (jumped, stepped):
        counted = run_.batch_sizes()
        assert dict(zip(counted.values.tolist(), counted.counts.tolist(), strict=True)) == sizes
    times = jumped.step_times()
    np.testing.assert_array_equal(times.values, stepped.step_times().values)
    np.testing.assert_array_equal(times.counts, stepped.step_times().counts)
    real = np.sort([step.dur for step in steps])
    counted_us = np.repeat(times.values, times.counts)
    np.testing.assert_allclose(counted_us, real, rtol=0.002, atol=0)
    short = real < 512
    np.testing.assert_array_equal(counted_us[short], real[short])


def test_a_preempted_request_counts_the_time_until_it_runs_again() -> None:
    """Two requests of 3 blocks each in a cache of 4: the second goes when the first needs its third block."""
    config = replace(SYNC, num_gpu_blocks=6, block_size=4, scheduler_reserve_full_isl=False)
    config = replace(config, enable_prefix_caching=False)
    outcomes = run(
        {"prompt": 4, "output": 8}, {"prompt": 4, "output": 8}, deadlines=[-1, -1], config=config
    ).outcomes
    stepped = run(
        {"prompt": 4, "output": 8},
        {"prompt": 4, "output": 8},
        deadlines=[-1, -1],
        config=config,
        record="steps",
    ).steps()
    gone = [step.t for step in stepped if 1 in step.preempted]
    back = [step.t for step in stepped if 1 in [request for request, _ in step.hits]][1:]
    assert outcomes.num_preemptions.tolist() == [0, len(gone)]
    assert len(gone) > 0
    assert outcomes.preempted_us.tolist() == [0, sum(back) - sum(gone)]
