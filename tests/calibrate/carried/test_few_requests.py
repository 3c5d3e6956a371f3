"""Few idle requests correct a carried model, also where they hardly show it: under load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vtwin
from calibrate.carried.few_requests import fit_few
from calibrate.fit.objective.fit_trace import fit_trace
from replay import TwinConfig, dump_config, load_config, simulate_trace
from replay.model import find_gpu, peak_times, read_model_config
from replay.twin import usual_physics
from sim import Blackbox, EngineConfig, Extended, LatencyModel, Physics
from tests.calibrate.known_servers import observed, workload
from traces import Trace, TraceError, request_metrics, write_trace

MODEL = "meta-llama/Llama-3.1-8B"
ENGINE = EngineConfig(
    max_num_seqs=128, max_num_batched_tokens=8192, max_model_len=8192, num_gpu_blocks=20_000
)
EXTENDED = Extended(
    alpha0=6000, alpha1=1, beta0=900, beta1=20, beta2=30, beta3=0.04, beta4=0.0005, floor=5000, concavity=0.3
)
PEAK = peak_times(read_model_config(MODEL), find_gpu("H100"), tp=1)
PHYSICS = Physics(peak=PEAK, **{**usual_physics(PEAK), "alpha0": 6000.0})  # type: ignore[arg-type]


def idle(server: LatencyModel, *, number: int = 20) -> Trace:
    twin = TwinConfig(engine=ENGINE, latency=server)
    load = workload(number, rate=0.1, seed=3, prompt=(900, 0.6), output=(60, 0.5))
    return observed(load, twin, noise=0.05, seed=1)


def mean_e2e(model: LatencyModel) -> float:
    load = workload(300, rate=12, seed=4, prompt=(900, 0.6), output=(150, 0.5))
    run, _ = simulate_trace(load, TwinConfig(engine=ENGINE, latency=model))
    return float(np.nanmean(request_metrics(run)["e2e_us"].to_numpy(float)))


@pytest.mark.parametrize(
    ("carried", "truth"),
    [
        (EXTENDED, replace(EXTENDED, floor=6500.0, beta3=0.052, beta1=26, beta4=0.00065, alpha0=12_000)),
        (
            PHYSICS,
            replace(
                PHYSICS,
                **{name: 1.3 * getattr(PHYSICS, name) for name in ("weights", "decode_kv", "head")},
                **{name: 1.3 * getattr(PHYSICS, name) for name in ("prefill_compute", "prefill_attention")},
                alpha0=12_000.0,
            ),
        ),
    ],
    ids=("extended", "physics"),
)
def test_twenty_idle_requests_correct_what_load_shows(carried: LatencyModel, truth: LatencyModel) -> None:
    config = TwinConfig(engine=ENGINE, latency=carried)
    found = fit_few([fit_trace(idle(truth), config, name="idle")], config, carried_from="an H100")
    real, before, after = (mean_e2e(each) for each in (truth, carried, found.config.latency))
    assert abs(before / real - 1) > 0.15
    assert abs(after / real - 1) < 0.06
    assert found.carried_from == "an H100"
    assert found.num_requests == 20
    told = {each.name: each for each in found.coefficients if each.fitted}
    assert float(told["alpha0"].value) == pytest.approx(12_000, rel=0.25)
    for each in told.values():
        assert each.low is not None
        assert each.high is not None
        assert each.low < each.value < each.high
        assert each.prior is not None


def test_a_carried_model_that_is_right_stays() -> None:
    config = TwinConfig(engine=ENGINE, latency=EXTENDED)
    found = fit_few([fit_trace(idle(EXTENDED), config, name="idle")], config, carried_from="an H100")
    assert mean_e2e(found.config.latency) / mean_e2e(EXTENDED) == pytest.approx(1, abs=0.03)


def test_a_way_in_that_was_never_seen_is_found() -> None:
    config = TwinConfig(engine=ENGINE, latency=replace(EXTENDED, alpha0=0))
    found = fit_few([fit_trace(idle(EXTENDED), config, name="idle")], config, carried_from="an H100")
    assert float(found.config.latency.alpha0) == pytest.approx(6000, rel=0.4)


def test_two_requests_are_too_few() -> None:
    config = TwinConfig(engine=ENGINE, latency=Blackbox(alpha0=9000, beta0=6000, beta1=20, beta2=30))
    with pytest.raises(TraceError, match="--from: got 2 finished requests, expected at least 3"):
        fit_few([fit_trace(idle(EXTENDED, number=2), config, name="idle")], config, carried_from="an H100")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a fitted twin of an H100 and idle requests of another server."""
    monkeypatch.chdir(tmp_path)
    write_trace(idle(replace(EXTENDED, floor=7000.0)), tmp_path / "idle")
    text = dump_config(TwinConfig(engine=ENGINE, latency=EXTENDED)).replace(
        "latency:\n  model: extended\n",
        f"hardware: {{gpu: H100}}\nlatency:\n  model: extended\n  model_config: {MODEL}\n"
        "  fitted_range: {rate_per_s: [1, 12], prompt_tokens: [10, 3000]}\n",
    )
    (tmp_path / "old.yaml").write_text(text)
    (tmp_path / "guess.yaml").write_text(
        "engine: {max_num_seqs: 128, max_num_batched_tokens: 8192, max_model_len: 8192, num_gpu_blocks: 20000}\n"
        "latency: {model: blackbox, coefficients: {alpha0: 9, alpha1: 1, alpha2: 0, beta0: 1, beta1: 1, beta2: 1}}\n"
    )
    return tmp_path


