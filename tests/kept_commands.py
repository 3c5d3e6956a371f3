"""Commands made once in a process: the suite calls thousands, and making a parser takes 20 ms of each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from traces.console import command_line
from traces.console.command_line import Program

HELP = {"--help", "--help-all"}
_made: dict[tuple[str, ...], Any] = {}
_make = command_line._command


def keep_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `vtwin.main` take the command of an earlier call with the same first words, unless it shows help.

    ``demo`` is in vtwin.py itself, where tests replace it.
    """
    monkeypatch.setattr(command_line, "_command", _kept)


def _kept(program: Program, called: list[str], arguments: Sequence[str]) -> Any:  # noqa: ANN401 - typer's own
    if HELP & set(arguments) or list(arguments[:1]) != called or called == ["demo"]:
        return _make(program, called, arguments)
    key = (program.name, *called)
    if key not in _made:
        _made[key] = _make(program, called, arguments)
    return _made[key]
