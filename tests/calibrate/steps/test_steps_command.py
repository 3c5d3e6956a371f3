"""``vtwin calibrate --steps`` as a user calls it."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import vtwin
from replay import dump_config, load_config
from sim import Blackbox, Extended
from tests.calibrate.known_servers import ENGINE, SERVER, observed, workload
from tests.calibrate.steps.made_logs import logged_steps
from traces import write_trace
from traces.steps import LoggedSteps


def written(logged: LoggedSteps, path: Path, *, has_ends: bool = True) -> Path:
    """Write steps as ``observe --engine-log`` does."""
    columns = {
        "engine": logged.engine,
        "step": logged.number,
        "num_prefill_requests": logged.prefill_requests,
        "num_prefill_tokens": logged.prefill_tokens,
        "num_decode_requests": logged.decode_requests,
        "num_decode_tokens": logged.decode_tokens,
        "duration_us": logged.duration_us,
    }
    if has_ends:
        columns["end_unix_us"] = logged.end_us
    pd.DataFrame({name: values.astype(np.int64) for name, values in columns.items()}).to_csv(
        path, index=False
    )
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trace ``a``, its steps, and a twin to start from."""
    made = tmp_path_factory.mktemp("steps")
    load = workload(150, rate=6, seed=7)
    write_trace(observed(load, SERVER, noise=0.05), made / "a")
    written(logged_steps(load, SERVER), made / "a.steps.csv")
    twin = replace(SERVER, latency=Blackbox(alpha0=777, beta0=1))
    (made / "twin.yaml").write_text(dump_config(twin))
    is_async = replace(twin, engine=replace(ENGINE, async_scheduling=True))
    (made / "async.yaml").write_text(dump_config(is_async))
    written(logged_steps(load, SERVER), made / "waits.steps.csv", has_ends=False)
    return made


def called(words: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.chdir(folder)
    return vtwin.main(["calibrate", *shlex.split(words)])


def test_steps_alone_make_a_twin_whose_way_in_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = "--steps a.steps.csv --config twin.yaml --write-config alone.yaml --report out --json"
    assert called(call, folder, monkeypatch) == 0
    said = capsys.readouterr()
    assert "alpha0 to alpha3 stay as configured" in said.err
    document = json.loads(said.out)
    assert document == json.loads((folder / "out" / "steps.json").read_text())
    assert document["num_known_times"] > 300
    assert document["coefficients"]["beta1"]["value"] == pytest.approx(60, rel=0.1)
    twin = load_config(folder / "alone.yaml")
    assert isinstance(twin.latency, Extended)
    assert twin.latency.alpha0 == 777
    assert (folder / "alone.yaml").read_text().startswith("# Steps fitted by vtwin calibrate --steps on")


def test_with_its_trace_the_way_in_is_found_and_the_report_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = "a --steps auto --config twin.yaml --write-config both.yaml --report both"
    assert called(call, folder, monkeypatch) == 0
    assert "its steps are from a.steps.csv" in capsys.readouterr().out
    document = json.loads((folder / "both" / "report.json").read_text())
    assert document["holdout"]["tpot_us"]["mape"]["value"] < 0.05
    twin = load_config(folder / "both.yaml")
    assert isinstance(twin.latency, Extended)
    assert float(twin.latency.alpha0) + 250 * float(twin.latency.alpha1) == pytest.approx(5250, rel=0.3)


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("", 2, "UsageError: Missing argument 'OBSERVED…'."),
        ("a", 2, "UsageError: Missing option '--report'."),
        ("--steps a.steps.csv", 2, "--config: got none, expected the twin whose steps to fit"),
        (
            "--steps auto --config twin.yaml",
            2,
            "--steps auto: got no trace, expected one with its steps beside it",
        ),
        (
            "--steps a.steps.csv --config twin.yaml --holdout a",
            2,
            "--holdout: got no trace, expected one beside --steps",
        ),
        (
            "--steps none --config twin.yaml",
            3,
            "none: got No such file or directory, expected a file of a server's",
        ),
        (
            "--steps twin.yaml --config twin.yaml",
            3,
            "twin.yaml: got no engine steps, expected a line for each step",
        ),
        (
            "--steps waits.steps.csv --config async.yaml",
            3,
            "waits.steps.csv: got times of waiting for a step's result",
        ),
        (
            "a --steps auto --config twin.yaml --report r --infer-async",
            2,
            "--infer-async: cannot be combined with --steps",
        ),
        (
            "a --steps auto --config twin.yaml --report r --latency-model auto",
            2,
            "--latency-model: cannot be combined",
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    call: str,
    code: int,
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = sorted(folder.iterdir())
    assert called(call, folder, monkeypatch) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note:")]
    assert len(lines) == 1
    assert said in lines[0]
    assert sorted(folder.iterdir()) == before


def test_waits_are_steps_on_a_server_without_async_scheduling(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert called("--steps waits.steps.csv --config twin.yaml", folder, monkeypatch) == 0
