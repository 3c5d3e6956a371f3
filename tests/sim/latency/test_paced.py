"""A model at another pace: the engine's steps are so many times as long, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sim import Blackbox, Extended, LatencyModel, Profiled
from sim.config import InvalidConfig
from sim.latency.paced import at_pace
from tests.examples import examples
from tests.sim.latency.test_latency_contract import quiet
from tests.sim.strategies import Case, Pick, cases, physics, profiled, roofline

SLOW = 1.25  # exact in binary: a product by it is rounded as the sum of scaled parts is
STEP_TIMES = ("beta0", "beta1", "beta2", "beta3", "beta4", "beta5", "floor", "tau_s")
TABLES_FACTORS = ("scale", "step", "nccl_launch", "nccl_skew")


def scaled_by_hand(model: LatencyModel) -> LatencyModel:
    """Return a model with its own coefficients of time scaled."""
    names = TABLES_FACTORS if isinstance(model, Profiled) else STEP_TIMES
    return replace(model, **{name: getattr(model, name) * SLOW for name in names if hasattr(model, name)})


def outcomes(case: Case, model: LatencyModel) -> list[tuple[int, ...]]:
    """Return when each request's first and last token came."""
    run = replace(case, latency=model).run()
    return list(zip(run.outcomes.first_token_us.tolist(), run.outcomes.last_token_us.tolist(), strict=True))


def blackbox_of_halves(pick: Pick) -> Blackbox:
    return Blackbox(alpha0=40, beta0=pick((4.0, 40.0)), beta1=pick((0.0, 8.0)), beta2=pick((4.0, 16.0)))


def extended_of_halves(pick: Pick) -> Extended:
    return Extended(
        alpha0=40,
        beta0=pick((4.0, 40.0)),
        beta1=pick((8.0, 16.0)),
        beta3=pick((0.0, 0.5)),
        beta4=pick((0.0, 0.25)),
        floor=pick((0.0, 64.0)),
        tiles=pick(((), ((1, 1.0), (8, 1.0), (9, 1.5)))),
        kappa=pick((0.0, 0.5)),
        u0=pick((0.0, 0.25)),
        tau_s=2.0**-10,
    )


@pytest.mark.parametrize("pick_model", [blackbox_of_halves, extended_of_halves, profiled])
@examples(30)
@given(st.data())
def test_a_paced_model_is_the_model_with_its_times_scaled_by_hand(
    pick_model: Callable[[Pick], LatencyModel], data: st.DataObject
) -> None:
    case = data.draw(cases(model=pick_model))
    assert outcomes(case, at_pace(case.latency, SLOW)) == outcomes(case, scaled_by_hand(case.latency))


@pytest.mark.parametrize("pick_model", [extended_of_halves, roofline, physics])
@examples(30)
@given(st.data())
def test_steps_of_a_paced_table_are_so_many_times_as_long(
    pick_model: Callable[[Pick], LatencyModel], data: st.DataObject
) -> None:
    case = data.draw(cases(model=lambda pick: quiet(pick_model(pick))))
    first = replace(case, requests=case.requests.take(np.array([0])))
    prompt = first.requests.prompt_tokens
    runs = [replace(first, latency=model).run() for model in (case.latency, at_pace(case.latency, SLOW))]
    plain, slow = (
        int(
            run.outcomes.last_token_us[0]
            - run.outcomes.arrival_us[0]
            - case.latency.queue_delay_us(prompt)[0]
        )
        for run in runs
    )
    num_steps = runs[0].num_steps
    assume(num_steps > 0)  # else the request was refused
    assert num_steps == runs[1].num_steps
    assert slow == pytest.approx(SLOW * plain, abs=2 * num_steps)  # each step is rounded, in both


def test_the_ways_in_and_out_keep_their_pace() -> None:
    model = at_pace(Blackbox(alpha0=100, alpha1=2, alpha2=3, beta0=10), 2.0)
    assert model.queue_delay_us(np.array([10])).tolist() == [120]
    assert model.output_delay_us(np.array([4])).tolist() == [12]


@pytest.mark.parametrize("factor", [0.0, -1.0, np.inf, np.nan])
def test_a_factor_that_is_none_is_refused(factor: float) -> None:
    with pytest.raises(InvalidConfig, match="factor: got"):
        at_pace(Blackbox(beta0=1), factor)
