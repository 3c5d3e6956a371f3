"""What every latency model must keep: finite, not negative, no shorter for more work, the same in engine and numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import LatencyModel, StepBatch
from sim.engine.state import State
from tests.examples import examples
from tests.sim.step_batches import batch_of
from tests.sim.strategies import (
    Case,
    Pick,
    blackbox,
    cases,
    extended,
    physics,
    picks,
    profiled,
    roofline,
    tiled,
)

MODELS: dict[str, Callable[[Pick], LatencyModel]] = {
    "blackbox": blackbox,
    "extended": extended,
    "tiled": tiled,
    "roofline": roofline,
    "physics": physics,
    "profiled": profiled,
}
"""A new model enters here, with a function that picks one whose every term matters now and then."""

MEANS = {profiled}
"""Models that know a step's requests by their number and their mean: one that is shorter than the mean may seem to
take less than nothing. What they do declare: reading more for the same requests and tokens never takes less."""

every_model = pytest.mark.parametrize("pick_model", MODELS.values(), ids=MODELS)

Share = tuple[int, int, bool]

PREFILLS = st.tuples(st.integers(1, 3000), st.integers(0, 5000), st.just(False))
DECODES = st.tuples(st.just(1), st.integers(1, 5000), st.just(True))
STEPS = st.lists(PREFILLS | DECODES, min_size=1, max_size=12)


def quiet(model: LatencyModel) -> LatencyModel:
    """Return the model without scatter or memory, which numpy's side does not have."""
    still = {name: 0.0 for name in ("sigma", "kappa") if hasattr(model, name)}
    return replace(model, **still)


@every_model
@examples(60)
@given(picks(), st.lists(STEPS, min_size=1, max_size=20))
def test_a_step_lasts_a_finite_time_that_is_not_negative(
    pick_model: Callable[[Pick], LatencyModel], pick: Pick, steps: list[list[Share]]
) -> None:
    model = pick_model(pick)
    assert np.isfinite(model.engine_terms()).all()
    durations = model.durations_us(batch_of(steps))
    assert durations.dtype == np.int64
    assert (durations >= 0).all()


@every_model
@examples(60)
@given(picks(), STEPS, STEPS)
def test_more_work_never_takes_less_time(
    pick_model: Callable[[Pick], LatencyModel], pick: Pick, step: list[Share], more: list[Share]
) -> None:
    """Requests added one by one; then every chunk a token longer; then every context."""
    grown = [step + more[:n] for n in range(len(more) + 1)]
    longer = [(n + (not decodes), before, decodes) for n, before, decodes in grown[-1]]
    deeper = [[(n, before + by, decodes) for n, before, decodes in longer] for by in (1, 2, 500)]
    steps = deeper if pick_model in MEANS else [*grown, longer, *deeper]
    durations = quiet(pick_model(pick)).durations_us(batch_of(steps))
    assert (np.diff(durations) >= 0).all()


def steps_of(case: Case) -> tuple[StepBatch, list[int]]:
    """Return the steps that the engine took, as the model sees them, and how long each lasted."""
    steps = [step for step in case.run(record="steps").steps() if step.sched]
    shares = [[(n, before, kind == "d") for _, n, before, kind in step.sched] for step in steps]
    return batch_of(shares), [step.dur for step in steps]


@every_model
@examples(60)
@given(st.data())
def test_the_engine_s_steps_last_what_numpy_says(
    pick_model: Callable[[Pick], LatencyModel], data: st.DataObject
) -> None:
    case = data.draw(cases(model=lambda pick: quiet(pick_model(pick))))
    batch, durations = steps_of(case)
    np.testing.assert_array_equal(durations, case.latency.durations_us(batch))


@every_model
@examples(30)
@given(picks(), st.integers(0, 10_000))
def test_the_way_in_and_out_is_every_model_s_own(
    pick_model: Callable[[Pick], LatencyModel], pick: Pick, tokens: int
) -> None:
    model = replace(pick_model(pick), alpha0=100, alpha1="0.5", alpha2=3)
    assert model.queue_delay_us(np.array([tokens])).tolist() == [100 + round(tokens / 2)]
    assert model.output_delay_us(np.array([tokens])).tolist() == [3 * tokens]


@every_model
@examples(20)
@given(picks())
def test_models_are_values(pick_model: Callable[[Pick], LatencyModel], pick: Pick) -> None:
    model = pick_model(pick)
    assert model == replace(model)
    assert hash(model) == hash(replace(model))
    assert model != replace(model, alpha0=12345)


@every_model
def test_no_model_brings_the_engine_anything_but_numbers(pick_model: Callable[[Pick], LatencyModel]) -> None:
    model = pick_model(lambda options: options[0])
    assert {"latency", "terms"} <= set(State._fields)
    assert model.engine_coefficients().dtype == np.int64
    assert model.engine_terms().dtype == np.float64
    assert model.engine_terms().ndim == 1
