"""A profile is fitted: the factor on its tables and the time between steps, and it is one of auto's candidates."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import vtwin
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.pipeline import fit
from replay import TwinConfig, load_config
from replay.twin.profiled_table import AFTER, StepTableFile, model_of, write_step_tables
from sim import EngineConfig, Profiled
from sim.latency.profiled import axis_knots
from tests.calibrate.known_servers import observed, workload
from traces import Trace, write_trace
from traces.errors import ConfigError

TOKENS, SEQUENCES, KEYS = axis_knots(4096), axis_knots(64), axis_knots(8192)
JUMP_US = 7_000.0
FILE = StepTableFile(
    tables={
        "tokens_us": np.hypot(9_000.0, 45.0 * TOKENS) + JUMP_US * (TOKENS > 1024),
        AFTER: np.hypot(9_000.0, 45.0 * TOKENS) + JUMP_US * (TOKENS >= 1024),
        "sequences_us": 300.0 + 8.0 * SEQUENCES,
        "decode_us": 0.05 * np.multiply.outer(SEQUENCES, KEYS),
        "prefill_us": 0.001 * np.multiply.outer(TOKENS, KEYS),
    },
    step_us=0.0,
    domain={},
    about={"tp": 1},
)
TRUTH = {"alpha0": 6_500.0, "alpha1": 4.0, "alpha3": 120.0, "scale": 1.2, "step": 1_800.0}
ENGINE = EngineConfig(max_num_seqs=64, max_num_batched_tokens=4096, async_scheduling=True)
SERVER = TwinConfig(engine=ENGINE, latency=model_of(FILE, **TRUTH))
TWIN = TwinConfig(engine=ENGINE, latency=model_of(FILE))


def trace_of(rate: float, seed: int) -> Trace:
    asked = workload(80, rate=rate, seed=seed, prompt=(700, 0.6), output=(60, 0.5))
    return observed(asked, SERVER, noise=0.01, seed=seed)


def test_the_factor_and_the_time_between_steps_are_found() -> None:
    ready = [fit_trace(trace_of(rate, i), TWIN, name=str(i)) for i, rate in enumerate((1.0, 3.0))]
    found = fit(ready, TWIN)
    assert found.model == "profiled"
    values = {each.name: each for each in found.coefficients}
    assert set(values) == {"alpha0", "alpha1", "alpha3", "scale", "step"}
    assert values["scale"].value == pytest.approx(TRUTH["scale"], rel=0.02)
    assert values["step"].value == pytest.approx(TRUTH["step"], rel=0.25)
    for name in ("scale", "step"):
        low, high = values[name].low, values[name].high
        assert low is not None
        assert high is not None
        assert low < values[name].value < high
    latency = found.config.latency
    assert isinstance(latency, Profiled)
    assert latency.scale == values["scale"].value
    with pytest.raises(ConfigError, match=r"--fit-alpha2: cannot be combined with latency\.model profiled"):
        fit(ready, TWIN, names=("beta0",))


def test_a_profile_without_a_way_in_begins_at_a_guess() -> None:
    """What is 0 in a model is left out of a fit; no profile of kernels says how a request gets into the queue."""
    ready = [fit_trace(trace_of(1.0, 1), TWIN, name="one")]
    found = fit(ready, replace(TWIN, latency=model_of(FILE, step=0.0)))
    assert set(Profiled.first_guesses) <= {each.name for each in found.coefficients if each.fitted}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_step_tables(tmp_path / "profile.json", FILE)
    (tmp_path / "twin.yaml").write_text(
        "latency: {model: profiled, table: profile.json}\n"
        "engine: {max_num_seqs: 64, max_num_batched_tokens: 4096, max_model_len: 8192}\n"
    )
    for i, rate in enumerate((1.0, 3.0)):
        write_trace(trace_of(rate, i), tmp_path / f"real{i}")
    return tmp_path


def calibrated(*options: str) -> dict[str, Any]:
    """Return the report of a fit from the commands."""
    asked = ["calibrate", "real0", "real1", "--config", "twin.yaml", "--fit", "--report", "out", *options]
    assert vtwin.main(asked) == 0
    return json.loads(Path("out/report.json").read_text())  # type: ignore[no-any-return]


def test_a_fitted_profile_is_written_beside_its_table(here: Path) -> None:
    told = calibrated("--latency-model", "profiled", "--write-config", "fitted.yaml")
    assert told["fit"]["model"] == "profiled"
    written = yaml.safe_load((here / "fitted.yaml").read_text())
    assert written["latency"]["coefficients"]["scale"] == pytest.approx(TRUTH["scale"], rel=0.08)
    latency = load_config(here / "fitted.yaml").latency
    assert isinstance(latency, Profiled)
    np.testing.assert_allclose(latency.tokens_us, FILE.tables["tokens_us"], rtol=1e-5)
    assert latency.tokens_after_us is not None


def test_the_profile_is_one_of_auto_s_candidates(here: Path) -> None:
    assert here.exists()
    told = calibrated()
    off = {each["name"]: each["e2e_off"] for each in told["fit"]["candidates"]}
    assert off["profiled"] < 0.02
    assert off["profiled"] == min(off.values())
