"""Answers in a notebook: the verdict in a sentence, the command's own rows, and the figures of its page.

Every answer that shows itself is a ``NotebookAnswer``; it says what to show (``NotebookView``), and this
module alone draws it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate
from lazy_dataclasses import dataclass, replace

from traces.facts.answer import AlignedRows, AnswerPart, SideBySide, TermRows, Verbatim
from traces.facts.written import names_of
from traces.pages.page_parts import Code, Figures, Page, PageSection, PageTable, Part, Prose, Terms, filled

MOST_BYTES = 150_000
"""The most bytes of an answer's figures together: a notebook keeps every answer that it has shown."""
MOST_ROWS = 60
MOST_CHARACTERS = 1000
"""The longest text of a cell: some come from strangers' files."""

OWN_ELEMENT = ".vtwin:not(#v)"
"""Where a page's styles apply. The ``:not`` makes them stronger than a notebook's own, which name a few classes."""
DARK = ('[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]')
LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light", '[theme="light"]')
"""How JupyterLab, pages of nbconvert, VS Code and Colab say which theme they show; it may not be the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookView:
    """What a notebook shows: the title, lead and figures of ``page``, and ``parts`` in place of its tables.

    ``more``: what shows all of it, such as a command's option; told where something is left out.
    """

    page: Page
    parts: Sequence[AnswerPart | Part] = ()
    more: str = ""

    def html(self) -> str:
        """Return an element that brings its own styles: they apply to nothing else on the page that it stands on."""
        figures, left_out = _figures(self.page.sections)
        shown = [part for given in self.parts if given != "" for part in _part_of(given)]
        sections = [PageSection(title="", anchor="", parts=shown), *figures]
        told = f"{left_out} of the figures left out: too large for a notebook. " if left_out else ""
        page = replace(self.page, sections=sections, footer=f"{told}{self.more}")
        first = figures[0].anchor if figures else ""
        return filled("notebook.html.j2", page, style=_style(), first=first)


def plain_page(command: str, title: str, *, lead: str = "", warnings: Sequence[str] = ()) -> Page:
    """Return the page of an answer that has no figures."""
    return Page(
        name=command, eyebrow=command, title=title, lead=lead, headlines=(), sections=(), warnings=warnings
    )


def _figures(sections: Sequence[PageSection]) -> tuple[list[PageSection], int]:
    """Return the sections with nothing but their figures, and how many are left out: the largest ones."""
    given = [part for each in sections for part in each.parts if isinstance(part, Figures)]
    ranked = sorted((figure for part in given for figure in part.figures), key=lambda each: len(each.svg))
    sums = accumulate(len(each.svg.encode()) for each in ranked)
    kept = {id(figure) for figure, total in zip(ranked, sums, strict=True) if total <= MOST_BYTES}
    found = []
    for section in sections:
        parts = [
            replace(part, figures=[each for each in part.figures if id(each) in kept])
            for part in section.parts
            if isinstance(part, Figures)
        ]
        if any(part.figures for part in parts):
            found.append(replace(section, parts=[part for part in parts if part.figures]))
    return found, len(ranked) - len(kept)


def _part_of(part: AnswerPart | Part) -> list[Part]:
    """Return a part of an answer as one of a page, shortened where it is long."""
    match part:
        case str():
            return [Prose(markup=_short(part.strip()))]
        case TermRows():
            rows, more = part.rows[:MOST_ROWS], _more(part.rows)
            return [Terms(terms=[(_short(term.strip()), _short(text)) for term, text in rows]), *more]
        case AlignedRows():
            return _table(part.rows, part.widths)
        case SideBySide():
            names = names_of(part.columns)
            return _table([[name, *(each.get(name, "-") for each in part.columns)] for name in names])
        case Verbatim():
            return [Code(text="\n".join(_short(line) for line in part.lines[:MOST_ROWS])), *_more(part.lines)]
    return (
        [replace(part, rows=part.rows[:MOST_ROWS]), *_more(part.rows)]
        if isinstance(part, PageTable)
        else [part]
    )


def _table(table: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> list[Part]:
    """Return a table whose head is the first row; a shorter row is filled up. ``widths``: those of a terminal."""
    head, *rows = table
    rest = ["r"] * (len(head) - 1) if widths is None else [_align(width) for width in widths[1:]]
    align = "".join(["n", *rest])
    cells = [[*map(_short, row), *[""] * (len(head) - len(row))] for row in rows[:MOST_ROWS]]
    return [
        PageTable(head=[*map(_short, head)], rows=cells, align=align, wide=False),
        *_more(rows),
    ]


def _align(width: int) -> str:
    """Return how a column is aligned; one without a width has text as it is: a bar of characters."""
    if width == 0:
        return "p"
    return "n" if width < 0 else "r"


def _more(rows: Sequence[object]) -> list[Part]:
    left = len(rows) - MOST_ROWS
    return [Prose(markup=f"… {left:,} more rows are not shown here.")] if left > 0 else []


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


# -- styles ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _style() -> str:
    """Return the page's styles for ``OWN_ELEMENT``, light and dark as the system or the notebook's theme is."""
    page, own = (
        files("traces.pages").joinpath(f"{name}.css").read_text("utf-8") for name in ("page", "notebook")
    )
    light, dark = re.findall(r":root \{([^{}]*)\}", page)[:2]
    themes = [
        ",".join(f"{host} .vtwin" for host in hosts) + f"{{{colours}}}"
        for hosts, colours in ((LIGHT, light), (DARK, dark))
    ]
    return re.sub(r"\s+", " ", "".join([scoped(page), scoped(own), *themes]))


def scoped(style: str) -> str:
    """Return styles whose rules apply inside an element of the class ``vtwin`` only."""
    plain = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    # the head of a rule is what stands before a block without blocks in it: no head of @media does
    return re.sub(r"([^{}]+)\{(?=[^{}]*\})", lambda rule: f"{_within(rule[1])}{{", plain)


def _within(selectors: str) -> str:
    found = []
    for each in re.split(r",(?![^()]*\))", selectors):
        name = each.strip()
        if name == ":root":
            found.append(".vtwin")  # weaker than the themes' rules below it
        else:
            found.append(OWN_ELEMENT if name in ("html", "body") else f"{OWN_ELEMENT} {name}")
    return ",".join(found)
