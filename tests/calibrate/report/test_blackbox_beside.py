"""Blackbox stands beside the model that a fit chose: in every report, and among stored coefficients."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from calibrate.calibration_run import calibrate
from calibrate.findings import Calibration, Options
from calibrate.report.document import document_of
from calibrate.report.markdown import markdown_of
from calibrate.report.report_folder import write_report
from calibrate.written.save import ServerName, defaults_entry, write_config, write_defaults
from replay import load_config, read_defaults
from sim import Blackbox, Extended
from tests.calibrate.known_servers import GUESS, observed, source, workload

SIX = ("alpha0", "alpha1", "alpha2", "alpha3", "beta0", "beta1", "beta2")
KNOWN = ServerName(model="m", gpu="H100", tp=1)


@pytest.fixture(scope="module")
def found() -> Calibration:
    """A fit that chose among models, and chose another than blackbox."""
    server = replace(GUESS, latency=Extended(beta0=2000, beta1=80, beta2=300, floor=12_000, beta4=0.02))
    traces = [
        source(
            f"load{rate}", observed(workload(50, rate=rate, seed=rate, prompt=(400, 1.1)), server, noise=0.02)
        )
        for rate in (2, 5)
    ]
    return calibrate(traces, GUESS, Options(latency_model="auto", gpu="H100", replicates=60))


def test_a_fit_that_chose_another_model_has_blackbox_with_its_intervals(found: Calibration) -> None:
    assert found.fit is not None
    (note,) = (note for note in found.notes if note.startswith("not among the latency models to choose from"))
    assert "physics; attention, floor, tiles: the model is not known; the GPU is H100. " in note
    assert "Add --gpu H100 --model-config CONFIG.json" in note
    assert found.fit.model == "extended"
    assert tuple(each.name for each in found.fit.blackbox) == SIX
    beta0 = next(each for each in found.fit.blackbox if each.name == "beta0")
    assert beta0.low is not None
    assert beta0.high is not None
    assert beta0.low <= beta0.value <= beta0.high
    assert 8000 < beta0.value < 20_000  # overhead and floor together


def test_the_errors_told_are_those_of_the_twin_that_is_written(found: Calibration, tmp_path: Path) -> None:
    """To the seed by which its steps scatter: a second look at the held-out requests finds the same errors."""
    write_config(found, tmp_path / "twin.yaml")
    assert found.config is not None
    own, kept = (
        {name: float(getattr(twin.latency, name)) for name in (*SIX, "floor", "sigma", "seed")}
        for twin in (found.config, load_config(tmp_path / "twin.yaml"))
    )
    assert kept == own
    assert own["seed"] == found.config.seed != Extended().seed


def test_a_fit_of_blackbox_has_no_other_blackbox_beside_it() -> None:
    trace = source("a", observed(workload(50, rate=4, seed=1)))
    alone = calibrate([trace], GUESS, Options(latency_model="blackbox", replicates=60))
    assert alone.fit is not None
    assert alone.fit.blackbox == ()
    assert document_of(alone, command="")["fit"]["blackbox"] is None
    assert defaults_entry(alone, server=KNOWN).blackbox is None


def test_every_report_shows_it(found: Calibration, tmp_path: Path) -> None:
    document = json.loads(json.dumps(document_of(found, command="")))
    assert set(document["fit"]["blackbox"]) == set(SIX)
    value = document["fit"]["blackbox"]["beta0"]["value"]
    assert value == next(each.value for each in found.fit.blackbox if each.name == "beta0")  # type: ignore[union-attr]
    assert "blackbox, not chosen" in markdown_of(found, command="")
    write_report(found, tmp_path, command="vtwin calibrate")
    assert "blackbox, not chosen" in (tmp_path / "report.html").read_text()


def test_stored_coefficients_hold_both_and_each_model_takes_its_own(
    found: Calibration, tmp_path: Path
) -> None:
    path = tmp_path / "defaults.yaml"
    write_defaults(found, path, server=KNOWN)
    (entry,) = read_defaults(path)
    assert entry.latency_model == "extended"
    assert entry.blackbox is not None
    assert entry.blackbox["beta0"] != entry.coefficients["beta0"]
    assert entry == defaults_entry(found, server=KNOWN)
    assert entry.blackbox["alpha2"] == Decimal(0)
    for model, kind in (("blackbox", Blackbox), ("extended", Extended), ("auto", Extended)):
        twin = tmp_path / f"{model}.yaml"
        twin.write_text(
            f"latency: {{model: {model}, defaults: {{model: m, gpu: H100, tp: 1}}, defaults_file: defaults.yaml}}\n"
        )
        latency = load_config(twin).latency
        assert type(latency) is kind
        expected = entry.blackbox if kind is Blackbox else entry.coefficients
        assert Decimal(str(latency.beta0)) == expected["beta0"]  # type: ignore[attr-defined]
