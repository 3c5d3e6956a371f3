"""Physics is fitted jointly: what traces of one or several servers tell is found, what they do not stays put."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import vtwin
from calibrate.fit import model_selection
from calibrate.fit.known_models import ServedTrace, fit_known
from calibrate.fit.objective.fit_trace import fit_trace
from calibrate.fit.result import Fit
from replay import TwinConfig, load_config
from replay.model import find_gpu, read_model_config
from replay.model.model_peak import peak_times
from replay.twin.latency import DENSE_PHYSICS, physics_sets
from sim import EngineConfig, Physics
from tests.calibrate.known_servers import observed, workload
from traces import Trace, write_trace
from traces.errors import ConfigError

LEARNED = physics_sets()[DENSE_PHYSICS]
TRUTH = LEARNED | {"weights": 1.5, "prefill_compute": 2.4, "layer_us": 60.0}
SERVERS = {"one": ("meta-llama/Llama-3.1-8B", "L40S", 1), "other": ("Qwen/Qwen3-32B", "H100", 2)}


def server(name: str, coefficients: dict[str, float]) -> TwinConfig:
    model, gpu, tp = SERVERS[name]
    peak = peak_times(read_model_config(model), find_gpu(gpu), tp=tp)
    return TwinConfig(engine=EngineConfig(max_num_seqs=64), latency=Physics(peak=peak, **coefficients))


def trace_of(name: str, *, rate: float) -> Trace:
    return observed(workload(60, rate=rate, seed=1, prompt=(900, 0.8), output=(60, 0.5)), server(name, TRUTH))


@lru_cache(maxsize=1)
def joint() -> tuple[Fit, ...]:
    served = []
    for name, rate in (("one", 1.0), ("other", 2.0)):
        config = server(name, LEARNED)
        served.append(
            ServedTrace(trace=fit_trace(trace_of(name, rate=rate), config, name=name), config=config)
        )
    return fit_known(served)


def test_one_set_is_fitted_to_traces_of_different_models_and_gpus() -> None:
    first, second = joint()
    assert first.coefficients == second.coefficients
    assert first.config.latency.peak != second.config.latency.peak  # type: ignore[attr-defined]
    found = {each.name: each for each in first.coefficients}
    assert found["weights"].value == pytest.approx(TRUTH["weights"], rel=0.08)
    assert found["prefill_compute"].value == pytest.approx(TRUTH["prefill_compute"], rel=0.15)
    for name in ("weights", "prefill_compute"):
        assert found[name].low < found[name].value < found[name].high  # type: ignore[operator]


def test_the_fitted_twins_do_what_the_servers_did() -> None:
    for name, rate, found in zip(SERVERS, (1.0, 2.0), joint(), strict=True):
        real = trace_of(name, rate=rate)
        mine = observed(workload(60, rate=rate, seed=1, prompt=(900, 0.8), output=(60, 0.5)), found.config)
        ends = [
            t.requests["last_token_time_us"].to_numpy() - t.requests["send_time_us"].to_numpy()
            for t in (mine, real)
        ]
        assert np.median(np.abs(ends[0] / ends[1] - 1)) < 0.02


def test_what_the_traces_do_not_tell_stays_near_where_it_was_and_says_so() -> None:
    coefficients = {each.name: each for each in joint()[0].coefficients}
    assert "expert_compute" not in coefficients  # neither server has experts
    silent = [each for each in coefficients.values() if not each.identifiable]
    assert silent
    for each in silent:
        assert each.reason
        assert 0.3 < each.value / LEARNED.get(each.name, each.value) < 3


def test_another_model_is_refused() -> None:
    config = server("one", LEARNED)
    ready = fit_trace(trace_of("one", rate=1.0), config, name="one")
    from sim import Blackbox

    with pytest.raises(ConfigError, match="expected physics"):
        fit_known([ServedTrace(trace=ready, config=replace(config, latency=Blackbox(beta0=1)))])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_trace(trace_of("one", rate=1.0), tmp_path / "real")
    (tmp_path / "twin.yaml").write_text(
        "hardware: L40S\nlatency: {model: auto, model_config: meta-llama/Llama-3.1-8B}\n"
        "engine: {max_num_seqs: 64, max_model_len: 8192}\n"
    )
    return tmp_path


def test_the_default_fit_has_physics_among_its_candidates(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_selection, "PREFERRED", ("physics", *model_selection.PREFERRED))
    asked = ["calibrate", "real", "--config", "twin.yaml", "--fit", "--report", "report", "--json"]
    kept = ["--write-defaults", "kept.yaml", "--write-config", "fitted.yaml"]
    assert vtwin.main([*asked, *kept, "--model", "m", "--gpu", "L40S", "--tp", "1"]) == 0
    found = json.loads(capsys.readouterr().out)["fit"]
    assert [each["name"] for each in found["candidates"]][-1] == "physics"
    assert found["model"] == "physics"  # whose server this is: as near as the best, and preferred here
    assert isinstance(load_config(here / "fitted.yaml").latency, Physics)
    assert "physics was chosen, blackbox is kept" in (here / "kept.yaml").read_text()


def test_calibrate_fits_physics_and_writes_the_twin(here: Path) -> None:
    asked = ["calibrate", "real", "--config", "twin.yaml", "--latency-model", "physics", "--fit"]
    assert vtwin.main([*asked, "--report", "report", "--write-config", "fitted.yaml"]) == 0
    document = json.loads((here / "report" / "report.json").read_text())
    assert document["fit"]["model"] == "physics"
    fitted = load_config(here / "fitted.yaml").latency
    assert isinstance(fitted, Physics)
    assert fitted.weights == pytest.approx(document["fit"]["coefficients"]["weights"]["value"])


def test_latency_models_stand_side_by_side(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["calibrate", "models", "real", "--config", "twin.yaml", "--models", "blackbox,roofline,physics"]
    assert vtwin.main([*asked, "--report", "report", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    assert [row["model"] for row in rows] == ["blackbox", "roofline", "physics"]
    assert "no coefficients of meta-llama/Llama-3.1-8B on L40S" in rows[0]["note"]
    assert rows[1]["n"] == rows[2]["n"] == 60
    assert 0 < rows[2]["mape"]["tpot_us"] < 1
    assert (here / "report" / "physics" / "report.json").is_file()
    assert json.loads((here / "report" / "latency-models.json").read_text())["models"] == rows


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--thresholds", "gate.yaml"),
        ("--junit", "j.xml"),
        ("--baseline", "old.json"),
        ("--write-config", "t.yaml"),
        ("--write-defaults", "d.yaml"),
        ("--latency-model", "physics"),
        ("--format", "blis"),
    ],
)
def test_comparing_refuses_what_needs_one_twin(
    here: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "gate.yaml").write_text("metrics: {e2e_us: {mape: {fail: 0.1}}}\n")
    asked = ["calibrate", "real", "--config", "twin.yaml", "--fit", "--compare-latency", "physics"]
    assert vtwin.main([*asked, "--report", "r", option, value]) == 2
    assert f"{option}: cannot be combined with --compare-latency" in capsys.readouterr().err
    assert not (here / "r").exists()


@pytest.mark.parametrize("option", [["--infer-async"], ["--fit-alpha2"], ["--gpu", "H100"], ["--tp", "2"]])
def test_a_fit_of_physics_refuses_what_it_would_not_use(
    here: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["calibrate", "real", "--config", "twin.yaml", "--latency-model", "physics", "--fit"]
    assert vtwin.main([*asked, "--report", "r", *option]) == 2
    said = capsys.readouterr().err
    assert option[0] in said
    assert "cannot be combined with latency.model physics" in said
    assert not (here / "r").exists()


@pytest.mark.usefixtures("here")
def test_comparing_needs_a_twin_and_models(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["calibrate", "models", "real", "--report", "r"]
    assert vtwin.main([*asked, "--models", "roofline"]) == 2
    assert "Missing option '--config'" in capsys.readouterr().err
    assert vtwin.main([*asked, "--config", "twin.yaml", "--models", ","]) == 2
    assert "--models: got nothing, expected latency models such as" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_the_option_of_before_compares_too_and_says_how_it_is_written_now(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["calibrate", "real", "--config", "twin.yaml", "--report"]
    assert vtwin.main([*asked, "old", "--compare-latency", "blackbox,roofline"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "--compare-latency" in line]
    assert said == [
        "note: --compare-latency is `vtwin calibrate models real --config twin.yaml --models blackbox,roofline …` now; "
        "the option goes with the next release"
    ]
    new = ["calibrate", "models", "real", "--config", "twin.yaml", "--models", "blackbox,roofline"]
    assert vtwin.main([*new, "--report", "new"]) == 0
    old_table, new_table = ((here / each / "latency-models.json").read_text() for each in ("old", "new"))
    assert old_table == new_table
    without_twin = ["calibrate", "real", "--simulated", "real", "--report", "r"]
    assert vtwin.main([*without_twin, "--compare-latency", "roofline"]) == 2
    assert "--compare-latency: needs --config" in capsys.readouterr().err
