from dataclasses import replace

import numpy as np
import pytest

from calibrate.compare.engine_steps import EngineSteps
from calibrate.compare.pair import pair as pair_traces
from calibrate.fit.initial_guess import guess_of_steps, initial_guess
from calibrate.fit.objective.coefficients import FITTED
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.pipeline import fit
from calibrate.fit.result import Fit
from calibrate.fit.task import Task
from replay import TwinConfig
from sim import simulate
from tests.calibrate.known_servers import GUESS, SERVER, TRUTH, observed, with_latency, workload
from traces import ClientInfo, Trace
from traces.errors import TraceError


def fitted(traces: list[Trace], config: TwinConfig = GUESS, **options: object) -> Fit:
    ready = [fit_trace(trace, config, name=str(i)) for i, trace in enumerate(traces)]
    return fit(ready, config, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def quiet_and_busy() -> list[Trace]:
    return [observed(workload(100, rate=3, seed=1)), observed(workload(150, rate=10, seed=2))]


@pytest.fixture(scope="module")
def recovered(quiet_and_busy: list[Trace]) -> Fit:
    return fitted(quiet_and_busy)


def test_known_coefficients_are_found_again_from_two_loads(recovered: Fit) -> None:
    found = {each.name: each.value for each in recovered.coefficients}
    assert found["beta0"] == pytest.approx(TRUTH["beta0"], rel=0.01)
    assert found["beta1"] == pytest.approx(TRUTH["beta1"], rel=0.03)
    assert found["beta2"] == pytest.approx(TRUTH["beta2"], rel=0.04)
    way_in = found["alpha0"] + 250 * found["alpha1"]
    assert way_in == pytest.approx(TRUTH["alpha0"] + 250 * TRUTH["alpha1"], rel=0.25)


def test_the_order_of_the_traces_makes_no_difference(quiet_and_busy: list[Trace], recovered: Fit) -> None:
    turned = fitted(quiet_and_busy[::-1])
    assert [each.value for each in turned.coefficients] == [each.value for each in recovered.coefficients]
    assert turned.config.latency == recovered.config.latency


def test_the_steps_coefficients_are_called_identifiable_and_no_interval_is_wide(
    recovered: Fit,
) -> None:
    for each in recovered.coefficients:
        if each.name.startswith("beta"):
            assert each.identifiable
            assert (each.high - each.low) / each.value < 0.4
            assert each.low <= each.value <= each.high


def test_a_coefficient_that_is_held_stays_and_says_so(recovered: Fit) -> None:
    alpha2 = recovered.coefficients[2]
    assert (alpha2.name, alpha2.value, alpha2.fitted, alpha2.low) == ("alpha2", 0.0, False, None)
    assert set(recovered.names) == set(FITTED)


def test_the_same_traces_and_seed_give_the_same_fit(quiet_and_busy: list[Trace], recovered: Fit) -> None:
    again = fitted(quiet_and_busy)
    assert again.config == recovered.config
    assert again.coefficients == recovered.coefficients


def test_intervals_of_noisy_traces_hold_the_truth_mostly() -> None:
    held = 0
    for seed in range(2):
        traces = [
            observed(workload(80, rate=rate, seed=10 * seed + i), noise=0.08, seed=seed)
            for i, rate in enumerate((3, 9))
        ]
        for each in fitted(traces).coefficients:
            held += each.fitted and each.low <= TRUTH[each.name] <= each.high
    assert held >= 8  # of 12; 90 % would be 11


def test_single_token_answers_hide_what_a_token_of_decoding_costs() -> None:
    traces = [observed(workload(100, rate=8, seed=3, output=(1, 0.0)))]
    unseen = {
        each.name: each.reason
        for each in fitted(traces).coefficients
        if each.fitted and not each.identifiable
    }
    assert "beta2" in unseen
    assert unseen["beta2"]


def test_prompts_of_one_length_hide_the_cost_of_a_prompt_token() -> None:
    traces = [observed(workload(100, rate=1, seed=4, prompt=(200, 0.0), output=(20, 0.3)))]
    unseen = {each.name for each in fitted(traces).coefficients if each.fitted and not each.identifiable}
    assert unseen & {"alpha0", "alpha1"}
    assert "beta0" not in unseen


def test_the_way_of_scheduling_that_explains_the_traces_is_kept() -> None:
    for way in (True, False):
        server = replace(SERVER, engine=replace(SERVER.engine, async_scheduling=way))
        found = fitted([observed(workload(60, rate=8, seed=5), server)], infer_async=True)
        assert found.schedule is not None
        assert found.config.engine.async_scheduling is way
        chosen, other = found.schedule.loss_async, found.schedule.loss_sync
        assert (chosen < other) is way


def test_an_overloaded_trace_still_tells_the_cost_of_its_steps() -> None:
    server = with_latency(SERVER, alpha0=2000.0)
    found = {
        each.name: each.value
        for each in fitted([observed(workload(150, rate=40, seed=6), server)]).coefficients
    }
    assert found["beta1"] == pytest.approx(60, rel=0.1)
    assert found["beta0"] + 60 * found["beta2"] == pytest.approx(12000 + 60 * 500, rel=0.05)


def test_too_few_requests_are_refused() -> None:
    with pytest.raises(TraceError, match="got 10 finished requests, expected at least 20"):
        fitted([observed(workload(10, rate=5, seed=7))])


def test_a_trace_whose_requests_all_failed_is_refused() -> None:
    good, bad = observed(workload(60, rate=5, seed=7)), observed(workload(12, rate=5, seed=8))
    failed = bad.with_columns(status=["error"] * 12, error_message=["refused"] * 12)
    with pytest.raises(TraceError, match="got no finished request, expected some in each trace of a fit"):
        fitted([good, failed])


def test_only_the_chosen_requests_enter_the_loss() -> None:
    trace = observed(workload(60, rate=5, seed=8))
    chosen = np.arange(60) < 30
    assert (fit_trace(trace, GUESS, name="half", chosen=chosen).used() == chosen).all()


def test_what_a_late_client_may_have_added_widens_the_way_in(
    quiet_and_busy: list[Trace], recovered: Fit
) -> None:
    ready = [fit_trace(trace, GUESS, name=str(i)) for i, trace in enumerate(quiet_and_busy)]
    found = fit([replace(ready[0], ttft_too_long_us=1e4), ready[1]], GUESS)
    sure, wide = recovered.coefficients[0], found.coefficients[0]
    assert (sure.name, wide.value, wide.high) == ("alpha0", sure.value, sure.high)
    assert wide.low == max((sure.low or 0.0) - 1e4, 0.0)
    late = (
        quiet_and_busy[0]
        .with_header(client=ClientInfo(late=True))
        .with_columns(first_token_early_us=np.full(100, 700))
    )
    assert fit_trace(late, GUESS, name="late").ttft_too_long_us == 700


@pytest.mark.parametrize("marks", [{"column": True}, {"column": False}])
def test_warm_up_requests_are_simulated_but_enter_neither_the_loss_nor_the_errors(
    marks: dict[str, bool],
) -> None:
    trace = observed(workload(60, rate=5, seed=8))
    if marks["column"]:
        warm = trace.with_columns(phase=np.where(np.arange(60) < 12, "warmup", "main"))
    else:
        warm = trace.with_header(warm_up_requests=12)
    ready = fit_trace(warm, GUESS, name="a")
    assert len(ready.requests) == 60
    assert ready.used().tolist() == [False] * 12 + [True] * 48
    pairs = pair_traces(warm, trace)
    assert len(pairs) == 48
    assert pairs.excluded == {"warmup": 12}


def test_a_log_of_the_engine_s_steps_gives_a_start_with_the_true_cost_of_a_step() -> None:
    trace = observed(workload(80, rate=8, seed=9))
    ready = fit_trace(trace, GUESS, name="a")
    logged = simulate(ready.requests, SERVER.engine, SERVER.latency, record="steps").steps()
    columns = {"prefill_tokens": "P", "decode_tokens": "D", "duration_us": "dur"}
    log = EngineSteps(
        **{name: np.array([getattr(step, key) for step in logged], float) for name, key in columns.items()}
    )
    task = Task(
        traces=(replace(ready, steps=log),),
        config=GUESS,
        names=FITTED,
        priors={},
        seed=1,
        report=lambda _s, _l: None,
    )
    objective = task.objective(FITTED)
    assert guess_of_steps(objective.on((ready,)), np.ones(len(FITTED))) is None
    start = guess_of_steps(objective, np.full(len(FITTED), 7.0))
    assert start is not None
    by_name = dict(zip(objective.names, start.tolist(), strict=True))
    assert by_name["alpha0"] == 7.0
    for name in ("beta0", "beta1", "beta2"):
        assert by_name[name] == pytest.approx(TRUTH[name], rel=0.02)


def test_observed_times_of_0_are_passed_over_in_the_initial_guess() -> None:
    trace = observed(workload(60, rate=4, seed=2))
    first = trace.column("content_first_time_us").to_numpy(np.int64).copy()
    last = trace.column("last_token_time_us").to_numpy(np.int64).copy()
    last[:5] = first[:5]  # a clock too coarse: the whole answer at once, TPOT 0
    coarse = trace.with_columns(last_token_time_us=last, last_chunk_time_us=last)
    ready = fit_trace(coarse, GUESS, name="a")
    assert (ready.observed_us[2] == 0).any()
    task = Task(traces=(ready,), config=GUESS, names=FITTED, priors={}, seed=1, report=lambda _s, _l: None)
    with np.errstate(all="raise"):
        guess = initial_guess(task.objective(FITTED))
    assert (guess >= 0).all()
    assert np.isfinite(guess).all()
