"""A command that has subcommands beside it: ``vtwin calibrate TRACE …`` and ``vtwin calibrate guided …``."""

from __future__ import annotations

from typing import Any, Final

import click
import typer.core

_CALLED: Final = "vtwin.subcommand"


class Subcommands(typer.core.TyperGroup):
    """A group that is a command itself if the first word is not a subcommand.

    A first argument with a subcommand's name, such as a trace, counts as an argument if the line has an option that
    only the command has; with a path before it (``./guided``) it always does.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the options of the command itself; those of a subcommand are left to it."""
        if self._is_called(ctx, args):
            ctx.meta[_CALLED] = args
            return []
        ctx.allow_interspersed_args = True
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - what any command returns
        """Run the subcommand that is called, else the command itself; return what it returns."""
        if _CALLED not in ctx.meta:
            return click.Command.invoke(self, ctx)
        name, *words = ctx.meta[_CALLED]
        # Beside this context, not under it: its usage would else name this command's arguments.
        called = self.commands[name].make_context(f"{ctx.info_name} {name}", words, parent=ctx.parent)
        with called:
            return called.command.invoke(called)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the usage of the command itself; its help lists the subcommands below."""
        return click.Command.collect_usage_pieces(self, ctx)

    def _is_called(self, ctx: click.Context, args: list[str]) -> bool:
        """Return whether a subcommand is called."""
        command = self.commands.get(args[0]) if args else None
        if command is None:
            return False
        own = _options_of(self, ctx) - _options_of(command, ctx)
        return not any(word.partition("=")[0] in own for word in args[1:])


def _options_of(command: click.Command, ctx: click.Context) -> set[str]:
    return {name for each in command.get_params(ctx) for name in each.opts}
