"""Numbers in options: neither NaN nor more than an int64 holds."""

from __future__ import annotations

import copy
from typing import Any, Final

import typer

from traces.console.help import METAVARS, AnyCommand

MOST_INTEGER: Final = 2**63 - 1
"""Of an option: what an int64 holds."""


def refuse_no_numbers(command: AnyCommand) -> None:
    """Make every option of a command and its subcommands refuse ``nan`` and integers beyond an int64.

    A range does not: NaN is neither below its least value nor above its largest.
    """
    for parameter in command.get_params(typer.Context(command)):
        if parameter.type.name in METAVARS:
            parameter.type = _of_numbers(parameter.type)
    for each in getattr(command, "commands", {}).values():
        refuse_no_numbers(each)


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
