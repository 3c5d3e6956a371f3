"""A fit to the steps of servers whose coefficients are known, and of a real one."""

from __future__ import annotations

import tarfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.objective.priors import MEMORY, SLOWDOWN, THRESHOLD
from calibrate.steps.fitted_to_steps import fit_to_steps
from calibrate.steps.step_fit import LEAST_TAU_S, NAMES, StepFit, _StepTask, fit_steps
from calibrate.steps.step_logs import StepLogs
from calibrate.steps.step_model import predicted_us
from calibrate.steps.step_series import StepSeries, series_of
from replay import TwinConfig
from sim import Blackbox, EngineConfig, Extended
from sim.latency import StepBatch
from tests.calibrate.known_servers import observed, workload
from tests.calibrate.steps.made_logs import logged_steps

SERVER = TwinConfig(
    engine=EngineConfig(max_num_seqs=64, async_scheduling=False),
    latency=Extended(
        alpha0=4000, alpha1=5, beta0=4000, beta1=60, beta2=900, beta3=0.2, beta4=0.004, floor=9000,
        concavity=0.5, kappa=0.6, u0=0.4, tau_s=0.05,
    ),
)  # fmt: skip
PROMPTS = (600, 0.8)
GPU = {"kappa": SLOWDOWN, "u0": THRESHOLD, "tau_s": MEMORY}
H100 = Path(__file__).parents[2] / "studies" / "validation" / "h100"


def series(
    server: TwinConfig, *, rate: float, seed: int = 1, whole: bool = False, n: int = 200
) -> StepSeries:
    load = workload(n, rate=rate, seed=seed, prompt=PROMPTS)
    (found,), _ = series_of(logged_steps(load, server, whole=whole), name="made", is_async=False)
    return found


def scattered(sigma: float) -> TwinConfig:
    assert isinstance(SERVER.latency, Extended)
    return replace(SERVER, latency=replace(SERVER.latency, sigma=sigma))


@pytest.fixture(scope="module")
def found() -> StepFit:
    return fit_steps([series(scattered(0.05), rate=6)], Blackbox(alpha0=1234), priors=GPU)


def off(model: Extended, steps: StepSeries) -> float:
    """Return by how much all predicted time is off, as a fraction."""
    known = steps.known()
    return float(steps.summed(predicted_us(model, steps))[known].sum() / steps.took_us[known].sum() - 1)


def test_the_model_of_log_steps_is_the_engines() -> None:
    steps = series(SERVER, rate=9, whole=True)
    assert isinstance(SERVER.latency, Extended)
    known = steps.known()
    predicted = steps.summed(predicted_us(SERVER.latency, steps))[known]
    assert np.median(np.abs(predicted / steps.took_us[known] - 1)) < 1e-3
    assert abs(off(SERVER.latency, steps)) < 5e-3


def test_the_next_loads_steps_are_predicted(found: StepFit) -> None:
    assert off(found.model, series(SERVER, rate=6, seed=2)) == pytest.approx(0, abs=0.02)
    assert off(found.model, series(SERVER, rate=9, seed=3)) == pytest.approx(0, abs=0.04)


def test_how_far_single_steps_are_off_is_told_with_and_without_prompts(found: StepFit) -> None:
    steps = series(scattered(0.05), rate=6)
    known, prompts = steps.known(), steps.has_prompts[steps.known()]
    ratio = steps.summed(predicted_us(found.model, steps))[known] / steps.took_us[known]
    for told, rows in ((found.decode_mape, ~prompts), (found.prefill_mape, prompts)):
        assert told == pytest.approx(np.abs(ratio[rows] - 1).mean(), rel=1e-3)
    assert found.decode_mape != pytest.approx(found.prefill_mape, rel=0.02)


def test_a_gpu_that_waits_becomes_fast_again() -> None:
    """Ten steps one behind the other, then one at once, a time of its memory later, or ten: each faster than before."""
    steps, busy = series(SERVER, rate=9, whole=True), np.zeros(11, int)
    assert isinstance(SERVER.latency, Extended)
    tau_us = SERVER.latency.tau_s * 1e6
    batch = StepBatch(**{each.name: getattr(steps.batch, each.name)[:1][busy] for each in fields(StepBatch)})
    batch = replace(batch, num_prefill_tokens=np.full(11, 600))
    last = []
    for waits in (0.0, 1.0, 10.0):
        begin = np.arange(11) * 50_000.0
        begin[10] += waits * tau_us
        made = replace(steps, batch=batch, begin_us=begin, end_us=begin + 50_000, group=np.arange(11))
        predicted = predicted_us(SERVER.latency, made)
        assert (np.diff(predicted[:10]) >= 0).all()
        last.append(predicted[10])
    assert last[0] > 1.02 * last[1] > 1.02 * last[2]
    assert last[2] == pytest.approx(predicted[0], rel=1e-4)


def test_a_memory_is_never_shorter_than_the_least() -> None:
    task = _StepTask.of([series(SERVER, rate=9, whole=True)], Blackbox(), GPU)
    low, _ = task.limits()
    assert dict(zip(NAMES, low * task.scale, strict=True))["tau_s"] == pytest.approx(LEAST_TAU_S)
    assert task.model(np.zeros(len(NAMES))).tau_s == pytest.approx(LEAST_TAU_S)


