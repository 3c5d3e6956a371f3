"""The commands of the console script, as its app has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Command = Any  # typer's own objects, whose classes are not public


def commands_of(command: Command, path: str) -> Iterator[tuple[str, Command]]:
    """Yield every command at or below ``command`` that does something, with its path."""
    children = getattr(command, "commands", None)
    if children is None or command.invoke_without_command:
        yield path, command
    for name, child in (children or {}).items():
        yield from commands_of(child, f"{path} {name}")
