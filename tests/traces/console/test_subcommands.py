"""A command with subcommands beside it: which of them a line means."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from traces.console.subcommands import Subcommands

app = typer.Typer(cls=Subcommands)


@app.callback(invoke_without_command=True)
def fit(traces: list[str], report: str = "", fit: Annotated[bool, typer.Option("--fit")] = False) -> None:
    """Fit."""
    typer.echo(f"fit {traces} {report} {fit}")


@app.command()
def pair(one: str, other: str, report: str = "") -> None:
    """Compare a pair."""
    typer.echo(f"pair {one} {other} {report}")


def said(line: str) -> str:
    result = CliRunner().invoke(app, line.split())
    return result.output.strip() if result.exit_code == 0 else f"exit code {result.exit_code}"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a b --report r", "fit ['a', 'b'] r False"),
        ("--report r a b", "fit ['a', 'b'] r False"),
        ("pair a b --report r", "pair a b r"),
        ("pair pair pair", "pair pair pair"),
        # a trace that is called like the subcommand
        ("pair b --fit", "fit ['pair', 'b']  True"),
        ("./pair b", "fit ['./pair', 'b']  False"),
        ("a pair b", "fit ['a', 'pair', 'b']  False"),
        ("pair a", "exit code 2"),
        ("", "exit code 2"),
    ],
)
def test_a_line_means_the_subcommand_or_the_command(line: str, expected: str) -> None:
    assert said(line) == expected


def test_each_help_has_its_own_usage_and_the_command_s_lists_the_subcommands() -> None:
    whole, part = said("--help"), said("pair --help")
    assert "[OPTIONS] TRACES..." in whole
    assert "Compare a pair." in whole
    assert "pair [OPTIONS] ONE OTHER" in part
    assert "TRACES" not in part
