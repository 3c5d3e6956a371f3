"""Every option with a path, given one that no file can have: an answer, or one line with a documented exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest

import vtwin
from tests.test_option_ranges import BASES, app, commands_under, here, outcome  # noqa: F401 - a fixture

CALLS = {
    **BASES,
    "report": ["t"],
    "demo": [],
    "predictor list": [],
    "profiles list": ["twin.yaml"],
    "profiles show": ["twin.yaml"],
    "config show": ["--config", "twin.yaml"],
    "trace export": ["t", "--to", "azure", "--output", "exported.csv"],
}
WITHOUT_A_NAME = ("", ".", "..", "/", "./..", "t.csv/x", "a" * 300)
NOT_TRIED = {("demo", "."), ("demo", ".."), ("demo", "./..")}
"""`vtwin demo` would run, in this folder."""


def paths_of(command: Any) -> list[Any]:  # noqa: ANN401 - the library's own
    return [each for each in command.params if isinstance(each.type, click.Path)]


COMMANDS = [name for name, command in commands_under(app()) if paths_of(command)]


def words_with(name: str, option: Any, value: str) -> list[str]:  # noqa: ANN401
    """Return the command's call with this value; an argument takes the place of the call's first."""
    if option.opts[0].startswith("-"):
        return [*name.split(), *CALLS[name], f"{option.opts[0]}={value}"]
    return [*name.split(), value, *CALLS[name][1:]]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("here")
def test_a_path_that_no_file_can_have_is_answered_or_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = []
    for option in paths_of(dict(commands_under(app()))[name]):
        for value in WITHOUT_A_NAME:
            if (name, value) in NOT_TRIED:
                continue
            capsys.readouterr()
            ended = outcome(words_with(name, option, value))
            said = [line for line in capsys.readouterr().err.splitlines() if "Error: " in line]
            if ended not in (0, 1, 2, 3, 4, 5, "simulates") or (ended in (2, 3) and len(said) != 1):
                faults.append((option.opts[0], value, ended, said))
            if value == "":
                assert ended == 2, (option.opts[0], ended)
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.usefixtures("here")
def test_an_empty_path_says_what_may_have_made_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert vtwin.main(["trace", "info", ""]) == 2
    assert "got an empty path (a variable that is not set?)" in " ".join(capsys.readouterr().err.split())


def test_a_pipe_in_a_folder_is_not_waited_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    for folder, names in (
        ("spans", ("a.json", "b.pb")),
        ("weka", ("a.json", "b.jsonl")),
        ("loads", ("a.yaml", "a.csv")),
    ):
        (here / folder).mkdir()
        for name in names:
            os.mkfifo(here / folder / name)
    for words in (
        ["trace", "convert", "spans", "--from", "otel", "--output", "o"],
        ["trace", "convert", "weka", "--from", "weka", "--output", "o"],
        ["report", "loads", "--output", "p.html"],
        ["trace", "info", "loads/a"],
        ["observe", "--workload", "spans", *BASES["observe"]],
    ):
        assert outcome(words) in (2, 3), words
    capsys.readouterr()
