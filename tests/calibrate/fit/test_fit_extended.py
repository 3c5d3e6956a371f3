"""The extended model's fit: what the traces cannot see is led by its prior and said to be."""

from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit.extended_initial_guess import extended_start, extended_starts
from calibrate.fit.model_selection import (
    PREFERRED,
    PROFILED,
    SLOWDOWN,
    TERMS,
    TILES,
    Scores,
    candidates_of,
    preferred,
)
from calibrate.fit.objective.coefficients import EXTENDED_FITTED, FITTED
from calibrate.fit.objective.fit_trace import fit_trace, head_of, observed_in_order
from calibrate.fit.objective.known_server import known_server
from calibrate.fit.objective.priors import SLOWDOWN as EXPECTED_SLOWDOWN
from calibrate.fit.objective.priors import Prior, known_priors, proportions
from calibrate.fit.pipeline import fit, search_blackbox, search_extended
from calibrate.fit.result import Fit
from calibrate.fit.step_noise import step_scatter
from calibrate.fit.task import Task
from replay import TwinConfig
from sim import Blackbox, EngineConfig, Extended
from tests.calibrate.known_servers import GUESS, observed, workload
from traces.errors import ConfigError
from traces.header import ServerInfo

ENGINE = EngineConfig(max_num_seqs=64, async_scheduling=False)
TRUTH = Extended(
    alpha0=3000, alpha1=2, beta0=4000, beta1=40, beta2=60, beta3=0.1, beta4=0.002, floor=9000, kappa=0.4
)
SERVER = TwinConfig(engine=ENGINE, latency=TRUTH)


@pytest.fixture(scope="module")
def found() -> Fit:
    traces = [
        observed(workload(90, rate=rate, seed=i, prompt=(300, 0.8)), SERVER, noise=0.03, seed=i)
        for i, rate in enumerate((3, 9))
    ]
    ready = [fit_trace(trace, GUESS, name=str(i)) for i, trace in enumerate(traces)]
    priors = {"floor": Prior(centre=9500, width=1900, source="a roofline"), "kappa": EXPECTED_SLOWDOWN}
    return fit(ready, GUESS, latency_model="extended", priors=priors)


def test_a_step_of_any_size_costs_what_it_does_on_the_true_server(found: Fit) -> None:
    model = found.config.latency
    assert isinstance(model, Extended)
    for tokens, decodes, context in ((0, 5, 1500), (300, 5, 1500), (1500, 8, 3000)):

        def step(m: Extended, p: int = tokens, d: int = decodes, c: int = context) -> float:
            dense = float(m.beta1) * (p + d)
            return (
                float(m.beta0)
                + np.hypot(m.floor, dense)
                + float(m.beta2) * d
                + m.beta3 * c
                + m.beta4 * p * p / 2
            )

        assert step(model) == pytest.approx(step(TRUTH), rel=0.12)


def test_what_the_traces_hardly_see_is_led_by_its_prior_and_not_called_identifiable(found: Fit) -> None:
    by_name = {each.name: each for each in found.coefficients}
    beta4 = by_name["beta4"]
    assert beta4.is_prior_led
    assert not beta4.identifiable
    assert "proportions of any transformer" in (beta4.reason or "")
    assert not by_name["beta1"].is_prior_led
    assert not by_name["tau_s"].identifiable
    assert found.model == "extended"


def scores_of(**off: float) -> dict[str, Scores]:
    """Return scores whose held-out E2E is off by so much in every block, by candidate, the loss with it."""
    names = {"attention_floor": "attention, floor", "slowdown": SLOWDOWN}
    return {
        names.get(name, name): Scores(loss=np.full(4, value), pace=np.array([value, -value, value, -value]))
        for name, value in off.items()
    }


@pytest.mark.parametrize(
    ("off", "expected"),
    [
        # all within 1 % of the best: the one that extrapolates most safely, which is not physics
        (
            {
                "blackbox": 0.02,
                "attention": 0.021,
                "attention_floor": 0.029,
                "slowdown": 0.02,
                "physics": 0.02,
            },
            0,
        ),
        (
            {
                "blackbox": 0.02,
                "attention": 0.02,
                "attention_floor": 0.031,
                "slowdown": 0.02,
                "physics": 0.021,
            },
            1,
        ),
        (
            {
                "blackbox": 0.02,
                "attention": 0.029,
                "attention_floor": 0.031,
                "slowdown": 0.02,
                "physics": 0.04,
            },
            2,
        ),
        (
            {
                "blackbox": 0.02,
                "attention": 0.031,
                "attention_floor": 0.031,
                "slowdown": 0.02,
                "physics": 0.04,
            },
            3,
        ),
        # a slowdown only where nothing else is near
        (
            {
                "blackbox": 0.05,
                "attention": 0.04,
                "attention_floor": 0.031,
                "slowdown": 0.02,
                "physics": 0.04,
            },
            4,
        ),
    ],
)
def test_of_models_whose_held_out_e2e_is_as_near_the_safest_is_taken(
    off: dict[str, float], expected: int
) -> None:
    assert (
        preferred(scores_of(**off)) == [name for name in PREFERRED if name not in (TILES, PROFILED)][expected]
    )


def test_a_slowdown_that_does_not_show_is_not_taken_and_the_others_are_held_against_each_other() -> None:
    scores = scores_of(blackbox=0.05, attention=0.04, attention_floor=0.051, slowdown=0.01)
    assert preferred(scores) == SLOWDOWN
    assert preferred(scores, hidden=(SLOWDOWN,)) == "attention"
    rows = {
        each.name: each
        for each in candidates_of(scores, chosen="attention", hidden=(SLOWDOWN,), is_slowing=False)
    }
    assert [name for name, each in rows.items() if each.chosen] == ["attention"]
    assert [name for name, each in rows.items() if not each.is_shown] == [SLOWDOWN]
    assert rows["blackbox"].e2e_off == pytest.approx(0.05)


