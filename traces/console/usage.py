"""Wrong usage in one line: the option library's message in vtwin's words, with the remedy if it is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

import click

OwnWay = Callable[[str, set[str]], str | None]
"""From an option that a command lacks, and its own options, or from an unknown command, to vtwin's equivalent, if it is
another tool's."""
RUNS_CODE: Final = "--allow-code"
"""Never what somebody meant who wrote something else: it lets a configuration run code."""
SWEPT: Final = {"rate": "", "concurrency": "concurrency="}
"""Options of which ``--sweep`` takes several values, and their prefix there."""
CLICK_MESSAGES: Final = {
    r"(?<=': )('.*'|\S+) is not a valid (float|integer)\.": r"got \1, expected a \2",
    r"(Did you mean [^?]*\?)\)? \(?Did you mean [^?]*\?\)?": r"\1",  # typer's, then click's own
    r"expected a float": "expected a number",
    r"expected a integer": "expected an integer",
    r"(?<=': )('.*'|\S+) is not in the range (\S+)<=x<=(\S+)\.": r"got \1, expected \2 to \3",
    r"(?<=': )('.*'|\S+) is not in the range x>=(\S+)\.": r"got \1, expected at least \2",
    r"(?<=': )('.*'|\S+) is not in the range x<=(\S+)\.": r"got \1, expected at most \2",
    r"(?<=': )('.*'|\S+) is not one of (.*)\.": r"got \1, expected one of \2",
}
"""Messages of the option library (regular expressions), and their replacements."""


def usage_line(error: click.ClickException, *, own_way: OwnWay) -> str:
    """Return the line for wrong usage; empty where the help was printed instead."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "vtwin"
    message = error.format_message()
    if isinstance(error, click.NoSuchOption):
        message = _with_own_way(error, own_way)
    if (command := re.match(r"No such command '([^']*)'", message)) and (own := own_way(command[1], set())):
        message = f"{command[0]}: {own}."
    for theirs, our_own in CLICK_MESSAGES.items():
        message = re.sub(theirs, our_own, message)
    options = [] if context is None else [each.name for each in context.command.params]
    return f"UsageError: {message}{_cure(message, options)} (see {path} --help)" if message else ""


def _cure(message: str, options: Collection[str | None]) -> str:
    """Return the correct usage, to follow a message on a value that is not a number; empty if it is unknown."""
    found = re.search(r"'--([\w-]+)': got '([^']*)', expected (a number|an integer)$", message)
    if found is None:
        return ""
    name, value, kind = found.groups()
    if kind == "an integer":
        with suppress(ValueError, OverflowError):
            if float(value) == int(float(value)):
                return f": {int(float(value))}"
    is_list = re.fullmatch(r"[\d.]+(,[\d.]+)+", value) is not None
    if is_list and name in SWEPT and "sweep" in options:
        return f"; one run per value: --sweep {SWEPT[name]}{value} in place of --{name}"
    return ""


def _with_own_way(error: click.NoSuchOption, own_way: OwnWay) -> str:
    """Return the line for an option that a command lacks, with vtwin's equivalent if it is another tool's flag."""
    parameters = [] if error.ctx is None else error.ctx.command.params
    found = own_way(error.option_name, {name for each in parameters for name in each.opts})
    if not error.option_name.startswith(RUNS_CODE[:7]):
        vars(error)["possibilities"] = [each for each in error.possibilities or () if each != RUNS_CODE]
    return error.format_message() if found is None else f"No such option '{error.option_name}': {found}."
