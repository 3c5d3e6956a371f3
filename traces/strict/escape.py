"""Untrusted text (names in a trace, a server's messages), escaped for each output; one function per output.

All return one line of printable characters: a line break, a control sequence or half a character would be read as
vtwin's own output.
"""

from __future__ import annotations

import re

_NOT_XML = r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd]"
"""Characters that XML 1.0 cannot hold, even escaped (and those beyond its basic plane, which some readers refuse).

The regular expression takes 20 ms to compile, so it is compiled on first use."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that spreadsheets run."""
_KEPT = "\u00a0"
"""Between a number and its unit."""


def terminal(text: str) -> str:
    """Return text for a terminal or a log."""
    if text.isprintable():
        return text
    return "".join(_printable(each) for each in text)


def _printable(character: str) -> str:
    if character.isprintable() or character == _KEPT:
        return character
    return " " if character.isspace() else ascii(character)[1:-1]


def markdown(text: str) -> str:
    """Return text for Markdown, in a table too: no HTML, no entity, no link and no image. Code and emphasis stay."""
    flat = re.sub(r"&(?=#?\w+;)", "&amp;", terminal(text)).replace("<", "&lt;")
    return flat.replace("](", "]\\(").replace("|", "\\|")


def spreadsheet(text: str) -> str:
    """Return text for a CSV cell that a spreadsheet shows: behind an apostrophe where it would run it as a formula."""
    return f"'{text}" if text[:1] in _FORMULA else text


def xml(text: str) -> str:
    """Return text for XML, in an attribute too."""
    from html import escape  # a terminal needs none of it

    return escape(re.sub(_NOT_XML, "\ufffd", " ".join(text.splitlines())))


def annotation(text: str) -> str:
    """Return the message of a workflow command, escaped as actions/toolkit does (packages/core/src/command.ts)."""
    return "%0A".join(terminal(line).replace("%", "%25") for line in text.splitlines())


def annotation_property(text: str) -> str:
    """Return a property, such as the title, of a workflow command."""
    return annotation(text).replace(":", "%3A").replace(",", "%2C")
