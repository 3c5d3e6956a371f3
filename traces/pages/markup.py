"""The one way to markup. Text is text unless it is ``Markup``, and only ``element`` and ``inline`` make that.

A page's template escapes everything that is not ``Markup``, and so do these functions with their arguments. A caller
that forgets them gets a page that shows its tags, never one with tags from untrusted text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from markupsafe import Markup, escape

__all__ = ["Markup", "bold", "code", "element", "escape", "inline", "listed", "size_of"]


def element(name: str, attributes: Mapping[str, str], *content: str) -> Markup:
    """Return an element of HTML or SVG; attributes' values and content are escaped, except for what is ``Markup``."""
    given = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    if not content:
        return Markup(f"<{name}{given}/>")  # noqa: S704 - escaped above
    return Markup(f"<{name}{given}>{inline(*content)}</{name}>")  # noqa: S704 - escaped above and there


def inline(*parts: str) -> Markup:
    """Return parts one after another; what is not ``Markup`` is escaped."""
    return Markup().join(parts)


def listed(parts: Iterable[str], between: str = ", ") -> Markup:
    """Return parts with a text between them; what is not ``Markup`` is escaped."""
    return escape(between).join(parts)


def size_of(width: float, height: float) -> dict[str, str]:
    """Return the attributes of a picture's size, in pixels."""
    return {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}


def bold(text: str, kind: str = "") -> Markup:
    """Return text in bold; ``kind`` is its CSS class."""
    return element("b", {"class": kind} if kind else {}, text)


def code(text: str) -> Markup:
    """Return text in the style of files and commands."""
    return element("code", {}, text)
