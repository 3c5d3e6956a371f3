"""A trace in a twin's place, a twin in a trace's, and a file that is not there: one line that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import vtwin
from replay import dump_config
from tests.calibrate.known_servers import SERVER, observed, workload
from traces import write_trace

SLO = "--slo ttft_p99=1s"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("twin.yaml").write_text(dump_config(SERVER))
    Path("empty.yaml").write_text("")
    write_trace(observed(workload(12, rate=2.0, seed=1)), Path("t"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("run --config t.yaml --rate 1", "got a trace's header, expected a TWIN.yaml (t.yaml)"),
        ("run --config t.csv --rate 1", "got a trace's table, expected a TWIN.yaml (t.csv)"),
        ("run --config t --rate 1", "got a trace's stem, expected a TWIN.yaml (t)"),
        ("replay twin.yaml --config t.yaml", "got a trace's header"),
        ("calibrate twin.yaml --config t.yaml --report r", "got a trace's header"),
        ("compare t t --twin t.yaml", "got a trace's header"),
        ("config show t.yaml", "got a trace's header"),
        (f"capacity --config t.yaml {SLO}", "got a trace's header"),
        ("serve --config t.yaml", "got a trace's header"),
    ],
)
def test_a_trace_in_a_twins_place_is_named(call: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(call.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "a trace in a twin's place" in line


@pytest.mark.parametrize(
    "call",
    [
        "replay twin.yaml --config twin.yaml",
        "compare twin.yaml t",
        "calibrate twin.yaml --config twin.yaml --report r",
        "trace check twin.yaml",
    ],
)
def test_a_twin_in_a_traces_place_is_named(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(call.split()) == 3
    assert "got a TWIN.yaml, expected a trace: a twin in a trace's place" in capsys.readouterr().err


@pytest.mark.parametrize(
    "call",
    [
        "run --config nope.yaml",
        "run --config nope.yaml --like nope",
        f"capacity --config nope.yaml --rate 4 {SLO}",
        f"tune --config nope.yaml --rate 4 {SLO}",
        "calibrate nope --config nope.yaml --fit --report r",
    ],
)
def test_a_twin_that_is_not_there_is_told_before_what_else_is_wrong(
    call: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(call.split()) == 2
    assert "got nothing at this path, expected a YAML file (nope.yaml)" in capsys.readouterr().err


def test_an_empty_twin_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    for call in ("run --config empty.yaml --rate 1", "calibrate t --config empty.yaml --fit --report r"):
        assert vtwin.main(call.split()) == 2
        assert "got nothing in it, expected a TWIN.yaml (empty.yaml)" in capsys.readouterr().err


def test_a_file_of_neither_kind_is_not_called_a_twin(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text("a: 1\n")
    assert vtwin.main(["trace", "check", "other.yaml"]) == 3
    assert "TWIN.yaml" not in capsys.readouterr().err