def test_model_and_gpu_give_priors_and_a_name_nobody_knows_none() -> None:
    known = known_priors(known_server(ServerInfo(model="meta-llama/Llama-3.1-8B", gpu="H100")))
    assert known["kappa"].centre == EXPECTED_SLOWDOWN.centre
    if "floor" in known:  # the model ships
        assert 3000 < known["floor"].centre < 8000
    assert known_priors(known_server(ServerInfo())) == {}
    assert known_priors(known_server(ServerInfo(gpu="RTX 4090", model="nobody's"))) == {}
    with pytest.raises(ConfigError):
        known_server(ServerInfo(gpu="H100"), model_config="no-such-file.json")


def test_a_bent_start_costs_what_the_line_does_at_a_quiet_step_and_a_usual_prompt() -> None:
    trace = fit_trace(observed(workload(60, rate=3, seed=5), SERVER), GUESS, name="a")
    twin = replace(GUESS, latency=Extended(beta0=5000, beta1=20))
    task = Task(traces=(trace,), config=twin, names=FITTED, priors={}, seed=1, report=lambda _s, _l: None)
    objective = replace(
        task.objective((*FITTED, *EXTENDED_FITTED)), priors=proportions(beta1=50, step_us=12_000)
    )
    line = {
        "alpha0": 1.0,
        "alpha1": 1.0,
        "alpha2": 0.0,
        "alpha3": 0.0,
        "beta0": 12_000.0,
        "beta1": 50.0,
        "beta2": 300.0,
    }
    at = dict(zip(objective.names, extended_start(objective, line, floor_share=0.5, kappa=0.0), strict=True))
    assert at["beta0"] + at["floor"] == pytest.approx(12_000)
    assert at["beta1"] > line["beta1"]  # what the line pays for by its constant
    assert len(extended_starts(objective, line)) == 6


def test_the_head_of_a_trace_is_its_first_requests_and_counts_those_that_were_alone_with_it() -> None:
    trace = fit_trace(observed(workload(80, rate=20, seed=6), SERVER), GUESS, name="a")
    head = head_of(trace, 30)
    assert len(head.requests) == 30
    np.testing.assert_array_equal(head.requests.arrival_us, trace.requests.arrival_us[:30])
    ended = head.observed_timeline.last <= trace.observed_timeline.joined[30]
    np.testing.assert_array_equal(head.used(), ended)
    assert 0 < ended.sum() < 30
    assert head_of(trace, 80) is trace


def test_completions_count_in_their_order_where_the_load_was_saturated() -> None:
    calm, swamped = (
        fit_trace(observed(workload(240, rate=rate, seed=7), SERVER), GUESS, name="a") for rate in (2, 60)
    )
    for trace, above in ((calm, False), (swamped, True)):
        assert (len(trace.done_rows) > 0) is above
    rows, times = observed_in_order(np.array([0.0, 10.0, 20.0]), np.array([500.0, 300.0, np.nan]))
    assert rows.tolist() == [1, 0]
    np.testing.assert_array_equal(times, [500.0, 300.0, np.nan])


def test_the_line_is_found_within_an_extended_task_without_its_terms() -> None:
    trace = fit_trace(observed(workload(60, rate=5, seed=8)), GUESS, name="a")
    six = {name: getattr(GUESS.latency, name) for name in FITTED}
    twin = replace(GUESS, latency=Extended(**six, kappa=0.3))
    task = Task(traces=(trace,), config=twin, names=FITTED, priors={}, seed=1, report=lambda _s, _l: None)
    line = search_blackbox(task, task.traces)
    assert line.objective.names == FITTED
    assert isinstance(line.objective.base, Blackbox)
    assert line.objective.base.is_blackbox
    assert line.by_name()["beta0"] == pytest.approx(12_000, rel=0.1)


def test_terms_are_searched_for_where_the_line_has_a_coefficient_of_0() -> None:
    trace = fit_trace(observed(workload(40, rate=5, seed=8)), GUESS, name="a")
    twin = replace(GUESS, latency=Extended(beta0=5000, beta1=20))
    task = Task(traces=(trace,), config=twin, names=FITTED, priors={}, seed=1, report=lambda _s, _l: None)
    line = search_blackbox(task, task.traces)
    none = replace(line, theta=np.where(np.array(FITTED) == "beta1", 0.0, line.theta))
    found = search_extended(task, task.traces, none, TERMS["attention"])
    assert all(prior.width > 0 for prior in found.objective.priors.values())
    assert np.isfinite(found.loss)


def test_the_scatter_of_steps_is_found_from_answers_of_many_lengths_and_stays_0_where_there_is_none() -> None:
    for sigma in (0.0, 0.15):
        server = replace(SERVER, latency=replace(TRUTH, sigma=sigma, seed=5))
        trace = observed(workload(400, rate=4, seed=9, output=(25, 0.9)), server)
        task = Task(
            traces=(fit_trace(trace, SERVER, name="a"),),
            config=SERVER,
            names=FITTED,
            priors={},
            seed=1,
            report=lambda _s, _l: None,
        )
        objective = task.objective(("beta0",))
        answer = step_scatter(objective, np.array([float(TRUTH.beta0)]), seed=1)
        assert answer is not None
        value, low, high = answer
        assert low <= value <= high
        assert value == pytest.approx(sigma, abs=0.03)
