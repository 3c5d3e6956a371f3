"""A fault in one line, and its exit code: the user's, the machine's, or vtwin's own."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

import click
import typer

from traces.console.usage import OwnWay, usage_line
from traces.console.users_code import place_in_users_code, told
from traces.errors import ExitCode, VtwinError, with_cut_pieces
from traces.strict.tell import say_text, tell


def complain(line: str, arguments: Sequence[str], *, code: int) -> int:
    """Print one red line on stderr, return ``code``; no line where typer has printed the help already.

    Secrets of the command line and of the environment are left out of it, and then what is long.
    """
    if line:
        from traces.strict.secrets import command_secrets

        shown = command_secrets(arguments, os.environ).redact(line)
        tell(with_cut_pieces(" ".join(shown.split())), colour=typer.colors.RED)
    return code


def line_and_code(error: Exception, arguments: Sequence[str], *, own_way: OwnWay) -> tuple[str, int]:
    """Return the message of a fault, and the exit code; empty if typer has printed the help already."""
    if isinstance(error, click.ClickException):  # first: an option's value may be both, and has its name here
        return usage_line(error, own_way=own_way), ExitCode.USAGE
    if isinstance(error, VtwinError):
        return f"{type(error).__name__}: {error.whole}", error.exit_code
    if place_in_users_code(error) is not None:
        return (
            f"ConfigError: got {told(error)}, expected your own code to return what it promises",
            ExitCode.USAGE,
        )
    if isinstance(error, OSError):  # the machine's: a disk, a name, a right, a limit
        return f"FileError: {_refusal(error)}", ExitCode.USAGE
    if isinstance(error, MemoryError):  # numpy's says what was asked for
        said = f": {error}" if str(error) else ""
        return (
            f"MemoryError: got too little memory{said}, expected a smaller question, or more memory",
            ExitCode.USAGE,
        )
    return _crash_line(error, arguments), ExitCode.CRASH


def _refusal(error: OSError) -> str:
    place = f" ({error.filename})" if error.filename else ""
    return f"got {error.strerror or error}, expected a place that can be read and written{place}"


def _crash_line(error: Exception, arguments: Sequence[str]) -> str:
    """Return the line for a fault of vtwin itself; its traceback is kept, or printed with VTWIN_DEBUG=1."""
    from importlib.metadata import version

    from traces.strict.secrets import command_secrets, redact_command

    frame = traceback.extract_tb(error.__traceback__)[-1]
    trace = "".join(traceback.format_exception(error))
    report = (
        f"vtwin {version('vtwin')}, Python {sys.version}\n$ {redact_command(['vtwin', *arguments])}\n{trace}"
    )
    report = command_secrets(arguments, os.environ).redact(report)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line = f"InternalError: {said} ({Path(frame.filename).name}:{frame.lineno}): a fault of vtwin"
    if os.environ.get("VTWIN_DEBUG"):
        say_text(report, err=True)
        return line
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", prefix="vtwin-crash-", suffix=".txt", delete=False
        ) as file:
            file.write(report)
    except OSError:
        return f"{line}; VTWIN_DEBUG=1 prints its traceback"
    return f"{line}; its traceback, to report it: {file.name}"
