"""How a command ends: its exit code, and errors that the user can correct, each in one line.

Such a line says what, where, and what was expected.

The one place, too, that cuts what a line quotes: at most 80 characters of a stranger's text.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import ClassVar, Final

_MOST_CHARACTERS: Final = 4000
"""The most characters of a message, which must not quote a whole file."""

MOST_QUOTED: Final = 80
"""The most characters of a quoted text; a longer one ends in an ellipsis."""
_PIECES: Final = (
    r"""(?<!\w)(?P<mark>["'])(?P<text>.*?)(?P=mark)(?!\w)"""
    rf"|(?<!\S)[^\s/]{{{MOST_QUOTED + 1},}}(?!\S)|[^\s/]{{256,}}"
)
"""A text in quotation marks, a word that is no path, and what is too long for a part of a path."""


class ExitCode(IntEnum):
    """How a command ended. ``meaning``: a sentence, for the reference page."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        """Return a code with its meaning."""
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    DONE = 0, "done"
    NEGATIVE = (
        1,
        "the command ran, and its verdict is negative: a gate's FAIL, no request finished, `trace check` found "
        "problems",
    )
    USAGE = 2, "wrong usage, configuration or specification"
    TRACE = 3, "a trace is missing or malformed, or two traces have no request in common"
    SERVER = (
        4,
        "the server was not found, refused, has no certificate to be trusted, or answered 401, 403 or 5xx before the "
        "run",
    )
    INCONCLUSIVE = 5, "inconclusive: the gate cannot decide"
    CRASH = (  # EX_SOFTWARE of sysexits.h
        70,
        "a fault of vtwin itself: the line names a file with the traceback, or `VTWIN_DEBUG=1` prints it",
    )
    INTERRUPTED = 130, "interrupted, by Ctrl-C, SIGTERM or SIGHUP; finished requests are written"
    BROKEN_PIPE = 141, "the program that read the output closed it"


class VtwinError(Exception):
    """A fault of the input, shown as one line without a stack; ``exit_code`` is the process's.

    Quoted text is not trusted: line breaks, control characters and halves of characters are shown as spaces or escaped,
    and a long text is cut. ``whole``: the message before that, in which a secret can still be found.
    """

    exit_code: ClassVar[int] = ExitCode.NEGATIVE

    def __init__(self, message: object = "") -> None:
        self.whole = _printable(str(message))
        super().__init__(with_cut_pieces(self.whole))


def one_line(text: str) -> str:
    """Return text as one printable line of a few thousand characters at most, each quoted text in it cut."""
    return with_cut_pieces(_printable(text))


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


def _printable(text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS // 2]} … {text[-_MOST_CHARACTERS // 2 :]}"
    if text.isprintable():
        return text
    spaced = " ".join(text.split())
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in spaced)


class ConfigError(VtwinError):
    """A bad option, TWIN.yaml or workload specification (exit code 2)."""

    exit_code: ClassVar[int] = ExitCode.USAGE


class TraceError(VtwinError):
    """A trace that is missing, malformed, or has nothing in common with its partner (exit code 3)."""

    exit_code: ClassVar[int] = ExitCode.TRACE


class ServerError(VtwinError):
    """A server that refuses, cannot be resolved, or answers 401, 403 or 5xx before the run (exit code 4)."""

    exit_code: ClassVar[int] = ExitCode.SERVER
