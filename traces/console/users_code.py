"""Whose fault an exception is: one that came out of a file of the user's own is the user's, with file and line."""

from __future__ import annotations

import traceback
from pathlib import Path

_FILES: set[str] = set()
"""Files that a configuration named, as their code objects name them."""


def note_users_file(file: str | Path) -> None:
    """Remember a file whose exceptions are its author's."""
    _FILES.add(str(file))


def place_in_users_code(error: BaseException) -> str | None:
    """Return the last line of the user's own files that an exception passed (``mine.py:12``), None if there is none."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename in _FILES]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


def told(error: BaseException) -> str:
    """Return an exception in one line, with the user's file and line if it came out of one."""
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    place = place_in_users_code(error)
    return said if place is None else f"{said}, at {place}"
