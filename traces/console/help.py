"""The help of commands: what is used most first, the rest behind --help-all; no word cut, required options on top."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType, ModuleType
from typing import Any, Final

import click
import typer
import typer.core

AnyCommand = typer.core.TyperCommand | typer.core.TyperGroup

METAVARS: Final = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}
"""The placeholder of an option's value in help, in place of its type's name; other types are shown as in click."""
CELLS_OF_OPTION: Final = 6
"""What typer shows of an option: four kinds of names, type, text; and before them whether one must give it."""


MOST_TOLD: Final = 8
"""A command with more options than this has a sentence for each; ``--help-all`` has the whole texts."""
MOST_USED: Final = "Most used"
HELP: Final = "Help"
NO_NAMES: Final[Mapping[str, Sequence[str]]] = MappingProxyType({})
_ASKS_ALL: Final = "vtwin.help_all"
_IDLE: Final = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Modules that typer's help imports for other programs' texts, and the class that it takes from each."""


class CommandGroups(typer.core.TyperGroup):
    """A group whose plain help lists commands under the headings that they were given as ``rich_help_panel``."""

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list for each heading, all with names as wide as the widest."""
        groups: dict[str, list[tuple[str, str]]] = {}
        width = max(map(len, self.commands), default=0)
        for name, command in self.commands.items():
            heading = getattr(command, "rich_help_panel", None)
            line = (name.ljust(width), command.get_short_help_str(formatter.width - width - 4))
            groups.setdefault(heading if isinstance(heading, str) else "Commands", []).append(line)
        for heading, lines in groups.items():
            with formatter.section(heading):
                formatter.write_dl(lines)


def plain_help(
    command: AnyCommand, most_used: Mapping[str, Sequence[str]] = NO_NAMES, *, path: str = ""
) -> None:
    """Give a command and its subcommands their help: required options first, switches without ``<bool>``, numbers as N.

    ``most_used``: by a command's path (``fleet size``), the names of the options that its ``--help`` shows; a command
    with few options, or that is not named, shows all. ``path``: the command's own; "" of the whole program.
    """
    context = typer.Context(command)
    for parameter in command.get_params(context):
        if isinstance(parameter, typer.core.TyperOption) and parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else METAVARS.get(parameter.type.name)
    if command.help:
        command.help = re.sub(r"(?<=\S)\n(?=[^\s-])", " ", inspect.cleandoc(command.help))
    _put_required_first(command)
    if path:
        _show_most_used(command, most_used.get(path, ()))
    for name, each in getattr(command, "commands", {}).items():
        plain_help(each, most_used, path=f"{path} {name}".strip())


def _put_required_first(command: AnyCommand) -> None:
    """Move required options before the others, into the panel that help begins with."""
    required = [each for each in command.params if isinstance(each, click.Option) and each.required]
    for each in required:
        vars(each)["rich_help_panel"] = None
    command.params.sort(key=lambda each: isinstance(each, click.Option) and each not in required)


def _listed(command: AnyCommand) -> list[click.Option]:
    """Return the options that a command lists, its help's own aside."""
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def _show_most_used(command: AnyCommand, names: Collection[str]) -> None:
    """Make ``--help`` show the named options alone (none: all), a sentence for each, and add ``--help-all``."""
    options = [each.opts[0] for each in _listed(command)]
    if len(options) <= MOST_TOLD:
        command.params.append(_help_all(hidden=True))  # who knows it from other commands finds it here, too
        return
    shown = command.format_help
    chosen = [name for name in names or options if name in options]

    def format_help(ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with _arranged(command, ctx, None if ctx.meta.get(_ASKS_ALL) else chosen):
            shown(ctx, formatter)

    vars(command)["format_help"] = format_help
    command.params.append(_help_all())


def _help_all(*, hidden: bool = False) -> typer.core.TyperOption:
    def show(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked and not ctx.resilient_parsing:
            ctx.meta[_ASKS_ALL] = True
            typer.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()

    return typer.core.TyperOption(
        param_decls=["--help-all"],
        is_flag=True,
        metavar="",
        is_eager=True,
        expose_value=False,
        callback=show,
        hidden=hidden,
        help="Show every option, with its whole text.",
        rich_help_panel=HELP,
    )


@contextmanager
def _arranged(command: AnyCommand, ctx: click.Context, names: Collection[str] | None) -> Iterator[None]:
    """Have a command list, while its help is made, the named options alone, each with a sentence; None: all."""
    before = command.params
    if (own := command.get_help_option(ctx)) is not None:
        vars(own)["rich_help_panel"] = HELP
    if names is not None:
        command.params = _few(before, names)
    try:
        yield
    finally:
        command.params = before


def _few(params: Sequence[click.Parameter], names: Collection[str]) -> list[click.Parameter]:
    """Return arguments, required options, those that are named, in the order of the names, and those of help."""
    options = {each.opts[0]: each for each in params if isinstance(each, click.Option)}
    required = [name for name, each in options.items() if each.required]
    chosen = [*required, *(name for name in names if name not in required)]
    arguments = [each for each in params if not isinstance(each, click.Option)]
    number = sum(not each.hidden for each in options.values()) - len(chosen) - 1
    return [*arguments, *(_short(options[name]) for name in chosen), _rest(options["--help-all"], number)]


def _short(option: click.Option) -> click.Option:
    """Return an option as the short help has it: one sentence, and no bounds of numbers."""
    shown = copy.copy(option)
    vars(shown)["rich_help_panel"] = MOST_USED
    if isinstance(option.type, click.IntRange | click.FloatRange):
        shown.type = click.INT if isinstance(option.type, click.IntRange) else click.FLOAT
    shown.help = first_sentence(option.help or "")
    return shown


def _rest(help_all: click.Option, number: int) -> click.Option:
    """Return ``--help-all`` with how many options it shows beside those of ``--help``."""
    shown = copy.copy(help_all)
    if number:
        them = "option" if number == 1 else f"{number} options"
        shown.help = f"Show the other {them}, too, and the whole text of each."
    return shown


def first_sentence(text: str) -> str:
    """Return the first sentence of an option's text, or what stands before a semicolon; brackets stay whole."""
    text = " ".join(text.split())
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        is_end = sign == ";" or re.match(r"[^.\s]{2}\.\s\S", text[max(place - 2, 0) :])
        if depth == 0 and is_end:
            return f"{text[:place]}."
    return text


def fold_long_words() -> None:
    """Make the tables of help show names in one column, and break a word longer than its column, which typer cuts."""
    with _without_idle_modules():
        from typer import rich_utils
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text

    class Folding(Table):
        def add_row(self, *cells: Any, **options: Any) -> None:  # noqa: ANN401 - rich's own
            if len(cells) >= CELLS_OF_OPTION:
                *required, long, short, no_long, no_short, kind, text = cells
                names = [name for name in (long, short, no_long, no_short) if name.plain]
                first = Text(" ").join([*names[:1], *([kind] if kind.plain else [])])
                cells = (*required, Text("\n").join([first, *names[1:]]), text)
            super().add_row(*cells, **options)
            for column in self.columns:
                column.overflow = "fold"
            for each in cells[-1].renderables if isinstance(cells[-1], Columns) else ():
                if isinstance(each, Text):
                    each.overflow = "fold"

    vars(rich_utils)["Table"] = Folding  # typer offers no option for it


@contextmanager
def _without_idle_modules() -> Iterator[None]:
    """Have empty classes imported in place of ``_IDLE``, which take half of the time of a command's help to import."""
    absent = {name: each for name, each in _IDLE.items() if name not in sys.modules}
    for name, each in absent.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name])[each] = type(each, (), {})
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
