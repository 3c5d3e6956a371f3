"""Errors that the user can correct: one line that says what, where, and what was expected."""

from __future__ import annotations

from typing import ClassVar, Final

from traces.strict.quoted import with_cut_pieces

_MOST_CHARACTERS: Final = 4000
"""The most characters of a message, which must not quote a whole file."""


class VtwinError(Exception):
    """A fault of the input, shown as one line without a stack; ``exit_code`` is the process's.

    Quoted text is not trusted: line breaks, control characters and halves of characters are shown as spaces or escaped,
    and a long text is cut. ``whole``: the message before that, in which a secret can still be found.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: object = "") -> None:
        self.whole = _printable(str(message))
        super().__init__(with_cut_pieces(self.whole))


def one_line(text: str) -> str:
    """Return text as one printable line of a few thousand characters at most, each quoted text in it cut."""
    return with_cut_pieces(_printable(text))


def _printable(text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS // 2]} … {text[-_MOST_CHARACTERS // 2 :]}"
    if text.isprintable():
        return text
    spaced = " ".join(text.split())
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in spaced)


class ConfigError(VtwinError):
    """A bad option, TWIN.yaml or workload specification (exit code 2)."""

    exit_code = 2


class TraceError(VtwinError):
    """A trace that is missing, malformed, or has nothing in common with its partner (exit code 3)."""

    exit_code = 3


class ServerError(VtwinError):
    """A server that refuses, cannot be resolved, or answers 401, 403 or 5xx before the run (exit code 4)."""

    exit_code = 4
