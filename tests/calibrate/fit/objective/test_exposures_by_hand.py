"""Parts of the fit's objective with a pencil: exposures, how busy a GPU is, runs that are simulated again, priors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit.objective.duty import duty
from calibrate.fit.objective.exposure import (
    Timeline,
    exposure_columns,
    exposures,
    step_rate,
    steps_between,
)
from calibrate.fit.objective.fit_trace import FitTrace, fit_trace
from calibrate.fit.objective.known_server import known_physics, known_server
from calibrate.fit.objective.objective import FitObjective
from calibrate.fit.objective.priors import known_priors, proportions
from calibrate.fit.objective.repeated_run import Work, scattered
from calibrate.fit.objective.simulated_trace import simulated
from replay import TwinConfig
from sim import Blackbox, Extended
from tests.calibrate.known_servers import ENGINE, SERVER, observed, workload
from traces import ServerInfo

NAN = math.nan


def timeline(**changes: list[float]) -> Timeline:
    """Return a timeline of three: the first alone for a while, the second behind it, the third never done.

    The first computes 6 of 10 tokens from 0 to 100 and has its four gaps of 100 up to 500; the second comes at 50,
    computes 8 of 8 from 100 to 200, and has its two gaps of 50 up to 300.
    """
    columns: dict[str, list[float]] = {
        "joined": [0, 50, 60],
        "prefill": [0, 100, 200],
        "first": [100, 200, NAN],
        "last": [500, 300, NAN],
        "prefill_tokens": [6, 8, 5],
        "output_tokens": [5, 3, 2],
    }
    return Timeline(**{name: np.array(values, float) for name, values in (columns | changes).items()})


PROMPTS = np.array([10.0, 8.0, 5.0])
PAIRS = (6 * 4 + 6 * 7 / 2, 8 * 9 / 2)  # on the four that were cached and on themselves: 45, 36
CONTEXT = (11 + 12 + 13 + 14, 9 + 10)  # what each decode token reads: 50, 19


def test_what_was_computed_before_a_first_token_and_after_it() -> None:
    seen = exposures(timeline(), PROMPTS)
    # the second waits for half of the first one's prefill and its own; the first one decodes by its side
    assert seen.prefill_before[:2] == pytest.approx([6, 3 + 8])
    assert seen.prefill_after[:2] == pytest.approx([8, 0])
    assert seen.pairs_before[:2] == pytest.approx([PAIRS[0], PAIRS[0] / 2 + PAIRS[1]])
    assert seen.pairs_after[:2] == pytest.approx([PAIRS[1], 0])
    assert seen.decode_before[:2] == pytest.approx([0, 1])
    assert seen.decode_after[:2] == pytest.approx([4 + 2, 1 + 2])
    assert seen.context_before[:2] == pytest.approx([0, CONTEXT[0] / 4])
    assert seen.context_after[:2] == pytest.approx([sum(CONTEXT), CONTEXT[0] / 4 + CONTEXT[1]])


def test_steps_are_those_of_the_requests_that_decode_on_average() -> None:
    """One in 100 us from 100 on, beside another in 50 from 200 to 300: three in 200 us then."""
    times, rates = step_rate(timeline())
    assert times.tolist() == [100, 200, 300, 500]
    assert rates == pytest.approx([0.01, 0.015, 0.01, 0])
    steps = steps_between(timeline(), np.array([0.0, 100, 150, 500]), np.array([100.0, 500, 250, 900]))
    assert steps == pytest.approx([0, 1 + 1.5 + 2, 0.5 + 0.75, 0])
    alone = timeline(output_tokens=[1, 1, 1])
    assert steps_between(alone, np.array([0.0]), np.array([500.0])).tolist() == [0]


def test_the_derivatives_of_latencies_by_the_coefficients() -> None:
    """TTFT, E2E, TPOT: a prefill is one step at least, of which the first request sees none and the second one."""
    found = {name: each[:, :2] for name, each in exposure_columns(timeline(), PROMPTS).items()}
    assert found["alpha0"] == pytest.approx(np.array([[1, 1], [1, 1], [0, 0], [0, 0]]))
    assert found["alpha1"] == pytest.approx(np.array([[10, 8], [10, 8], [0, 0], [0, 0]]))
    assert found["alpha2"] == pytest.approx(np.array([[1, 1], [5, 3], [1, 1], [0, 0]]))
    assert found["beta0"] == pytest.approx(np.array([[1, 1], [5, 3], [1, 1], [0, 0]]))
    assert found["beta1"] == pytest.approx(np.array([[6, 11], [14, 11], [2, 0], [0, 0]]))
    assert found["beta2"] == pytest.approx(np.array([[0, 1], [6, 4], [1.5, 1.5], [0, 0]]))
    longer = exposure_columns(
        timeline(prefill=[0, 300, 400], first=[100, 400, NAN], last=[500, 600, NAN]), PROMPTS
    )
    assert longer["beta0"][0, :2] == pytest.approx([1, 3])  # from 50 to 400: 3 steps of 100 after its first
    for name in ("floor", "concavity", "kappa", "u0", "tau_s"):
        assert not found[name].any()


def ready(n: int = 6) -> FitTrace:
    return fit_trace(observed(workload(n, rate=2, seed=1)), SERVER, name="a")


def test_how_busy_a_trace_keeps_a_gpu() -> None:
    """14 prefill tokens of 7 us and 81 pairs of 0.5 in 500 us; 8 output tokens where steps have a floor."""
    found = ready(2)
    short = {name: getattr(timeline(), name)[:2] for name in Timeline.__dataclass_fields__}
    found = replace(
        found,
        observed_timeline=Timeline(**short),
        requests=replace(found.requests, prompt_tokens=np.array([10, 8])),
    )
    model = Extended(beta1=7.0, beta4=0.5)
    assert duty(model, found) == pytest.approx((7 * 14 + 0.5 * 81) / 500)
    assert duty(replace(model, floor=1e-9), found) == pytest.approx((7 * 22 + 0.5 * 81) / 500)
    at_once = replace(found.observed_timeline, joined=np.zeros(2), last=np.array([0.0, 0.5]))
    assert duty(model, replace(found, observed_timeline=at_once)) == pytest.approx(7 * 14 + 0.5 * 81)


def test_completions_are_told_from_the_first_arrival_on_which_may_be_at_zero() -> None:
    trace = ready(6)
    requests = replace(trace.requests, arrival_us=trace.requests.arrival_us - trace.requests.arrival_us.min())
    trace = replace(trace, requests=requests, done_rows=np.array([2, 3, 4]))
    run = simulated(trace, engine=ENGINE, model=SERVER.latency)
    assert np.isnan(run.latency_us[3][[0, 1, 5]]).all()
    assert np.sort(run.latency_us[3][2:5]) == pytest.approx(np.sort(run.timeline.last[2:5]))


# -- a run again ---------------------------------------------------------------------------------------------


def test_arrivals_are_moved_by_up_to_half_a_step_and_never_before_the_start() -> None:
    work = Work.of(observed(workload(400, rate=2, seed=1)), SERVER)
    late = replace(work, requests=replace(work.requests, arrival_us=work.requests.arrival_us + 10**9))
    by = late.moved(1000.0, np.random.default_rng(3)).requests.arrival_us - late.requests.arrival_us
    assert -500 <= by.min() < -480
    assert 480 < by.max() <= 500
    assert abs(by.mean()) < 60
    early = replace(work, requests=replace(work.requests, arrival_us=np.zeros(400, np.int64)))
    moved = early.moved(1000.0, np.random.default_rng(3)).requests.arrival_us
    assert moved.tolist() == np.maximum(by, 0).tolist()


def test_a_run_again_is_the_twin_s_own_simulation() -> None:
    trace = observed(workload(5, rate=2, seed=1))
    found = Work.of(trace, SERVER).simulated(SERVER)
    run = simulated(fit_trace(trace, SERVER, name="a"), engine=ENGINE, model=SERVER.latency)
    assert found.shape == (2, 5)
    np.testing.assert_array_equal(found, run.latency_us[[0, 2]])


def test_steps_scatter_where_a_model_can_and_else_stay() -> None:
    plain = TwinConfig(engine=ENGINE, latency=Blackbox(beta0=7, beta1=2, alpha0=3))
    found = scattered(plain, 0.25, seed=9).latency
    assert isinstance(found, Extended)
    assert (found.sigma, found.seed, found.beta0, found.beta1, found.alpha0) == (0.25, 9, 7, 2, 3)
    again = scattered(replace(plain, latency=found), 0.5, seed=8).latency
    assert again == replace(found, sigma=0.5, seed=8)


# -- what is expected ----------------------------------------------------------------------------------------


def test_the_proportions_of_any_transformer() -> None:
    """A pair costs 4e-5 of a token, a token's KV 8e-6 of a quiet step, of which the weights take seven tenths."""
    found = proportions(beta1=50.0, step_us=10_000.0)
    assert (found["beta4"].centre, found["beta4"].width) == pytest.approx((0.002, 0.002))
    assert (found["beta3"].centre, found["beta3"].width) == pytest.approx((0.08, 0.08))
    assert (found["floor"].centre, found["floor"].width) == pytest.approx((7000, 4000))