def carried(*words: str) -> int:
    asked = ["calibrate", "idle", "--from", "old.yaml", "--config", "guess.yaml", "--report", "report"]
    return vtwin.main([*asked, *words])


SERVER = ("--gpu", "A100-80", "--model-config", MODEL)


@pytest.mark.usefixtures("here")
def test_the_written_twin_says_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert carried(*SERVER, "--write-config", "new.yaml") == 0
    told = capsys.readouterr()
    assert (
        "warning: carried from the twin of H100, tp 1 (old.yaml): under load, which 10 requests" in told.err
    )
    twin = load_config("new.yaml")
    assert isinstance(twin.latency, Extended)
    assert twin.fitted_on is not None
    assert (twin.fitted_on.gpu, twin.fitted_on.carried_from) == ("A100-80", "H100, tp 1 (old.yaml)")
    assert twin.fitted is not None
    assert twin.fitted.rate_per_s is not None
    assert twin.fitted.rate_per_s[1] == 12
    assert twin.pace is not None
    assert (twin.pace.within >= 0.12, twin.pace.beyond >= 0.2) == (True, True)
    assert vtwin.main(["profiles", "show", "new.yaml"]) == 0
    assert "the twin of H100, tp 1 (old.yaml), with few requests of its own" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--from: got a server whose steps physics does not know"),
        (
            ("--gpu", "H200", "--model-config", "Qwen/Qwen3-14B"),
            "a model of 32 layers, expected one of this server",
        ),
        ((*SERVER, "--latency-model", "extended"), "--latency-model: cannot be combined with --from"),
        ((*SERVER, "--steps", "auto"), "--latency-model: cannot"),
        ((*SERVER, "--infer-async"), "--infer-async: cannot be combined with --from"),
    ],
)
def test_what_cannot_be_carried_is_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--steps" in words:
        told = "--steps: cannot be combined with --from"
    assert carried(*words) == 2
    assert told in capsys.readouterr().err


def test_a_twin_that_names_no_server_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "old.yaml").write_text(dump_config(TwinConfig(engine=ENGINE, latency=EXTENDED)))
    assert carried(*SERVER) == 2
    assert "--from: got old.yaml, which names no model and GPU" in capsys.readouterr().err


def test_what_idle_requests_hardly_show_moves_with_its_kind() -> None:
    config = TwinConfig(engine=ENGINE, latency=EXTENDED)
    slower = idle(replace(EXTENDED, floor=1.3 * EXTENDED.floor))
    found = fit_few([fit_trace(slower, config, name="idle")], config, carried_from="an H100")
    told = {each.name: each for each in found.coefficients}
    assert told["floor"].value > 1.1 * EXTENDED.floor
    assert told["beta3"].value > 1.1 * EXTENDED.beta3
