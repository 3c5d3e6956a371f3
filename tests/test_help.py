"""The help of commands: what one uses most comes first, the rest is one option away, nothing refused is listed."""

from __future__ import annotations

import re
from typing import Any

import pytest
import typer
import typer.main

import vtwin
from replay.search.searched_rate import NOT_FOR_A_COMPARISON, NOT_FOR_A_SEARCH
from tests.docs.commands import commands_of
from tests.twins import THOUSAND_BLOCKS
from traces.console.help import first_sentence, fold_long_words, plain_help

MOST_LINES = 60
"""Of a command's help at 80 columns: about a screen."""
VALUES = {"stages": "5:60s", "arrival": "poisson"}
SEARCHES = {
    "capacity": ("--config", "twin.yaml", "--slo", "ttft_p99=1s"),
    "tune": ("--config", "twin.yaml", "--slo", "ttft_p99=1s"),
    "model compare": ("--model-config", "Qwen/Qwen3-14B", "--gpus", "H100", "--slo", "ttft_p99=1s"),
}


@pytest.fixture(scope="module")
def root() -> Any:  # noqa: ANN401 - typer's own
    """The whole program, with its help as users see it."""
    made = typer.main.get_command(vtwin.build_app(list(vtwin.COMMANDS)))
    plain_help(made, vtwin.MOST_USED)
    fold_long_words()
    return made


def leaves(root: Any) -> dict[str, Any]:  # noqa: ANN401 - typer's own
    """Return every command that does something, by its words without ``vtwin``."""
    return {path.removeprefix("vtwin "): each for path, each in commands_of(root, "vtwin")}


def shown(root: Any, words: str, option: str, capsys: pytest.CaptureFixture[str]) -> str:  # noqa: ANN401 - typer's own
    """Return what a command prints as its help."""
    root([*words.split(), option], prog_name="vtwin", standalone_mode=False)
    return capsys.readouterr().out


def listed(command: Any) -> dict[str, Any]:  # noqa: ANN401 - typer's own
    return {each.opts[0]: each for each in command.params if each.opts[0].startswith("-") and not each.hidden}


def is_in(name: str, text: str) -> bool:
    """Return whether a line of help begins with an option."""
    return re.search(rf"^│ [ *]*{name}(?![\w-])", text, re.MULTILINE) is not None


def test_every_command_s_help_is_a_screen(
    root: Any,  # noqa: ANN401 - typer's own
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lengths = {words: len(shown(root, words, "--help", capsys).splitlines()) for words in leaves(root)}
    assert {words: number for words, number in lengths.items() if number > MOST_LINES} == {}


def test_required_options_stand_first(
    root: Any,  # noqa: ANN401 - typer's own
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words, command in leaves(root).items():
        text = shown(root, words, "--help", capsys)
        required = [name for name, each in listed(command).items() if each.required]
        rows = [
            line[2:].split()
            for line in text.splitlines()
            if line[:1] == "│" and line[1:].lstrip(" *").startswith("--")
        ]
        names = [next(word for word in row if word.startswith("--")) for row in rows]
        assert names[: len(required)] == required, words


def test_the_long_help_has_every_option_and_the_short_one_says_how_many_more(
    root: Any,  # noqa: ANN401 - typer's own
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for words in vtwin.MOST_USED:
        options = listed(leaves(root)[words])
        whole = shown(root, words, "--help-all", capsys)
        assert [name for name in options if not is_in(name, whole)] == [], words
        few = shown(root, words, "--help", capsys)
        left = [name for name in options if not is_in(name, few)]
        assert left, words
        assert f"the other {len(left)} option" in few or len(left) == 1, words


def test_what_is_used_most_exists(root: Any) -> None:  # noqa: ANN401 - typer's own
    for words, names in vtwin.MOST_USED.items():
        assert set(names) <= set(listed(leaves(root)[words])), words
        assert len(set(names)) == len(names), words


def test_a_command_that_is_called_alone_has_the_same_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ("observe", "fleet size", "calibrate models"):
        assert vtwin.main([*words.split(), "--help"]) == 0
        assert "Most used" in capsys.readouterr().out, words
        assert vtwin.main([*words.split(), "--help-all"]) == 0
        assert "Most used" not in capsys.readouterr().out, words


def test_the_program_s_help_has_every_command_under_one_heading(capsys: pytest.CaptureFixture[str]) -> None:
    grouped = [name for names in vtwin.GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(vtwin.COMMANDS)
    assert vtwin.main(["--help"]) == 0
    text = capsys.readouterr().out
    places = [text.index(f"\n{heading}:\n") for heading in vtwin.GROUPS]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        *((words, name) for words in ("capacity", "tune") for name in NOT_FOR_A_SEARCH),
        *(("model compare", name) for name in NOT_FOR_A_COMPARISON),
    ],
)
def test_an_option_that_a_command_refuses_is_not_listed_and_still_explained(
    words: str,
    name: str,
    root: Any,  # noqa: ANN401 - typer's own
    tmp_path: Any,  # noqa: ANN401 - a path
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twin.yaml").write_text(THOUSAND_BLOCKS)
    option = "--" + name.replace("_", "-")
    assert option not in listed(leaves(root)[words])
    assert vtwin.main([*words.split(), *SEARCHES[words], option, VALUES.get(name, "5")]) == 2
    line = capsys.readouterr().err
    assert option in line
    assert "No such option" not in line


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One. Two.", "One."),
        ("Limits (a=1; also b. C). Counts.", "Limits (a=1; also b. C)."),
        ("Users; each waits.", "Users."),
        ("The 1.5 of a file.yaml, say.", "The 1.5 of a file.yaml, say."),
        ("", ""),
    ],
)
def test_the_short_help_has_a_first_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first
