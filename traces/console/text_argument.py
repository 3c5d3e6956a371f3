"""A command whose argument is a text of lines: one that begins with a hyphen is not an option."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.core import TyperCommand

if TYPE_CHECKING:
    import click


class TakesText(TyperCommand):
    """A command that takes a text of several lines, a manifest that begins with ``---`` among them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; texts of several lines count as arguments whatever they begin with."""
        texts = [each for each in args if each.startswith("-") and "\n" in each]
        if texts and "--" not in args:
            args = [*(each for each in args if each not in texts), "--", *texts]
        return super().parse_args(ctx, args)
