"""Time is whole microseconds, rounded once, half to even, and never a float on the way."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import Blackbox, Extended, InvalidConfig
from tests.examples import examples
from tests.sim.strategies import Case, blackbox, cases, extended

DECIMALS = st.decimals(0, 5000, places=6) | st.integers(0, 9999).map(lambda n: Decimal(n) / 2)
"""Coefficients to a millionth of a microsecond; half of them whole or halves, so that sums tie."""


def exactly(*terms: tuple[object, int]) -> int:
    """Return the sum of coefficient x count in fractions, rounded half to even."""
    return round(sum((Fraction(str(value)) * count for value, count in terms), Fraction(0)))


@examples(200)
@given(
    DECIMALS, DECIMALS, DECIMALS, st.lists(st.tuples(st.integers(0, 8192), st.integers(0, 1024)), min_size=1)
)
def test_a_step_is_rounded_as_fractions_are(
    beta0: Decimal, beta1: Decimal, beta2: Decimal, steps: list[tuple[int, int]]
) -> None:
    prefill, decode = np.array(steps, np.int64).T
    durations = Blackbox(beta0=beta0, beta1=beta1, beta2=beta2).step_us(prefill, decode)
    expected = [exactly((beta0, 1), (beta1, p), (beta2, d)) for p, d in steps]
    assert durations.tolist() == expected


@pytest.mark.parametrize(
    ("beta0", "rounded"),
    [("0.5", 0), ("1.5", 2), ("2.5", 2), ("2.500001", 3), ("3.499999", 3), ("3.5", 4), ("0.000001", 0)],
)
def test_a_tie_goes_to_the_even_microsecond(beta0: str, rounded: int) -> None:
    one = np.array([1])
    assert Blackbox(beta0=beta0).step_us(one, one).tolist() == [rounded]


@examples(100)
@given(cases(model=blackbox))
def test_the_engine_s_steps_last_what_the_model_says(case: Case) -> None:
    model = case.latency
    for step in case.run(record="steps").steps():
        expected = exactly((model.beta0, 1), (model.beta1, step.P), (model.beta2, step.D))
        assert step.dur == (expected if step.sched else 0)
        assert sum(n for _, n, _, kind in step.sched if kind == "p") == step.P
        assert sum(n for _, n, _, kind in step.sched if kind == "d") == step.D


def extended_steps(case: Case, model: Extended) -> list[tuple[int, float]]:
    """Return each step's (duration, what the formula says) with the slow state followed in Python, no scatter."""
    rows, duty, seen_us = [], 0.0, 0
    tau_us = model.tau_s * 1e6
    for step in case.run(record="steps").steps():
        if not step.sched:
            continue
        start_us = step.t if step.exec_start is None else step.exec_start
        prefills = [(n, before) for _, n, before, kind in step.sched if kind == "p"]
        context = sum(before + 1 for _, _, before, kind in step.sched if kind == "d")
        pairs = sum(n * before + n * (n + 1) // 2 for n, before in prefills)
        duty *= math.exp(-(start_us - seen_us) / tau_us)
        slowdown = 1 + model.kappa * max(0.0, duty - model.u0)
        num_dense_tokens = step.P + (step.D if model.floor > 0 else 0)
        dense, attention = float(model.beta1) * num_dense_tokens * slowdown, model.beta4 * pairs * slowdown
        decodes = step.D ** (1 - model.concavity) if step.D else 0
        reading = float(model.beta2) * decodes + model.beta3 * context + model.beta5 * len(prefills)
        rows.append(
            (step.dur, float(model.beta0) + math.sqrt(model.floor**2 + dense**2) + attention + reading)
        )
        if step.dur > 0:
            kept = math.exp(-step.dur / tau_us)
            duty = duty * kept + (1 - kept) * min(1.0, (dense + attention) / step.dur)
            seen_us = start_us + step.dur
    return rows


@examples(100)
@given(cases(model=extended))
def test_the_extended_model_s_steps_are_its_formula_over_what_was_scheduled(case: Case) -> None:
    assert isinstance(case.latency, Extended)
    for duration_us, expected_us in extended_steps(case, case.latency):
        assert abs(duration_us - expected_us) <= 0.5 + 1e-6


@examples(200)
@given(DECIMALS, DECIMALS, st.lists(st.integers(0, 200_000), min_size=1))
def test_a_request_joins_alpha0_and_alpha1_times_its_prompt_later(
    alpha0: Decimal, alpha1: Decimal, prompts: list[int]
) -> None:
    delays = Blackbox(alpha0=alpha0, alpha1=alpha1).queue_delay_us(np.array(prompts, np.int64))
    assert delays.tolist() == [exactly((alpha0, 1), (alpha1, prompt)) for prompt in prompts]


@examples(100)
@given(cases(model=blackbox))
def test_the_k_th_token_is_seen_k_alpha2_after_its_step_and_the_clock_knows_nothing_of_it(case: Case) -> None:
    plain = Blackbox(**{name: getattr(case.latency, name) for name in ("alpha0", "alpha1", "beta0", "beta1")})
    delayed = Blackbox(
        alpha0=plain.alpha0, alpha1=plain.alpha1, beta0=plain.beta0, beta1=plain.beta1, alpha2="2.5"
    )
    sooner, later = (
        Case(requests=case.requests, config=case.config, latency=model).run(record="tokens")
        for model in (plain, delayed)
    )
    assert sooner.num_steps == later.num_steps
    np.testing.assert_array_equal(sooner.outcomes.scheduled_us, later.outcomes.scheduled_us)
    (request, sooner_us), (_, later_us) = sooner.tokens(), later.tokens()
    numbers = [list(request[: i + 1]).count(r) for i, r in enumerate(request.tolist())]
    assert (later_us - sooner_us).tolist() == [exactly(("2.5", k)) for k in numbers]
    got_tokens = later.outcomes.num_output_tokens > 0
    delays = (later.outcomes.last_token_us - sooner.outcomes.last_token_us)[got_tokens]
    assert delays.tolist() == [exactly(("2.5", int(k))) for k in later.outcomes.num_output_tokens[got_tokens]]


@examples(50)
@given(cases(model=blackbox))
def test_alphas_delay_the_queue_not_the_arrival(case: Case) -> None:
    outcomes = case.run().outcomes
    np.testing.assert_array_equal(outcomes.arrival_us, case.requests.arrival_us)
    delays = case.latency.queue_delay_us(case.requests.prompt_tokens)
    np.testing.assert_array_equal(outcomes.queued_us - outcomes.arrival_us, delays)


@pytest.mark.parametrize("value", ["a", "nan", float("inf"), -1, "-0.5", None, "2e9", [1]])
def test_a_coefficient_that_is_no_time_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidConfig, match=r"^beta1: got .*, expected "):
        Blackbox(beta1=value)  # type: ignore[arg-type]


def test_the_largest_coefficients_times_a_million_tokens_do_not_overflow() -> None:
    tokens = np.array([1_000_000])
    model = Blackbox(alpha0="1e9", alpha1="1e6", alpha2="1e6", beta0="1e9", beta1="1e6", beta2="1e6")
    assert model.step_us(tokens, tokens).tolist() == [10**9 + 2 * 10**12]
    assert model.queue_delay_us(tokens).tolist() == [10**9 + 10**12]
    assert model.output_delay_us(tokens).tolist() == [10**12]


@examples(50)
@given(cases(model=extended))
def test_a_threshold_above_every_load_is_no_slowdown_to_the_bit(case: Case) -> None:
    assert isinstance(case.latency, Extended)
    above, none = replace(case.latency, u0=1.0), replace(case.latency, kappa=0.0)
    one, other = (
        Case(requests=case.requests, config=case.config, latency=model).run(record="tokens").outcomes
        for model in (above, none)
    )
    np.testing.assert_array_equal(one.last_token_us, other.last_token_us)
