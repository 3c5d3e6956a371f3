"""The command line: light help, one line per fault, exit codes that scripts can rely on."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import vtwin
from traces.errors import ConfigError, ServerError, TraceError, VtwinError

HEAVY = {"numba", "pandas", "scipy", "aiohttp", "numpy", "pyarrow", "matplotlib", "uvloop"}
MODULES_AFTER = """
import sys, vtwin
vtwin.main({arguments})
sys.stderr.write("MODULES " + " ".join(sys.modules))
"""


def modules_after(*arguments: str) -> set[str]:
    """Return the top-level modules that a fresh process has imported after running a command line."""
    code = MODULES_AFTER.format(arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed = done.stderr.rpartition("MODULES ")[2]
    return {name.split(".")[0] for name in listed.split()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"], []])
def test_the_top_of_the_command_line_imports_nothing_heavy(arguments: list[str]) -> None:
    assert modules_after(*arguments) & HEAVY == set()


@pytest.mark.parametrize("command", vtwin.COMMANDS)
def test_the_help_of_a_command_imports_nothing_heavy(command: str) -> None:
    assert modules_after(command, "--help") & HEAVY == set()


def test_the_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in vtwin.COMMANDS if f" {name} " not in listed] == []


@pytest.mark.parametrize("command", vtwin.COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([command, "--help"]) == 0
    assert f"vtwin {command}" in capsys.readouterr().out


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["--version"]) == 0
    assert capsys.readouterr().out == f"vtwin {version('vtwin')}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["--no-such-option"],
        ["demo", "--no-such-option"],
        ["observe"],
        ["replay"],
        ["calibrate"],
        ["serve"],
        ["trace", "no-such-command"],
        ["trace", "convert", "--from", "no-such-format", "file.csv", "--output", "out"],
        ["observe", "--url", "http://127.0.0.1:1", "--rate", "fast", "--output", "out"],
    ],
)
def test_a_usage_error_is_one_line_on_stderr_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1, shown.err


def test_the_command_line_without_a_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main([]) == 2
    assert "Usage: vtwin" in capsys.readouterr().out


@pytest.mark.parametrize("error", [VtwinError, ConfigError, TraceError, ServerError])
def test_a_fault_of_the_user_is_one_line_with_its_exit_code(
    error: type[VtwinError], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error("engine.max_num_seqs: got 0,\nexpected an integer >= 1 (twin.yaml)")

    monkeypatch.setattr(vtwin, "demo", fail)
    assert vtwin.main(["demo"]) == error.exit_code
    expected = f"{error.__name__}: engine.max_num_seqs: got 0, expected an integer >= 1 (twin.yaml)\n"
    assert capsys.readouterr().err == expected


def test_our_own_fault_keeps_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(vtwin, "demo", fail)
    with pytest.raises(ZeroDivisionError):
        vtwin.main(["demo"])


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(vtwin, "demo", interrupt)
    assert vtwin.main(["demo"]) == 130


def test_a_reader_that_goes_away_is_answered_with_silence() -> None:
    command = [sys.executable, "-P", "-m", "vtwin", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141
