"""Flags, commands, values and terms of the tools that users come from: each is answered as the table says."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

import click
import pytest
import typer

import vtwin
from replay.twin.config_keys import all_keys
from replay.twin.peers.own_words import VALUES, in_own_words
from replay.twin.start.other_flags import own_way

TABLE = Path(__file__).parent / "peers_words.csv"
ROOT = Path(__file__).parents[4]
ROWS = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))


@lru_cache(maxsize=1)
def app() -> click.Command:
    return typer.main.get_command(vtwin.build_app(list(vtwin.COMMANDS)))


@lru_cache
def options_of(words: str) -> frozenset[str]:
    found, context = app(), click.Context(app())
    for word in words.split():
        assert isinstance(found, click.Group)
        below = found.get_command(context, word)
        assert below is not None, words
        found = below
    return frozenset(name for each in found.params for name in each.opts)


def check_named(says: str, options: frozenset[str]) -> None:
    """What an answer names must exist: an option of the command, or a key."""
    for option in re.findall(r"(?<!\S)--[a-z][a-z-]+", says):
        assert option in options, f"{option} is no option here"
    if re.fullmatch(r"[a-z_]+(\.[a-z0-9_]+)+", says):
        assert says in {key.path for key in all_keys()} | {"cluster.pools"}


@pytest.mark.parametrize("row", ROWS, ids=[f"{each['tool']} {each['word']}" for each in ROWS])
def test_a_word_of_another_tool_has_the_answer_that_the_table_gives(row: dict[str, str]) -> None:
    word, says = row["word"], row["says"]
    how, _, where = row["answered_by"].partition(" ")
    if how == "page":
        assert says in (ROOT / where).read_text(encoding="utf-8")
    elif how in ("key", "same", "value"):
        key = next(each for each in all_keys() if each.path == where)
        if how == "key":
            assert says in f"{key.meaning} {key.choices} {key.default}"
            return
        assert says in key.choices
        assert (word in key.choices) == (how == "same") or word == "DPCoordinator"
        if how == "value":
            assert VALUES[word][0] == says
            line = in_own_words(f"{where}: got '{word}', expected one of {', '.join(key.choices)} (t.yaml:1)")
            assert f"{word} is {row['tool']}'s name for {says} (t.yaml:1)" in line
    elif how == "command":
        assert says in str(own_way(word, set()))
    elif how == "option":
        assert says in options_of(where)
    else:
        options = options_of(row["answered_by"])
        flag = word if word.startswith("--") else f"--{word}"
        if flag in options:
            assert says == flag
            return
        told = own_way(flag, options)
        assert told is not None
        assert says in told
        assert "other commands" not in told
        check_named(says, options)


def test_most_words_have_a_counterpart() -> None:
    counted = Counter(each["here"] for each in ROWS)
    assert set(counted) == {"ours", "differs", "absent"}
    assert counted["absent"] < 0.12 * len(ROWS)


@pytest.mark.parametrize(
    ("command", "word", "says"),
    [
        (["pareto"], "pareto", "vtwin fleet size --layout split"),
        (["fleet", "grid-flex"], "grid-flex", "vtwin fleet flex"),
        (["run", "--trace-level", "1"], "--trace-level", "here --decisions"),
        (["run", "--rtt-ms", "2"], "--rtt-ms", "not needed here"),
    ],
)
def test_the_command_line_gives_that_answer(
    command: list[str], word: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vtwin.main(command) == 2
    line = " ".join(capsys.readouterr().err.split())
    assert f"'{word}': " in line
    assert says in line
    assert "here nothing" not in line


def test_a_value_of_another_tool_is_named_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "twin.yaml"
    config.write_text(
        "engine: {scheduling_policy: priority-fcfs}\nlatency: {model: blackbox, coefficients: {alpha0: 1, "
        "alpha1: 0, alpha2: 0, beta0: 1, beta1: 1, beta2: 1}}\n"
    )
    assert vtwin.main(["config", "show", str(config)]) == 2
    assert "priority-fcfs is BLIS's name for priority" in " ".join(capsys.readouterr().err.split())
