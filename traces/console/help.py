"""The help of commands: numbers as N, switches without a type, names in one column, and no word cut."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final

import typer
import typer.core

AnyCommand = typer.core.TyperCommand | typer.core.TyperGroup

METAVARS: Final = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}
"""The placeholder of an option's value in help, in place of its type's name; other types are shown as in click."""
CELLS_OF_OPTION: Final = 6
"""What typer shows of an option: four kinds of names, type, text; and before them whether one must give it."""


def plain_help(command: AnyCommand) -> None:
    """Make help of a command and its subcommands show switches without ``<bool>``, numbers as N, and joined lines."""
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if isinstance(parameter, typer.core.TyperOption) and parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else METAVARS.get(parameter.type.name)
    if command.help:
        command.help = re.sub(r"(?<=\S)\n(?=[^\s-])", " ", inspect.cleandoc(command.help))
    for each in getattr(command, "commands", {}).values():
        plain_help(each)


def fold_long_words() -> None:
    """Make the tables of help show names in one column, and break a word longer than its column, which typer cuts."""
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text
    from typer import rich_utils

    class Folding(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:  # noqa: ANN401 - rich's own
            if len(cells) >= CELLS_OF_OPTION:
                *required, long, short, no_long, no_short, kind, text = cells
                names = [name for name in (long, short, no_long, no_short) if name.plain]
                cells = (*required, Text("\n", no_wrap=True).join(names), kind, text)
            super().add_row(*cells, **options)
            for column in self.columns:
                column.overflow = "fold"
            for each in cells[-1].renderables if isinstance(cells[-1], Columns) else ():
                if isinstance(each, Text):
                    each.overflow = "fold"

    vars(rich_utils)["Table"] = Folding  # typer offers no option for it
