"""Running the commands of ``vtwin demo`` and ``vtwin validate`` one after the other, each shown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from traces.strict.secrets import redact_command
from traces.strict.tell import tell

RunCommand = Callable[[str, Sequence[str]], object]
"""Shows a command line, runs the command in this process, and returns what its function returns."""


def show(name: str, arguments: Sequence[str], *, more: str = "") -> None:
    """Print the command line that a reader can run for the same."""
    shown = redact_command(["vtwin", name, *arguments], os.environ)
    tell("", f"$ {shown}{more}", bold=True)
