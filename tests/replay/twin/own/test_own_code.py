"""Code that a TWIN.yaml names runs only where the user said so, and disturbs no module of that name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import vtwin
from replay import load_config
from replay.twin.own.own_code import allowing_code, load_module
from traces import ConfigError

MODEL = """\
from pathlib import Path
from dataclasses import dataclass
Path(__file__).with_name("ran").touch()
from sim import Blackbox

@dataclass(frozen=True, slots=True, kw_only=True)
class Flat(Blackbox):
    pass

def first(fleet, request, time_us):
    return 0
"""
LATENCY = 'latency: {model: "json.py:Flat", coefficients: {beta0: 9}}\n'
ROUTED = """\
latency: {model: blackbox, coefficients: {alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9, beta1: 0, beta2: 0}}
cluster: {instances: 2, routing: {policy: "json.py:first"}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("VTWIN_ALLOW_CODE", raising=False)
    (tmp_path / "json.py").write_text(MODEL)
    (tmp_path / "twin.yaml").write_text(LATENCY)
    (tmp_path / "grid.yaml").write_text(
        "config: twin.yaml\nworkloads: {a: {rate: 1, num_requests: 2, prompt_tokens: 9, output_tokens: 2}}\n"
    )
    return tmp_path


@pytest.mark.parametrize("text", [LATENCY, ROUTED])
@pytest.mark.parametrize(
    "command",
    [
        "config show twin.yaml",
        "run --config twin.yaml --rate 1 --num-requests 2",
        "replay none --config twin.yaml",
        "serve --config twin.yaml --host 999.999.999.999",
        "calibrate none --config twin.yaml",
        "capacity --config twin.yaml --slo ttft_p99=1s --rate 1",
        "tune --config twin.yaml --slo ttft_p99=1s --rate 1",
        "fleet profile twin.yaml",
        "validate --url http://127.0.0.1:9 --output o --config twin.yaml --rate 1",
    ],
)
def test_no_command_runs_the_code_of_a_configuration_by_itself(
    folder: Path, command: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "twin.yaml").write_text(text)
    monkeypatch.chdir(folder)
    assert vtwin.main(command.split()) in (2, 3, 4)
    assert not (folder / "ran").exists()


def test_a_sweep_s_workers_do_not_run_it_either(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    vtwin.main(["sweep", "grid.yaml", "--output", "t.parquet", "--jobs", "1"])
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("value", ["", "0", "true", "yes", "2"])
def test_the_variable_means_yes_only_as_1(
    folder: Path, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VTWIN_ALLOW_CODE", value)
    assert vtwin.main(["config", "show", str(folder / "twin.yaml")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        "latency.model: got json.py:Flat (code of its own), expected --allow-code (or VTWIN_ALLOW_CODE=1)"
        in line
    )
    assert "twin.yaml:1" in line


@pytest.mark.parametrize("how", ["option", "variable"])
def test_it_runs_where_the_user_says_so(folder: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "twin.yaml").write_text(ROUTED)
    if how == "variable":
        monkeypatch.setenv("VTWIN_ALLOW_CODE", "1")
    given = ["--allow-code"] if how == "option" else []
    assert vtwin.main(["config", "show", str(folder / "twin.yaml"), *given]) == 0
    assert (folder / "ran").exists()
    assert os.environ.get("VTWIN_ALLOW_CODE") == ("1" if how == "variable" else None)


def test_a_file_that_changed_within_its_second_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    code = tmp_path / "own.py"
    for number in (1, 2):
        code.write_text(f"NUMBER = {number}\n")
        os.utime(code, (1_700_000_000, 1_700_000_000))
        with allowing_code():
            assert number == load_module("own.py", folder=tmp_path).NUMBER
    assert list(tmp_path.iterdir()) == [code]


def test_a_file_called_like_a_module_of_python_does_not_become_it(folder: Path) -> None:
    import sys

    with allowing_code():
        model = _loaded(folder)
    assert sys.modules["json"] is json
    assert type(model).__module__.startswith("vtwin_own_code_")


def _loaded(folder: Path) -> object:
    coefficients = "{alpha0: 0, alpha1: 0, alpha2: 0, beta0: 9, beta1: 0, beta2: 0}"
    (folder / "twin.yaml").write_text(f'latency: {{model: "json.py:Flat", coefficients: {coefficients}}}\n')
    return load_config(folder / "twin.yaml").latency


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def (", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise ValueError('a\\nb')", "ValueError: a b"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_code_that_fails_is_one_line(folder: Path, code: str, said: str) -> None:
    (folder / "json.py").write_text(code)
    with allowing_code(), pytest.raises(ConfigError, match=said) as caught:
        load_config(folder / "twin.yaml")
    assert "\n" not in str(caught.value)
