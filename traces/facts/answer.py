"""What an answer to people consists of, in the order in which they read it; the layout is traces.facts.written's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TERM = 12
"""Characters of a term in a terminal, unless a question has longer ones."""


@dataclass(frozen=True, slots=True)
class TermRows:
    """Terms with what is beside them, a row each; a row without a term goes on with the one above."""

    rows: Sequence[tuple[str, str]]
    width: int = TERM


@dataclass(frozen=True, slots=True)
class AlignedRows:
    """Rows of a table, its head the first.

    ``widths``: of the columns in a terminal; a negative one's cells begin below each other, 0: as they are; None: all
    as wide as need be. A row that is shorter than the head says something else from there on.
    """

    rows: Sequence[Sequence[str]]
    widths: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Things that are compared, a column each: texts by their rows' names. A row that one of them lacks has a dash."""

    columns: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Lines that stay as they are: a picture of characters, or a file's text."""

    lines: Sequence[str]


AnswerPart = str | TermRows | AlignedRows | SideBySide | Verbatim
"""A text by itself is a line, and a paragraph elsewhere; an empty one leaves a line free."""