def test_it_leaves_the_way_in_alone(found: StepFit) -> None:
    assert found.model.alpha0 == 1234
    assert found.num_known > 1000
    assert found.converged


def test_the_cost_of_a_prefill_token_is_known_and_its_interval_holds_the_truth(found: StepFit) -> None:
    by_name = {each.name: each for each in found.coefficients}
    beta1 = by_name["beta1"]
    assert beta1.identifiable
    assert (beta1.low or 0) < 60 < (beta1.high or 0)
    assert beta1.value == pytest.approx(60, rel=0.1)
    assert by_name["tau_s"].is_prior_led


def test_a_few_steps_that_are_much_longer_do_not_move_the_fit() -> None:
    load = workload(200, rate=6, seed=4, prompt=PROMPTS)
    logged = logged_steps(load, SERVER)
    slow = np.where(np.arange(len(logged)) % 20 == 0, 3.0, 1.0)
    took = np.diff(logged.end_us, prepend=logged.end_us[0]) * slow
    (steps,), _ = series_of(
        replace(logged, end_us=logged.end_us[0] + np.cumsum(took)), name="made", is_async=False
    )
    fitted = fit_steps([steps], Blackbox(), priors=GPU)
    assert off(fitted.model, series(SERVER, rate=6, seed=2)) == pytest.approx(0, abs=0.02)
    assert fitted.decode_mape > 0.02


def test_forward_passes_and_a_log_of_the_same_server_agree() -> None:
    metrics = fit_steps([series(SERVER, rate=6, whole=True)], Blackbox(), priors=GPU)
    log = fit_steps([series(SERVER, rate=6)], Blackbox(), priors=GPU)
    other = series(SERVER, rate=9, seed=5)
    assert off(metrics.model, other) == pytest.approx(off(log.model, other), abs=0.025)


def test_the_requests_show_the_way_in() -> None:
    load = workload(150, rate=6, seed=6, prompt=PROMPTS)
    steps = series_of(logged_steps(load, SERVER), name="made", is_async=False)[0]
    logs = StepLogs(series=tuple(steps), names=("made",), remarks=())
    start = replace(SERVER, latency=Blackbox(alpha0=1, beta0=1, beta1=1, beta2=1))
    trace = fit_trace(observed(load, SERVER, noise=0.05), start, name="made")
    fit = fit_to_steps(logs, [trace], start, priors=GPU, seed=1, report=None)
    by_name = {each.name: each for each in fit.coefficients}
    assert fit.model == "extended"
    way_in = by_name["alpha0"].value + 600 * by_name["alpha1"].value
    assert way_in == pytest.approx(4000 + 600 * 5, rel=0.25)
    assert not by_name["alpha2"].fitted
    assert len(fit.names) == len(fit.correlation)
    assert fit.names[:3] == ("alpha0", "alpha1", "alpha3")
    assert np.diag(fit.correlation) == pytest.approx(1)
    assert not fit.correlation[:3, 3:].any()
    assert not fit.correlation[3:, :3].any()
    assert np.abs(fit.correlation[3:, 3:]).sum() > len(fit.names) - 3
    assert fit.num_requests == 150
    assert 0 < fit.seconds < 300


def test_a_real_servers_next_load_is_within_the_bars(tmp_path: Path) -> None:
    """Fifty seconds of steps of an H100 at 30 % of its load; then 55 %: TPOT within 3 %, TTFT within 8 %."""
    from calibrate.fit.objective.known_server import known_server
    from calibrate.fit.objective.priors import known_priors
    from replay import simulate_trace
    from tests.studies.validation.h100 import errors
    from traces import read_trace
    from traces.steps import read_logged_steps

    with tarfile.open(H100 / "traces.tar.xz") as archive:
        wanted = [each for each in archive.getnames() if each.split(".")[0] in ("r30", "r55")]
        archive.extractall(tmp_path, members=map(archive.getmember, wanted), filter="data")
    logged = read_logged_steps(tmp_path / "r30.steps.csv")
    logs = StepLogs(series=tuple(series_of(logged, name="r30", is_async=True)[0]), names=("r30",), remarks=())
    fitted, judged = read_trace(tmp_path / "r30"), read_trace(tmp_path / "r55")
    engine = EngineConfig(max_num_seqs=1024, max_num_batched_tokens=8192, num_gpu_blocks=28934, block_size=16)
    twin = TwinConfig(engine=engine, latency=Blackbox(beta0=1))
    priors = known_priors(known_server(fitted.header.server, gpu="H100"))
    fit = fit_to_steps(logs, [fit_trace(fitted, twin, name="r30")], twin, priors=priors, seed=1, report=None)
    ttft, tpot, e2e = errors(judged, simulate_trace(judged, fit.config)[0])
    assert abs(tpot.mean) < 3
    assert abs(ttft.mean) < 8
    assert abs(e2e.mean) < 3
