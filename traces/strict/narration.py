"""Notes on stderr, wrapped between words where that is a terminal. In a pipe or a log a line stays one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from traces.strict.tell import tell_note

__all__ = ["COLOUR", "Narration", "tell_note", "wrapped", "wrapped_narration"]


COLOUR = re.compile(r"\x1b\[[\d;]*m")
"""Control sequences, which take no room in a line."""
USUAL = 80
"""Columns of a terminal that does not say how many it has."""
CONTINUED = "  "
"""The prefix of a continued line, besides its own indentation."""


def wrapped(text: str, width: int) -> str:
    """Return text whose lines are at most ``width`` wide, broken at spaces only; a word wider than that stays whole.

    A line that fits stays as it is, and so does all of a text that moves the cursor.
    """
    if "\r" in text or "\x1b" in COLOUR.sub("", text):
        return text
    return "\n".join(_of_line(line, width) for line in text.split("\n"))


def _of_line(line: str, width: int) -> str:
    if _room(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    words = line[len(indent) :].split(" ")
    lines = [indent + words[0]]
    for word in words[1:]:
        longer = f"{lines[-1]} {word}"
        if _room(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(indent + CONTINUED + word)
    return "\n".join(lines)


def _room(text: str) -> int:
    return len(COLOUR.sub("", text))


class Narration:
    """A terminal's stream whose lines are wrapped; everything else is the stream's own."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text, wrapped to the terminal's width as it is now."""
        if not isinstance(text, str):
            return self._stream.write(text)  # which defines what it accepts
        return self._stream.write(wrapped(text, self._width()))

    def _width(self) -> int:
        """Return the columns of this terminal, which need not be stdout's."""
        if (columns := os.environ.get("COLUMNS", "")).isdigit() and int(columns) > 0:
            return int(columns)
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or USUAL
        except (OSError, ValueError):
            return USUAL

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        """Return the stream's own attribute."""
        return getattr(self._stream, name)


@contextmanager
def wrapped_narration() -> Iterator[None]:
    """Wrap stderr inside the block, if it is a terminal."""
    stream = sys.stderr
    if stream is None or not stream.isatty():
        yield
        return
    sys.stderr = cast("Any", Narration(stream))
    try:
        yield
    finally:
        sys.stderr = stream
