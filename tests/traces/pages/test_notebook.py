"""An answer in a notebook: text is text, styles stay inside, and it has a size."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files
from typing import ClassVar

import numpy as np
import pytest

from tests.traces.pages.test_pages import HOSTILE, SHOWN
from traces.facts import AlignedRows, AnswerPart, NotebookAnswer, SideBySide, TermRows, Verbatim
from traces.pages import (
    Figure,
    Figures,
    Line,
    Markup,
    Page,
    PageSection,
    PageTable,
    Part,
    Prose,
    Terms,
    chart,
    linear,
    notebook,
)
from traces.pages.notebook import (
    MOST_CHARACTERS,
    MOST_ROWS,
    NotebookView,
    plain_page,
    scoped,
)


def picture(title: str, points: int = 2) -> Figure:
    at = np.linspace(0.0, 1.0, points)
    axis = linear(0, 1, label=title)
    return Figure(svg=chart(title=title, x=axis, y=axis, marks=[Line(x=at, y=at, name="simulated")]))


def page_with(*sections: PageSection) -> Page:
    return replace(plain_page("vtwin run", "The server keeps up"), sections=sections)


def shown(*parts: AnswerPart | Part, title: str = "t") -> str:
    return NotebookView(page=plain_page("vtwin run", title), parts=parts).html()


def text_of(html: str) -> str:
    return re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)


def test_the_verdict_the_rows_and_the_page_s_figures_are_shown_and_not_its_tables() -> None:
    figure = picture("TTFT")
    table = PageTable(head=["of the page"], rows=[["x"]], align="l")
    page = page_with(
        PageSection(title="First", anchor="a", parts=[table, Figures(figures=[figure])]),
        PageSection(title="Numbers", anchor="b", parts=[Terms(terms=[("only", "text")])]),
        PageSection(title="Second", anchor="c", parts=[Figures(figures=[picture("TPOT")])]),
    )
    rows = AlignedRows([["", "p50"], ["TTFT, ms", "40"]], [-12, 9])
    html = text_of(NotebookView(page=page, parts=[rows], more="more is elsewhere").html())
    assert '<p class="verdict">The server keeps up</p>' in html
    assert figure.svg in html
    assert '<td class="n">TTFT, ms</td><td class="r">40</td>' in html
    assert "of the page" not in html
    assert "Numbers" not in html
    assert re.findall(r"<details( open)?><summary>(\w+)", html) == [(" open", "First"), ("", "Second")]
    assert "more is elsewhere" in html


@pytest.mark.parametrize(
    "part",
    [
        HOSTILE,
        TermRows([(HOSTILE, "x")]),
        TermRows([("x", HOSTILE)]),
        AlignedRows([[HOSTILE, "x"], ["y", "z"]]),
        AlignedRows([["x", "x"], ["y", HOSTILE]], [-3, 0]),
        SideBySide([{HOSTILE: "x"}, {"y": "x"}]),
        SideBySide([{"x": HOSTILE, "y": "x"}]),
        Verbatim([HOSTILE]),
        PageTable(head=["x"], rows=[[HOSTILE]], align="l"),
        Prose(markup=HOSTILE),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_stranger_s_text_is_text(part: AnswerPart | Part) -> None:
    html = shown(part, title=HOSTILE)
    assert html.count(SHOWN) == 2
    assert "<script" not in html
    assert html.count("alert(1)") == 2


def test_what_is_too_much_is_cut_and_that_is_told() -> None:
    large = [picture(f"n{i}", points=400) for i in range(60)]
    page = page_with(PageSection(title="Many", anchor="m", parts=[Figures(figures=large)]))
    rows = [["rate"], *([f"row {i}"] for i in range(MOST_ROWS + 7))]
    html = NotebookView(page=page, parts=[AlignedRows(rows), "x" * 5000]).html()
    drawn = html.count('<svg class="chart"')
    assert 10 < drawn < 60
    assert f"{60 - drawn} of the figures left out" in html
    assert f"row {MOST_ROWS - 1}<" in html
    assert f"row {MOST_ROWS}<" not in html
    assert "… 7 more rows are not shown here." in html
    assert len(html) < 200_000


def test_a_bar_of_characters_keeps_its_spaces() -> None:
    assert '<td class="p">█  │</td>' in shown(AlignedRows([["", "bar"], ["1", "█  │"]], [10, 0]))


def heads_of(style: str) -> list[str]:
    return [head.strip() for head in re.findall(r"([^{}]+)\{(?=[^{}]*\})", style)]


def test_the_styles_apply_to_nothing_else_on_the_page() -> None:
    page = files("traces.pages").joinpath("page.css").read_text(encoding="utf-8")
    style = re.findall(r"<style>(.*?)</style>", shown("x"), flags=re.DOTALL)[0]
    selectors = [one.strip() for head in heads_of(style) for one in re.split(r",(?![^()]*\))", head)]
    assert [each for each in selectors if ".vtwin" not in each] == []
    assert len(selectors) > len(heads_of(page))
    assert scoped("b, td:is(.a, .b) { x: y; }") == ".vtwin:not(#v) b,.vtwin:not(#v) td:is(.a, .b){ x: y; }"
    assert scoped("/* c { } */ @media print { body { x: y } }") == " @media print {.vtwin:not(#v){ x: y } }"
    assert len(style) < 16_000


def test_the_colours_are_those_of_the_notebook_s_theme_else_the_system_s() -> None:
    style = re.findall(r"<style>(.*?)</style>", shown("x"), flags=re.DOTALL)[0]
    dark, light = "--paper: #15181b", "--paper: #fcfcfa"
    assert style.index(".vtwin{ " + light) < style.index("prefers-color-scheme: dark) {.vtwin{ " + dark)
    assert '[data-jp-theme-light="false"] .vtwin,.vscode-dark .vtwin,[theme="dark"] .vtwin{ ' + dark in style
    assert (
        '[data-jp-theme-light="true"] .vtwin,.vscode-light .vtwin,[theme="light"] .vtwin{ ' + light in style
    )


class Told(NotebookAnswer):
    drawn_by: ClassVar[str] = "tests.traces.pages.test_notebook:view_of_told"

    def __str__(self) -> str:
        return "first\nsecond"


def view_of_told(answer: Told) -> NotebookView:
    return NotebookView(page=plain_page("c", Markup("T")), parts=str(answer).splitlines())


def test_an_answer_names_the_function_that_draws_it_and_has_a_line_as_repr() -> None:
    assert repr(Told()) == "<Told: first>"
    assert "<p>second</p>" in Told()._repr_html_()


def test_columns_with_a_width_are_numbers_and_names_are_set_left() -> None:
    rows = AlignedRows([["", "name", "none", "bar", "one"], ["x", "a", "b", "c", "d"]], [3, -1, 0, 1, 2])
    found = re.findall(r'<td class="(\w)">', shown(rows))
    assert found == ["n", "n", "p", "r", "r"]


def test_a_text_and_a_table_of_the_most_that_is_shown_are_whole() -> None:
    most = "x" * MOST_CHARACTERS
    assert f"{most}…" not in shown(most)
    assert f"{most}…" in shown(most + "y")
    rows = [["rate"], *([f"row {i}"] for i in range(MOST_ROWS))]
    assert "more row" not in shown(AlignedRows(rows))
    assert "… 1 more rows are not shown here." in shown(AlignedRows([*rows, ["last"]]))


def test_figures_of_just_the_most_bytes_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = picture("TTFT")
    page = page_with(PageSection(title="First", anchor="a", parts=[Figures(figures=[figure])]))
    for most, drawn in ((0, 1), (-1, 0)):
        monkeypatch.setattr(notebook, "MOST_BYTES", len(figure.svg.encode()) + most)
        assert NotebookView(page=page, parts=[]).html().count('<svg class="chart"') == drawn


def test_a_table_s_columns_are_aligned_each_one_and_no_more() -> None:
    """Names to the left, numbers to the right; where a terminal's widths say otherwise, as they do."""
    html = text_of(shown(SideBySide([{"": "a", "x": "1"}, {"": "b", "x": "2"}])))
    assert re.findall(r'<t[hd] class="(\w)">', html) == ["n", "r", "r"]
    html = text_of(shown(AlignedRows([["", "b", "c"], ["x", "y"]], [-3, -4, 0])))
    assert re.findall(r'<t[hd] class="(\w)">', html) == ["n", "n", "p"]
