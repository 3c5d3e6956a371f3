"""Options that several commands share, as a table: a frozen dataclass whose fields are the options.

A field's annotation is the option's name and help, its default the option's. A command takes all of them by having one
parameter of that type under ``with_option_tables``::

    @option_table
    class Where:
        output: Annotated[Path | None, typer.Option(metavar="STEM", help="Write the trace.")] = None
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace it.")] = False

    @with_option_tables
    def synth(where: Where, rate: Annotated[float, typer.Option()] = 1.0) -> None: ...

``synth`` then has ``--output``, ``--overwrite`` and ``--rate``, in this order. A field whose type is a table stands for
that table's options. In help a table's options stand below the first line of its docstring, unless it is all that a
command has. This module imports nothing heavy: a command's ``--help`` needs it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from lazy_dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, TypeVar, dataclass_transform, get_args, get_type_hints

from typer.models import ArgumentInfo

Returned = TypeVar("Returned")
Table = TypeVar("Table", bound=type)

_TABLES: set[type] = set()
OWN_HEADING = 3
"""Options from which on a table within another has a heading of its own in help."""


@dataclass_transform(frozen_default=True, kw_only_default=True)
def option_table(kind: Table) -> Table:
    """Return a class as a table of options: a frozen dataclass that ``with_option_tables`` knows."""
    dataclass(frozen=True, kw_only=True)(kind)
    _TABLES.add(kind)
    return kind


def refusing(*names: str) -> Callable[[Callable[..., Returned]], Callable[..., Returned]]:
    """Return a decorator for a command that refuses some options of its tables: help does not list them.

    They are still read, so that the command can say why it refuses them. It stands below ``with_option_tables``.
    """

    def marked(command: Callable[..., Returned]) -> Callable[..., Returned]:
        vars(command)["refused_options"] = names
        return command

    return marked


def with_option_tables(command: Callable[..., Returned]) -> Callable[..., Returned]:
    """Return ``command`` for typer, each parameter whose type is a table replaced by an option per field.

    The wrapper takes keywords only, as typer calls it; other parameters, help and name stay as they are.
    """
    hints = get_type_hints(command, include_extras=True)
    tables = {name: kind for name, kind in hints.items() if name != "return" and _is_table(kind)}

    def wrapper(**given: Any) -> Returned:  # noqa: ANN401 - the options of any command
        made = {name: _made(kind, given) for name, kind in tables.items()}
        return command(**given, **made)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in tables:
            table = tables[parameter.name]
            parameters += _parameters_of(table, None if len(tables) == 1 else _heading(table))
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(kind=kind, annotation=hints.get(parameter.name, Any)))
    refused = vars(command).get("refused_options", ())
    parameters = [_hidden(each) if each.name in refused else each for each in parameters]
    returned = hints.get("return", inspect.Signature.empty)
    wrapper.__signature__ = inspect.Signature(parameters, return_annotation=returned)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    wrapper.__name__, wrapper.__doc__, wrapper.__module__ = (
        command.__name__,
        command.__doc__,
        command.__module__,
    )
    return wrapper


def _heading(table: type) -> str:
    """Return the heading of a table's options in help: the first line of its docstring."""
    return (table.__doc__ or "").strip().partition("\n")[0].rstrip(".")


def _in_panel(parameter: inspect.Parameter, heading: str | None) -> inspect.Parameter:
    """Return a parameter whose option stands below a heading, unless it has one of its own."""
    kind, option, *others = get_args(parameter.annotation)
    has_own = isinstance(option, ArgumentInfo) or isinstance(option.rich_help_panel, str)
    if heading is None or has_own:
        return parameter
    titled = copy.copy(option)
    titled.rich_help_panel = heading
    return parameter.replace(annotation=Annotated[(kind, titled, *others)])


def _hidden(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter whose option help does not list; the table's own stays as it is for other commands."""
    kind, option, *others = get_args(parameter.annotation)
    hidden = copy.copy(option)
    hidden.hidden = True
    return parameter.replace(annotation=Annotated[(kind, hidden, *others)])


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and kind in _TABLES


def _made(table: type, given: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance of the table
    """Return a table filled from the given options, which are removed from ``given``."""
    hints = get_type_hints(table, include_extras=True)
    return table(
        **{
            field.name: _made(hints[field.name], given)
            if _is_table(hints[field.name])
            else given.pop(field.name)
            for field in fields(table)
        }
    )


def _parameters_of(table: type, heading: str | None) -> list[inspect.Parameter]:
    """Return one keyword parameter per option, annotated for typer; a table within the table has several.

    ``heading``: of these options in help; None: that of a command's own.
    """
    hints = get_type_hints(table, include_extras=True)
    found: list[inspect.Parameter] = []
    for field in fields(table):
        if _is_table(hints[field.name]):
            inner = hints[field.name]
            has_own = len(fields(inner)) >= OWN_HEADING
            found += _parameters_of(inner, _heading(inner) if has_own else heading)
            continue
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        kind = inspect.Parameter.KEYWORD_ONLY
        option = inspect.Parameter(field.name, kind, default=default, annotation=hints[field.name])
        found.append(_in_panel(option, heading))
    return found
