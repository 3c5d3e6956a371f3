"""The loss of a fit against a pencil and finite differences: no data that the model itself has made."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.fit.objective.exposure import exposure_columns
from calibrate.fit.objective.fit_trace import LOSS_METRICS, FitTrace, fit_trace, head_of, observed_in_order
from calibrate.fit.objective.objective import FitObjective, log_ratio
from calibrate.fit.objective.priors import USUAL_WEIGHT, WAY_IN, Prior
from sim import Blackbox, Extended
from tests.calibrate.known_servers import ENGINE, SERVER, observed, workload
from traces import Header, Trace, make_trace

NAMES = ("alpha0", "beta0", "beta1")


def ready(n: int = 6, seed: int = 1) -> FitTrace:
    return fit_trace(observed(workload(n, rate=2, seed=seed)), SERVER, name=str(seed))


def objective(*traces: FitTrace, names: tuple[str, ...] = NAMES, **priors: Prior) -> FitObjective:
    return FitObjective(
        traces=traces,
        engine=ENGINE,
        names=names,
        base=Blackbox(),
        scale=np.full(len(names), 100.0),
        noise=np.ones(4),
        priors=priors,
    )


def test_every_trace_counts_alike_and_every_metric_in_it() -> None:
    """Ten requests with three metrics beside four with two: halves, thirds and halves of halves."""
    long, short = ready(10), ready(4, seed=2)
    values = short.observed_us.copy()
    values[2] = np.nan  # TPOT is not known
    values[0, 1] = np.nan  # nor is one TTFT
    short = replace(short, observed_us=values)
    found = objective(long, short).weights()
    assert found[0][:, 0] == pytest.approx([1 / 60, 1 / 60, 1 / 60, 0])
    assert found[1][:, 0] == pytest.approx([1 / 12, 1 / 16, 0, 0])
    used = [np.isfinite(each.observed_us) for each in (long, short)]
    assert [float(weight[mask].sum()) for weight, mask in zip(found, used, strict=True)] == pytest.approx(
        [0.5, 0.5]
    )


def test_the_loss_is_soft_l1_of_the_residuals_with_these_weights() -> None:
    trace = ready(4)
    trace = replace(trace, observed_us=np.where(np.arange(4)[:, None] < 2, trace.observed_us, np.nan))
    residual = np.full((4, 4), np.nan)
    residual[0], residual[1] = [0, 1, 2, 3], 0
    due = 2 * (np.sqrt(1 + np.array([0, 1, 4, 9.0])) - 1).sum() / 8
    assert objective(trace).loss([residual], np.zeros(3)) == pytest.approx(due)


def test_a_request_that_never_finishes_costs_as_if_it_were_ten_times_too_slow() -> None:
    simulated = np.array([np.nan, np.inf, 200.0, 100.0, 0.0, 100.0])
    seen = np.array([100.0, 100.0, 100.0, np.nan, 100.0, 0.0])
    found = log_ratio(simulated, seen)
    assert found == pytest.approx(
        [np.log(10), np.log(10), np.log(2), np.nan, np.log(1 / 100), np.nan], nan_ok=True
    )


def test_a_twin_that_leaves_requests_unfinished_has_the_larger_loss() -> None:
    """No prompt fits into half the KV blocks: a server that answers nothing must not look perfect."""
    trace = ready(6)
    asked = objective(trace)
    theta = np.array([SERVER.latency.alpha0, SERVER.latency.beta0, SERVER.latency.beta1])  # type: ignore[attr-defined]
    tiny = replace(asked, engine=replace(ENGINE, num_gpu_blocks=5))
    lost = tiny.residuals(tiny.simulate(theta))[0]
    assert (lost[:2] == np.log(10)).sum() >= 6
    assert tiny.evaluate(theta) > asked.evaluate(theta) + 0.1


def test_a_prior_pulls_by_its_width_and_gives_way_far_out() -> None:
    trace = ready(6)
    asked = objective(trace, beta0=Prior(centre=1000.0, width=50.0, source="by hand"))
    one = 1 / trace.num_used
    for off in (0.0, 25.0, 50.0, 150.0, 1000.0):
        theta = np.array([2000.0, 1000.0 + off, 7.0])
        own = USUAL_WEIGHT * one * np.log1p((off / 50) ** 2)  # Cauchy: its logarithm, not its square
        way_in = one * (2000 / WAY_IN["alpha0"]) ** 2
        assert asked.prior_loss(theta) == pytest.approx(own + way_in)
        slope = (
            asked.prior_loss(theta + np.array([0, 1e-3, 0]))
            - asked.prior_loss(theta - np.array([0, 1e-3, 0]))
        ) / 2e-3
        scaled = asked.prior_precision(theta)[1] / asked.scale[1] ** 2
        assert slope == pytest.approx(2 * scaled * off, rel=1e-4, abs=1e-9)


def alone(prompts: list[int], outputs: list[int], gap_s: float = 60.0) -> Trace:
    """Return requests that never meet."""
    n = len(prompts)
    return make_trace(
        Header(tool="vtwin", mode="generated"),
        {
            "request_id": [str(i) for i in range(n)],
            "arrival_time_us": (np.arange(n) * gap_s * 1e6).astype(np.int64),
            "input_tokens": prompts,
            "output_tokens": outputs,
        },
    )


def together() -> Trace:
    """Return requests that come and decode together, six times."""
    trace = alone([500] * 24, [30] * 24)
    return trace.with_columns(arrival_time_us=np.repeat(np.arange(6) * 60_000_000, 4))


@pytest.mark.parametrize(("load", "tolerance"), [("alone", 0.02), ("together", 0.05)])
@pytest.mark.parametrize("name", ["alpha0", "alpha1", "alpha2", "beta0", "beta1", "beta2", "beta3", "beta4"])
def test_exposures_are_the_derivatives_of_the_simulated_latencies(
    name: str, load: str, tolerance: float
) -> None:
    """One coefficient a little larger: each latency grows by its exposure while the schedule stays."""
    truth = {"alpha0": 4e3, "alpha1": 5.0, "alpha2": 40.0, "beta0": 12e3, "beta1": 60.0, "beta2": 500.0}
    truth |= {"beta3": 0.05, "beta4": 0.002}
    trace = alone([100, 700, 1500, 40], [30, 2, 120, 1]) if load == "alone" else together()
    asked = fit_trace(observed(trace, replace(SERVER, latency=Extended(**truth))), SERVER, name="a")
    asked = replace(asked, done_rows=np.zeros(0, np.int64))
    step = 0.2 * truth[name]
    ends = []
    for value in (truth[name] + step, truth[name] - step):
        model = Extended(**{**truth, name: value})
        ends.append(replace(objective(asked, names=()), base=model).simulate(np.zeros(0))[0])
    middle = replace(objective(asked, names=()), base=Extended(**truth)).simulate(np.zeros(0))[0]
    slope = (ends[0].latency_us - ends[1].latency_us)[:3] / (2 * step)
    said = exposure_columns(middle.timeline, asked.requests.prompt_tokens.astype(np.float64))[name][:3]
    for row, metric in enumerate(LOSS_METRICS[:3]):
        known = np.isfinite(slope[row])
        rounding = 2.0 / step
        assert said[row][known] == pytest.approx(slope[row][known], rel=tolerance, abs=rounding), metric


# -- what is measured of a trace --------------------------------------------------------------------------------


def test_what_the_cache_held_is_not_computed_and_one_token_always_is() -> None:
    trace = observed(workload(4, rate=2, seed=3))
    prompt = trace.requests["input_tokens"].to_numpy(dtype=np.int64)
    cached = [0, 16, int(prompt[2]), None]
    found = fit_trace(trace.with_columns(cached_input_tokens=cached), SERVER, name="a")
    assert list(found.observed_timeline.prefill_tokens) == [prompt[0], prompt[1] - 16, 1, prompt[3]]


def test_completions_count_in_their_order_from_the_first_arrival_on_without_the_run_up() -> None:
    arrival = np.array([50.0, 10.0, 30.0, 20.0, 40.0, 60.0])
    done = np.array([500.0, 900.0, np.nan, 300.0, 700.0, 600.0])
    rows, times = observed_in_order(arrival, done)
    assert list(rows) == [3, 0, 5, 4, 1]
    assert times == pytest.approx([490, 890, np.nan, np.nan, 690, 590], nan_ok=True)  # a fifth of five: row 3


def test_the_head_of_a_trace_counts_what_was_done_before_the_next_request_came() -> None:
    trace = fit_trace(observed(workload(12, rate=20, seed=1)), SERVER, name="a")
    joined, last = trace.observed_timeline.joined, trace.observed_timeline.last
    head = head_of(trace, 5)
    assert len(head.requests) == 5
    assert (head.requests.arrival_us == trace.requests.arrival_us[:5]).all()
    is_done = last[:5] <= joined[5]
    assert 0 < is_done.sum() < 5
    assert (np.isfinite(head.observed_us[1]) == is_done).all()
    assert head_of(trace, 12) is trace
    paced = replace(trace, done_rows=np.array([7, 1, 0, 4, 2, 3]))
    assert list(head_of(paced, 5).done_rows) == [row for row in (1, 0, 4, 2, 3) if is_done[row]]
