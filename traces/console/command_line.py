"""A command line from its words to its exit code: the one place where an error becomes one line."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from lazy_dataclasses import dataclass, field
from typing import Any

import typer
import typer.main

from traces.atomic import files_written
from traces.console import early_end
from traces.console.early_end import NOTHING_WRITTEN, heed_later, heed_no_more
from traces.console.faults import complain, line_and_code
from traces.console.help import fold_long_words, plain_help
from traces.console.old_spellings import NewCommand, in_new_words
from traces.console.process import (
    ONE_THREAD,
    collect_rarely,
    leave_quietly,
    open_closed_streams,
    take_signals,
)
from traces.console.usage import OwnWay
from traces.console.values import refuse_impossible
from traces.errors import ExitCode
from traces.strict.narration import wrapped_narration
from traces.strict.tell import tell

MOST_NAMED = 5
"""The most files that a line names: a sweep of pages may have written hundreds."""
MAY_HIDE = ("--api-key", "@", "=")  # a key of a URL is behind an equals sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A console script.

    ``app``: makes the app, from the names of the called commands, and whether the line begins with one: then the
    others' lines of help are not shown. ``own_way``: the text for an option that no command has. ``hide``: removes
    secrets from the process list. ``keep_collector``: commands that leave Python's collector of unused objects as it
    is, or set it themselves. ``most_used``: by a command's words (``fleet size``), the options that its help shows.
    ``old_commands``: what old commands are now, by their words.
    """

    name: str
    app: Callable[[list[str], bool], typer.Typer]
    own_way: OwnWay
    hide: Callable[[Sequence[str]], None]
    keep_collector: Collection[str] = ()
    most_used: Mapping[str, Sequence[str]] = field(default_factory=dict)
    old_commands: Mapping[tuple[str, ...], NewCommand] = field(default_factory=dict)


def run_program(program: Program, argv: Sequence[str] | None) -> int:
    """Run a command line, return the exit code; a fault of the user becomes one line on stderr.

    ``argv`` None: the process's own, whose streams and signals are then set up, too.
    """
    with wrapped_narration():
        arguments = list(sys.argv[1:] if argv is None else argv)
        if argv is None:
            atexit.register(early_end.ignore)  # the first that is registered is the last that is called
            # At the end Python looks through all objects once more, 0.4 s of work after a run: nothing of them is
            # needed.
            atexit.register(gc.freeze)
            open_closed_streams()
            os.environ.setdefault(*ONE_THREAD)
            _hide_secrets(program, arguments)
            take_signals()  # last: what they raise is caught from here on
        try:
            if not arguments:
                return _run(program, ["--help"]) or ExitCode.USAGE
            return _run(program, arguments)
        except KeyboardInterrupt:  # it came when the command had ended
            return ExitCode.INTERRUPTED
        finally:
            if argv is None:
                heed_no_more()


def _hide_secrets(program: Program, arguments: Sequence[str]) -> None:
    """Remove secrets from the process list, if the line may have any."""
    if any(
        any(each in word for each in MAY_HIDE) or word.startswith(("--header", "-H")) for word in arguments
    ):
        program.hide(arguments)


def _run(program: Program, arguments: list[str]) -> int:
    try:
        arguments = in_new_words(arguments, program.old_commands)
        called = [word for word in arguments if not word.startswith("-")][:1]
        if not set(called) & set(program.keep_collector):
            collect_rarely()
        heed_later()
        code = _command(program, called, arguments)(arguments, prog_name=program.name, standalone_mode=False)
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        _say_what_is_written()
        return ExitCode.INTERRUPTED
    except (BrokenPipeError, SystemExit) as stop:
        # typer answers a broken pipe with exit code 1, which here is a verdict
        if isinstance(stop, SystemExit) and not isinstance(stop.__context__, BrokenPipeError):
            raise
        return leave_quietly()
    except Exception as error:
        line, code = line_and_code(error, arguments, own_way=program.own_way)
        try:
            sys.stdout.flush()
        except OSError:  # unwritten output is still buffered, and would give a second error at the end
            leave_quietly()
        return complain(line, arguments, code=code)
    finally:
        # If code run from a string (a dataclass being made) was interrupted, Python ends by SIGINT, even where that
        # was caught, unless such code has run well since.
        exec("")  # noqa: S102
    return code if isinstance(code, int) else 0


def _say_what_is_written() -> None:
    """Print after Ctrl-C which files were written before it."""
    files = ", ".join(str(path) for path in files_written[:MOST_NAMED])
    if len(files_written) > MOST_NAMED:
        files += f" and {len(files_written) - MOST_NAMED:,} more"
    with suppress(OSError):  # a terminal that hung up
        tell(f"interrupted; written before: {files}" if files else NOTHING_WRITTEN)


def _tell_interruptions(command: Any) -> None:  # noqa: ANN401 - typer's own
    """Make a command that Ctrl-C ends print what it has written: typer only sets an exit code."""
    invoke = command.invoke

    def telling(context: object) -> object:
        try:
            return invoke(context)
        except KeyboardInterrupt:
            _say_what_is_written()
            raise

    command.invoke = telling


def _command(program: Program, called: list[str], arguments: Sequence[str]) -> Any:  # noqa: ANN401 - typer's own
    """Return the command to run, its help and its numbers as vtwin has them."""
    command: Any = typer.main.get_command(program.app(called, arguments[:1] == called))
    alone = "" if hasattr(command, "commands") else program.name
    plain_help(command, program.most_used, path=alone)
    refuse_impossible(command)
    if {"--help", "--help-all"} & set(arguments) and called:
        fold_long_words()
    _tell_interruptions(command)
    return command
