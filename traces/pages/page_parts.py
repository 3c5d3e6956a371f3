"""The content of a page; its appearance is in page.html.j2 and page.css.

Every text of it is escaped unless it is ``Markup``, which only traces.pages.markup makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from lazy_dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from traces.pages.markup import Markup, element, size_of

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """A key figure, its name, and the small print below it."""

    label: str
    value: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A table's cell: text, or a small drawing (``svg``), with an aside in a quieter tone.

    ``verdict``: shown in the colour of good, or bad.
    """

    text: str = ""
    aside: str = ""
    svg: str | None = None
    tint: float = 0.0
    verdict: Literal["", "pass", "fail"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageTable:
    """Columns under ``head``; ``align`` has a letter a column: l(eft), n(o wrapping, left), r(ight), c(entre).

    ``groups`` are row numbers before which a rule is drawn; ``wide`` tables fill the page. A cell that begins with two
    spaces is indented, as in a terminal.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    align: str
    caption: str = ""
    groups: Sequence[int] = ()
    wide: bool = True
    kind: str = field(default="table", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prose:
    """A paragraph; ``markup`` is escaped unless it is ``Markup``."""

    markup: str
    kind: str = field(default="prose", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture and its caption; what is not ``Markup`` is shown as text."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Pictures side by side, ``columns`` of them on a wide page."""

    figures: Sequence[Figure]
    columns: int = 2
    caption: str = ""
    kind: str = field(default="figures", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms with their descriptions."""

    terms: Sequence[tuple[str, str]]
    kind: str = field(default="terms", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedText:
    """Preformatted text, folded away under its title."""

    title: str
    text: str
    kind: str = field(default="source", init=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Text to be copied, such as a command."""

    text: str
    kind: str = field(default="code", init=False)


Part = PageTable | Prose | Figures | Terms | FoldedText | Code


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A heading and what follows it; ``lead`` is the sentence under the heading."""

    title: str
    anchor: str
    parts: Sequence[Part]
    lead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A whole page: ``eyebrow`` above the title, ``lead`` below it, then the key figures.

    Title and ``lead``, one sentence, answer in at most 20 words each; ``more`` has further sentences, a paragraph each.
    ``name`` is shown in the browser's tab. ``warnings`` stand right below the title.
    """

    name: str
    title: str
    eyebrow: str
    lead: str
    headlines: Sequence[Headline]
    sections: Sequence[PageSection]
    footer: str = ""
    warnings: Sequence[str] = ()
    more: Sequence[str] = ()


POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""A page's security policy: only its own styles. No page has a script, a frame or a further file."""


def render(page: Page) -> str:
    """Return the page as one HTML document that needs no other file."""
    style = files("traces.pages").joinpath("page.css").read_text(encoding="utf-8")
    return filled("page.html.j2", page, style=style, policy=POLICY)


def filled(template: str, page: Page, *, style: str, **more: str) -> str:
    """Return a template of this room with a page's content, escaped unless it is ``Markup``, and styles as they are."""
    return _environment().get_template(template).render(page=page, style=Markup(style), **more)


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(lambda name: files("traces.pages").joinpath(name).read_text(encoding="utf-8")),
    )


WHISKER_WIDTH, WHISKER_HEIGHT = 132, 14


def whisker(
    value: float | None,
    low: float | None,
    high: float | None,
    *,
    ends: tuple[float, float],
    mark: float | None,
) -> Markup | None:
    """Return a small drawing of an interval on a line from ``ends[0]`` to ``ends[1]``, with a tick at ``mark``.

    None without a value.
    """
    if value is None:
        return None

    def across(at: float) -> float:
        share = (at - ends[0]) / (ends[1] - ends[0]) if ends[1] > ends[0] else 0.5
        return 4 + min(max(share, 0.0), 1.0) * (WHISKER_WIDTH - 8)

    middle = WHISKER_HEIGHT / 2
    parts = []
    if mark is not None:
        parts.append(element("path", {"class": "zero", "d": f"M{across(mark):.1f} 0V{WHISKER_HEIGHT}"}))
    if low is not None and high is not None:
        reach = f"M{across(low):.1f} {middle}H{across(high):.1f}"
        parts.append(element("path", {"class": "reach", "d": reach}))
    parts.append(element("path", {"class": "point", "d": f"M{across(value):.1f} {middle}h0"}))
    kind = {"class": "whisker", "aria-hidden": "true"}
    return element("svg", kind | size_of(WHISKER_WIDTH, WHISKER_HEIGHT), *parts)
