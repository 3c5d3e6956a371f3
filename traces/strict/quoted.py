"""At most 80 characters of a stranger's text in one line: the one place that cuts what is quoted."""

from __future__ import annotations

import re
from typing import Final

MOST_QUOTED: Final = 80
"""Of a quoted text; the last character of a longer one is an ellipsis."""
_PIECES: Final = (
    r"""(?<!\w)(?P<mark>["'])(?P<text>.*?)(?P=mark)(?!\w)"""
    rf"|(?<!\S)[^\s/]{{{MOST_QUOTED + 1},}}(?!\S)|[^\s/]{{256,}}"
)
"""A text in quotation marks, a word that is no path, and what is too long for a part of a path."""


def cut(text: str) -> str:
    """Return text of at most ``MOST_QUOTED`` characters: the beginning of a longer one, and an ellipsis."""
    return text if len(text) <= MOST_QUOTED else f"{text[: MOST_QUOTED - 1]}…"


def quoted(value: object) -> str:
    """Return a value as a message quotes it, as Python writes it: text in quotation marks, what is long cut."""
    if isinstance(value, str):
        return repr(cut(value))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**MOST_QUOTED:
        return "a number of more than 80 digits"  # which Python refuses to write beyond 4,300
    return cut(repr(value))


def with_cut_pieces(text: str) -> str:
    """Return a line in which each quoted text and each word is cut; a path keeps its parts.

    For messages whose writer did not cut what it quotes.
    """
    return text if len(text) <= MOST_QUOTED else re.sub(_PIECES, _cut_piece, text, flags=re.DOTALL)


def _cut_piece(found: re.Match[str]) -> str:
    mark = found["mark"]
    return cut(found[0]) if mark is None else f"{mark}{cut(found['text'])}{mark}"
