"""A step's outputs are handed on one after another: a first token waits for those before it, nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given

from sim import Blackbox, EngineConfig, Outcomes, simulate
from tests.examples import examples
from tests.sim.strategies import Case, any_model, assert_same_outcomes, cases, requests_of

PLAIN = Blackbox(beta0=10_000, beta1=10, beta2=100)


def at_once(num: int, *, outputs: int, latency: Blackbox) -> Outcomes:
    """Return the outcomes of so many requests of 10 tokens that come at once."""
    engine = EngineConfig(max_num_seqs=64, num_gpu_blocks=1000)
    requests = requests_of([{"arrival_us": 0, "prompt": 10, "output": outputs}] * num)
    return simulate(requests, engine, latency).outcomes


def test_the_k_th_output_of_a_step_is_seen_k_times_alpha3_later() -> None:
    plain, later = (at_once(5, outputs=20, latency=each) for each in (PLAIN, replace(PLAIN, alpha3="120")))
    assert (later.first_token_us - plain.first_token_us).tolist() == [120, 240, 360, 480, 600]
    assert later.last_token_us.tolist() == plain.last_token_us.tolist()
    assert later.scheduled_us.tolist() == plain.scheduled_us.tolist()


def test_a_request_that_comes_later_waits_for_the_outputs_of_those_that_decode() -> None:
    engine = EngineConfig(max_num_seqs=64, num_gpu_blocks=1000)
    rows = [{"arrival_us": at, "prompt": 10, "output": 100} for at in (0,) * 7 + (50_000,)]
    requests = requests_of(rows)
    plain, later = (simulate(requests, engine, each).outcomes for each in (PLAIN, replace(PLAIN, alpha3=100)))
    assert later.first_token_us[7] - plain.first_token_us[7] == 800


def test_the_last_token_is_never_seen_before_the_first() -> None:
    one = at_once(3, outputs=1, latency=replace(PLAIN, alpha3=1000))
    assert one.first_token_us.tolist() == one.last_token_us.tolist()
    two = at_once(3, outputs=2, latency=replace(PLAIN, alpha3=900_000))
    assert (two.last_token_us >= two.first_token_us).all()


@examples(100)
@given(cases(closed=None, model=any_model, impatient=True, costly=True, stopping=True))
def test_jumps_and_single_steps_see_tokens_at_the_same_times(case: Case) -> None:
    case = replace(case, latency=replace(case.latency, alpha3=333))
    jumped, stepped = (case.run(coalesce=is_on, record="tokens") for is_on in (True, False))
    assert_same_outcomes(jumped.outcomes, stepped.outcomes)
    for one, other in zip(jumped.tokens(), stepped.tokens(), strict=True):
        np.testing.assert_array_equal(one, other)
