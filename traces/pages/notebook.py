"""Answers in a notebook: the verdict in a sentence, the command's own rows, and the figures of its page.

Every answer that shows itself is a ``NotebookAnswer``; it says what to show, and this module alone draws it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files

from traces.facts.answer import AlignedRows, AnswerPart, SideBySide, TermRows, Verbatim
from traces.facts.written import names_of
from traces.pages.markup import Markup
from traces.pages.page_parts import Code, Figures, Page, PageSection, PageTable, Part, Prose, Terms, template

MOST_BYTES = 200_000
"""Of an answer's figures together: a notebook keeps every answer that it has shown."""
MOST_ROWS = 60
MOST_CHARACTERS = 400
"""Of a cell: some come from strangers' files."""

OWN_ELEMENT = ".vtwin:not(#v)"
"""Where a page's styles apply. The ``:not`` makes them stronger than a notebook's own, which name two or three classes."""
DARK = ('[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]')
LIGHT = ('[data-jp-theme-light="true"]', ".vscode-light", '[theme="light"]')
"""How JupyterLab (and pages made by nbconvert), VS Code and Colab say which theme they show; it may not be the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookView:
    """What a notebook shows: the title, lead and figures of ``page``, and ``parts`` in place of its tables.

    ``more``: what shows all of it, such as a command's option; told where something is left out.
    """

    page: Page
    parts: Sequence[AnswerPart | Part] = ()
    more: str = ""


class NotebookAnswer:
    """An answer that draws itself where a notebook shows it; ``repr`` is a line with the beginning of its text."""

    __slots__ = ()

    def notebook_view(self) -> NotebookView:
        """Return what a notebook shows."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return the answer as HTML, at most a few hundred kB, without scripts."""
        return notebook_html(self.notebook_view())

    def __repr__(self) -> str:
        """Return one line."""
        text = str(self).strip().partition("\n")[0]
        return f"<{type(self).__name__}: {text}>"


def plain_page(command: str, title: str, *, lead: str = "", warnings: Sequence[str] = ()) -> Page:
    """Return the page of an answer that has no figures."""
    return Page(
        name=command, eyebrow=command, title=title, lead=lead, headlines=(), sections=(), warnings=warnings
    )


def notebook_html(view: NotebookView) -> str:
    """Return an element that brings its own styles: they apply to nothing else on the page that it stands on."""
    figures, left_out = _figures(view.page.sections)
    shown = [part for given in view.parts if given != "" for part in _part_of(given)]
    sections = [PageSection(title="", anchor="", parts=shown), *figures]
    told = f"{left_out} of the figures left out: too large for a notebook. " if left_out else ""
    page = replace(view.page, sections=sections, footer=f"{told}{view.more}")
    first = figures[0].anchor if figures else ""
    return template("notebook.html.j2").render(page=page, style=Markup(_style()), first=first)


def _figures(sections: Sequence[PageSection]) -> tuple[list[PageSection], int]:
    """Return the sections with nothing but their figures, as many as there is room for, and how many are left out."""
    room, left_out, found = MOST_BYTES, 0, []
    for section in sections:
        parts: list[Part] = []
        for part in section.parts:
            kept = []
            for figure in part.figures if isinstance(part, Figures) else ():
                size = len(figure.svg.encode())
                if size > room:
                    left_out += 1
                    continue
                room -= size
                kept.append(figure)
            if isinstance(part, Figures) and kept:
                parts.append(replace(part, figures=kept))
        if parts:
            found.append(replace(section, parts=parts))
    return found, left_out


def _part_of(part: AnswerPart | Part) -> list[Part]:
    """Return a part of an answer as one of a page, shortened where it is long."""
    match part:
        case str():
            return [Prose(markup=_short(part.strip()))]
        case TermRows():
            rows, more = part.rows[:MOST_ROWS], _more(part.rows)
            return [Terms(terms=[(_short(term.strip()), _short(text)) for term, text in rows]), *more]
        case AlignedRows():
            head, *rows = part.rows
            return _table(head, rows)
        case SideBySide():
            head, *rows = (
                [name, *(each.get(name, "-") for each in part.columns)] for name in names_of(part.columns)
            )
            return _table(head, rows)
        case Verbatim():
            return [Code(text="\n".join(_short(line) for line in part.lines[:MOST_ROWS])), *_more(part.lines)]
        case PageTable():
            return [replace(part, rows=part.rows[:MOST_ROWS]), *_more(part.rows)]
        case _:
            return [part]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Part]:
    cells = [[*map(_short, row), *[""] * (len(head) - len(row))] for row in rows[:MOST_ROWS]]
    return [
        PageTable(head=[*map(_short, head)], rows=cells, align="n" + "r" * (len(head) - 1), wide=False),
        *_more(rows),
    ]


def _more(rows: Sequence[object]) -> list[Part]:
    left = len(rows) - MOST_ROWS
    return [Prose(markup=f"… {left:,} more rows are not shown here.")] if left > 0 else []


def _short(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


# -- styles ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _style() -> str:
    """Return the page's styles for ``OWN_ELEMENT``, light and dark as the system or the notebook's theme is."""
    page, own = (files("traces.pages").joinpath(f"{name}.css").read_text("utf-8") for name in ("page", "notebook"))
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