@pytest.mark.parametrize(
    ("gpu", "model", "names"),
    [
        ("H100", "Qwen/Qwen3-8B", {"beta1", "kappa", "u0"}),
        ("H100", None, {"kappa", "u0", "tau_s", "concavity"}),
        (None, "Qwen/Qwen3-8B", set()),
        ("no such GPU", "Qwen/Qwen3-8B", set()),
    ],
)
def test_what_model_and_gpu_imply_as_far_as_they_are_known(
    gpu: str | None, model: str | None, names: set[str]
) -> None:
    said = known_priors(known_server(ServerInfo(gpu=gpu, model=model)))
    assert names <= set(said) if names else said == {}
    if model is not None:  # the options come before what a header says
        assert (
            known_priors(known_server(ServerInfo(gpu="none", model="none"), gpu=gpu, model_config=model))
            == said
            if names
            else True
        )


@pytest.mark.parametrize(
    ("gpu", "model", "why"),
    [
        (None, None, "model and GPU not known (--model-config, --gpu)"),
        (None, "Qwen/Qwen3-8B", "GPU not known (--model-config, --gpu)"),
        ("H100", None, "model not known (--model-config, --gpu)"),
        ("H100", "Qwen/Qwen3-8B", ""),
    ],
)
def test_physics_are_known_of_a_known_model_on_a_known_gpu(
    gpu: str | None, model: str | None, why: str
) -> None:
    header = known_physics(known_server(ServerInfo(gpu=gpu, model=model)), SERVER)
    option = known_physics(known_server(ServerInfo(), gpu=gpu, model_config=model), SERVER)
    alone = known_physics(known_server(ServerInfo(), gpu=gpu, model_config=model, tp=1), SERVER)
    assert header == option == alone
    assert header[1] == why
    assert (header[0] is None) == (option[0] is None) == bool(why)


def test_a_trace_of_which_one_number_is_known_has_all_its_weight_on_it() -> None:
    trace = ready(2)
    values = np.full_like(trace.observed_us, np.nan)
    values[0, 1] = 5.0
    asked = FitObjective(
        traces=(replace(trace, observed_us=values), trace),
        engine=ENGINE,
        names=(),
        base=Blackbox(),
        scale=np.zeros(0),
        noise=np.ones(4),
        priors={},
    )
    assert asked.weights()[0][0, 1] == pytest.approx(1 / 2)


def test_a_model_s_priors_are_for_its_number_of_gpus() -> None:
    one, two = (
        known_priors(known_server(ServerInfo(gpu="H100", model="Qwen/Qwen3-8B", tensor_parallel=each)))
        for each in (None, 2)
    )
    given = known_priors(known_server(ServerInfo(gpu="H100", model="Qwen/Qwen3-8B", tensor_parallel=4), tp=2))
    assert given == two
    assert two["beta1"].centre < 0.7 * one["beta1"].centre
    assert one == known_priors(known_server(ServerInfo(gpu="H100", model="Qwen/Qwen3-8B"), tp=1))
