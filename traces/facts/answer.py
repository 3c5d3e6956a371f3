"""The parts of an answer for readers, in their order; the layout is traces.facts.written's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from lazy_dataclasses import dataclass

TERM = 12
"""Characters of a term in a terminal, unless a question has longer ones."""


@dataclass(frozen=True, slots=True)
class TermRows:
    """Terms with their texts, a row each; a row without a term continues the one above."""

    rows: Sequence[tuple[str, str]]
    width: int = TERM


@dataclass(frozen=True, slots=True)
class AlignedRows:
    """Rows of a table, its head the first.

    ``widths``: of the columns in a terminal; a negative one's cells begin below each other, 0: as they are; None: all
    as wide as need be. In a row shorter than the head the last cell fills the rest.
    """

    rows: Sequence[Sequence[str]]
    widths: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Things that are compared, a column each: texts by their rows' names. A row that one of them lacks has a dash."""

    columns: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Preformatted lines: a picture of characters, or a file's text."""

    lines: Sequence[str]


AnswerPart = str | TermRows | AlignedRows | SideBySide | Verbatim
"""A text alone is a line in a terminal, and a paragraph elsewhere; an empty one is a blank line."""
