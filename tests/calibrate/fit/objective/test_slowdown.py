"""A slowdown with a threshold: found where a trace lies above it, and kept as expected where none does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np
import pytest

from calibrate.fit.extended_initial_guess import extended_starts
from calibrate.fit.objective.coefficients import EXTENDED_FITTED, FITTED
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.objective.priors import MEMORY, SLOWDOWN, THRESHOLD, Prior
from calibrate.fit.refinement import refine, surroundings
from calibrate.fit.search import search
from calibrate.fit.task import Task
from calibrate.fit.uncertainty import coefficients_of, uncertainty
from replay import TwinConfig
from sim import Extended
from tests.calibrate.known_servers import observed, workload
from tests.studies.bench.slowdown import ENGINE, GUESS, SERVER

TRUTH = replace(SERVER, kappa=0.8, u0=0.45, tau_s=0.05, sigma=0.0)
SLOW = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY}


VAGUE = {name: replace(prior, width=4 * prior.width) for name, prior in SLOW.items()}
"""Priors that leave it to the traces."""


def objective_at(
    loads: tuple[float, ...],
    truth: Extended,
    num: int = 120,
    *,
    prompt: float = 1000,
    priors: Mapping[str, Prior] = SLOW,
) -> FitObjective:
    """Return the objective in which only the slowdown is unknown; ``prompt``: tokens in the median."""
    config = TwinConfig(engine=ENGINE, latency=GUESS)
    server = TwinConfig(engine=ENGINE, latency=truth)
    traces = tuple(
        fit_trace(
            observed(
                workload(num, rate=rate, seed=i, prompt=(prompt, 0.5), output=(100, 0.5)), server, noise=0.02
            ),
            config,
            name=str(i),
        )
        for i, rate in enumerate(loads)
    )
    twin = replace(config, latency=replace(truth, kappa=0.0, u0=0.0, tau_s=1.0))
    task = Task(traces=traces, config=twin, names=(), priors={}, seed=1, report=lambda _s, _l: None)
    return replace(task.objective(tuple(SLOW)), priors=priors)


def found_at(
    loads: tuple[float, ...], num: int = 120, *, prompt: float = 1000, priors: Mapping[str, Prior] = SLOW
) -> dict[str, tuple[float, float, float, bool]]:
    """Return (value, low, high, whether its prior leads) by name."""
    objective = objective_at(loads, TRUTH, num, prompt=prompt, priors=priors)
    start = np.array([prior.centre for prior in SLOW.values()])
    theta = search(objective, [start], report=lambda _s, _l: None)
    at = refine(objective, theta, report=lambda _s, _l: None)
    around = surroundings(at, seed=1)
    spread = uncertainty(at.objective, at.theta, surface=around.surface, seed=1, scatter=around.scatter)
    rows = coefficients_of(
        objective.names, at.theta, spread=spread, scale=objective.scale, priors=objective.priors
    )
    return {each.name: (each.value, each.low or 0.0, each.high or 0.0, each.is_prior_led) for each in rows}


def test_threshold_size_and_time_of_a_slowdown_are_found_where_prompts_lie_on_both_sides_of_it() -> None:
    found = found_at((4, 9, 12), num=300, priors=VAGUE)
    for (
        name
    ) in SLOW:  # how often intervals hold the truth is measured in tests/studies/validation/coverage.py
        value, low, high, is_led = found[name]
        assert low <= value <= high
        assert not is_led
    assert found["u0"][0] == pytest.approx(0.45, abs=0.05)
    assert found["kappa"][0] == pytest.approx(0.8, rel=0.2)
    assert found["tau_s"][0] == pytest.approx(0.05, rel=0.4)


def test_a_slowdown_that_no_prompt_reaches_stays_as_expected_and_is_said_to() -> None:
    value, low, high, is_led = found_at((2, 4), prompt=100)["kappa"]
    assert is_led
    assert low < SLOWDOWN.centre < high
    assert value == pytest.approx(SLOWDOWN.centre, abs=SLOWDOWN.width)


def test_a_search_starts_from_the_expected_slowdown_and_from_none_only_where_nothing_is_known() -> None:
    objective = objective_at((4,), TRUTH)
    line = {
        "alpha0": 1.0,
        "alpha1": 1.0,
        "alpha2": 0.0,
        "alpha3": 0.0,
        "beta0": 12_000.0,
        "beta1": 50.0,
        "beta2": 300.0,
    }
    at = objective.names.index("kappa")
    known = [start[at] for start in extended_starts(objective, line)]
    assert set(known) == {SLOWDOWN.centre}
    unknown = replace(objective, priors={"kappa": Prior(centre=0.0, width=0.25, source="none")})
    assert {round(start[at], 2) for start in extended_starts(unknown, line)} == {0.01, 0.25}


def test_every_term_of_the_extended_model_is_fitted_or_belongs_to_blackbox() -> None:
    own = {each.name for each in fields(Extended)} - {"beta5", "sigma", "seed", "alpha2", "tiles"}
    assert own == {*FITTED, *EXTENDED_FITTED}
