"""Values of options: numbers are neither NaN nor beyond an int64, and a path has a name."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any, Final

import click
import typer

from traces.console.help import METAVARS, AnyCommand

MOST_INTEGER: Final = 2**63 - 1
"""The largest value of an option: what an int64 holds."""


def refuse_impossible(command: AnyCommand) -> None:
    """Make the options of a command and its subcommands refuse ``nan``, integers beyond an int64, and empty paths.

    A range does not refuse NaN, which is neither below its least value nor above its largest. An empty path is what a
    shell makes of a variable that is not set. A path without a name of its own (``.``, ``..``) becomes the folder that
    it means. Where a folder is meant it stays, and where traces are written: several may go there, and one is refused,
    as its files would stand beside that folder.
    """
    for parameter in command.get_params(typer.Context(command)):
        if parameter.type.name in METAVARS:
            parameter.type = _of_numbers(parameter.type)
        elif isinstance(parameter.type, click.Path):
            parameter.type = _of_paths(parameter)
    for each in getattr(command, "commands", {}).values():
        refuse_impossible(each)


def _of_numbers(kind: Any) -> Any:  # noqa: ANN401 - the library's own type
    """Return an option's type that accepts only numbers that fit."""
    made, convert = copy.copy(kind), kind.convert

    def converted(value: object, parameter: object, context: object) -> object:
        number = convert(value, parameter, context)
        if number != number:  # noqa: PLR0124 - which is how NaN is known
            made.fail("got nan, expected a number", parameter, context)
        if isinstance(number, int) and abs(number) > MOST_INTEGER:
            made.fail(f"got {value}, expected an integer of at most {MOST_INTEGER:,}", parameter, context)
        return number

    made.convert = converted
    return made


def _of_paths(option: Any) -> Any:  # noqa: ANN401 - the library's own
    """Return a path's type that accepts only paths with a name."""
    made, convert = copy.copy(option.type), option.type.convert
    kind = getattr(option, "metavar", None)
    is_folder = kind == "DIR" or (option.opts[0] == "--output" and kind == "STEM")
    wanted = "a trace's name" if kind == "STEM" else "a path"

    def converted(value: str | os.PathLike[str], parameter: object, context: object) -> object:
        text = os.fspath(value)
        if not text:
            made.fail(
                f"got an empty path (a variable that is not set?), expected {wanted}", parameter, context
            )
        if "\0" in text:
            made.fail(f"got {text!r}, expected {wanted}", parameter, context)
        if Path(text).name in ("", ".."):
            folder = Path(os.path.abspath(text))  # noqa: PTH100 - links stay as they are
            if not folder.name:
                made.fail(f"got {text}, expected {wanted}", parameter, context)
            text = text if is_folder else str(folder)
        return convert(text, parameter, context)

    made.convert = converted
    return made
