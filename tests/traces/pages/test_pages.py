import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from traces import Header, make_trace
from traces.pages import (
    Cell,
    Dots,
    Figure,
    Figures,
    FoldedText,
    Headline,
    HeatMap,
    Line,
    Page,
    PageSection,
    PageTable,
    Prose,
    Terms,
    bars,
    bold,
    chart,
    code,
    element,
    heat_map,
    inline,
    legend,
    linear,
    listed,
    logarithmic,
    render,
    scale_of,
    whisker,
)
from traces.pages.request_figures import distribution_picture, dots_picture, tokens_in
from traces.units import shown_time

finite = st.floats(-1e9, 1e9)


@given(finite, finite)
@example(0.0, 5e-324)
def test_a_linear_axis_has_few_round_ticks_inside_it(one: float, other: float) -> None:
    axis = linear(min(one, other), max(one, other))
    assert len(axis.ticks) <= 8
    width = axis.high - axis.low
    assert all(axis.low - 1e-6 * width <= value <= axis.high + 1e-6 * width for value, _ in axis.ticks)


@given(st.floats(1e-3, 1e9), st.floats(1.0, 1e9))
def test_a_logarithmic_axis_places_its_ends_at_0_and_1(low: float, factor: float) -> None:
    axis = logarithmic(low, low * factor)
    assert list(axis.place(np.array([axis.low, axis.high]))) == pytest.approx([0, 1])


def test_an_axis_is_logarithmic_where_values_span_much() -> None:
    assert scale_of(np.geomspace(1, 1000, 500)).is_log
    assert not scale_of(np.linspace(10, 50, 500)).is_log
    assert not scale_of(np.array([])).is_log


def test_a_line_is_drawn_from_corner_to_corner() -> None:
    axis = linear(0, 1)
    drawn = chart(
        title="a & b", x=axis, y=axis, marks=(Line(x=np.array([0.0, 1.0]), y=np.array([0.0, 1.0]), name="n"),)
    )
    assert 'class="line n" d="M46 262L510 26"' in drawn
    assert "a &amp; b" in drawn


def test_ten_thousand_dots_are_one_small_path() -> None:
    values = np.linspace(0, 1, 10_000)
    drawn = chart(title="", x=linear(0, 1), y=linear(0, 1), marks=(Dots(x=values, y=values, name="n"),))
    assert drawn.count("<path") == 3
    assert len(drawn) < 40_000


def test_an_unknown_value_has_no_whisker_and_one_beyond_the_ends_stays_inside() -> None:
    assert whisker(None, None, None, ends=(0, 1), mark=0) is None
    assert 'd="M128.0 7.0h0"' in whisker(9.0, None, None, ends=(0, 1), mark=None)


def test_a_page_shows_every_part_and_escapes_text() -> None:
    page = Page(
        name="n",
        title="<t>",
        eyebrow="e",
        lead=bold("l"),
        headlines=[Headline(label="h", value="1 %", details=("d",))],
        sections=[
            PageSection(
                title="s",
                anchor="s",
                parts=[
                    PageTable(head=["<x>"], rows=[[Cell(text="<y>", aside="z", tint=0.5)]], align="l"),
                    PageTable(head=["", "x"], rows=[["of all", "1"], ["  a part", "2"]], align="lr"),
                    Prose(markup=element("i", {}, "p")),
                    Figures(figures=[Figure(svg=element("svg", {}, ""), caption="c")]),
                    Terms(terms=[("k", "v")]),
                    FoldedText(title="f", text="<raw>"),
                ],
            )
        ],
    )
    text = render(page)
    for expected in (
        "&lt;t&gt;",
        "<b>l</b>",
        "&lt;x&gt;",
        "&lt;y&gt;",
        "<i>p</i>",
        "<svg></svg>",
        "&lt;raw&gt;",
        "50%",
        '<td class="l">of all</td>',
        '<td class="l sub">a part</td>',  # a browser shows no leading spaces
    ):
        assert expected in text


def test_a_heat_map_has_a_cell_with_its_text_per_known_value() -> None:
    values = np.array([[0.0, 0.5, np.nan], [1.0, 0.25, 0.75]])
    drawn = heat_map(
        HeatMap(
            title="a & b",
            names=["x<1", "y"],
            values=values,
            ends=np.array([1.0, 2.0, 4.0]),
            x=linear(0, 4, label="s"),
            most=1.0,
            text=lambda value: f"{value:g}",
        )
    )
    assert "a &amp; b" in drawn
    assert drawn.count("<rect") == 5  # what is not known has none
    assert "<title>y · 2.0 to 4.0 s · 0.75</title>" in drawn
    assert "<title>x&lt;1 · 0.0 to 1.0 s · 0</title>" in drawn
    assert 'fill-opacity="1"' in drawn


def test_a_heat_map_of_many_instances_and_times_has_the_means_of_neighbours() -> None:
    rng = np.random.default_rng(1)
    values = rng.random((640, 300))
    drawn = heat_map(
        HeatMap(
            title="many",
            names=[str(number) for number in range(640)],
            values=values,
            ends=np.arange(300) + 1.0,
            x=linear(0, 300),
            most=1.0,
            text=lambda value: f"{value:.6f}",
        )
    )
    assert drawn.count("<rect") <= 2000
    assert "<title>0 to 9 · " in drawn
    columns = drawn.count("<title>0 to 9 · ")
    first = values[:10, : -(-300 // columns)].mean()
    assert f"· {first:.6f}</title>" in drawn


def test_a_pointer_over_a_chart_is_told_the_lines_values_there() -> None:
    x, y = linear(0, 10, label="s"), linear(0, 100, label="ms")
    rising = Line(x=np.array([0.0, 10.0]), y=np.array([0.0, 100.0]), name="simulated", label="twin")
    held = Line(x=np.array([2.0, 4.0]), y=np.array([30.0, 50.0]), name="arrived", steps=True)
    drawn = chart(title="t", x=x, y=y, marks=(rising, held))
    told = re.findall(r"<title>([^<]*)</title>", drawn)
    assert len(told) == 48
    assert told[0] == "0.1042 s: twin 1.042 ms"  # the other line begins later
    assert told[12] == "2.604 s: twin 26.04, arrived 30 ms"  # held from 2 s on
    assert "arrived" not in told[-1]


def test_a_chart_of_one_line_is_told_without_its_name_and_shares_in_per_cent() -> None:
    share = linear(0.0, 1.0, text=lambda value: f"{100 * value:.0f} %")
    line = Line(x=np.array([1.0, 100.0]), y=np.array([0.0, 1.0]), name="simulated")
    drawn = chart(title="t", x=logarithmic(1, 100, label="ms"), y=share, marks=(line,))
    assert "<title>1.049 ms: 0 %</title>" in drawn
    assert "simulated" not in "".join(re.findall(r"<title>([^<]*)</title>", drawn))


def test_a_line_that_runs_backwards_is_told_nothing_of() -> None:
    line = Line(x=np.array([1.0, 0.0, 2.0]), y=np.array([0.0, 1.0, 2.0]), name="n")
    assert "<title>" not in chart(title="t", x=linear(0, 2), y=linear(0, 2), marks=(line,))


LIMITS = {"inside": 320.0, "at the end": 400.0, "above": 500.0, "below": 5.0, "far above": 90_000.0}


@pytest.mark.parametrize("name", LIMITS)
@pytest.mark.parametrize("spread", ["narrow", "wide"])
def test_a_limit_is_drawn_where_it_is_and_labelled_or_said_to_be_off_the_chart(
    name: str, spread: str
) -> None:
    values = np.linspace(200, 400, 500) if spread == "narrow" else np.geomspace(2, 400, 500)
    limit = LIMITS[name]
    drawn = dots_picture(np.arange(500) * 1e4, values * 1e3, "TTFT", 5e6, limit * 1e3).svg()
    across = distribution_picture(values * 1e3, "TTFT", limit * 1e3).svg()
    said = f"limit {shown_time(limit * 1e3)}"
    if name == "far above":
        assert 'class="rule limit"' not in drawn + across
        assert f"{said}: off the chart" in drawn
        assert f"{said}: off the chart" in across
        return
    assert f">{said}<" in drawn
    assert f">{said}<" in across
    ticks = re.findall(r'class="tick" x="39" y="([\d.]+)" text-anchor="end">([\d,.]+)<', drawn)
    at = float(re.findall(r'class="rule limit" d="M46 ([\d.]+)L', drawn)[0])
    (low_y, low), (high_y, high) = (
        (float(y) - 4, float(text.replace(",", ""))) for y, text in ticks[:: len(ticks) - 1]
    )
    of = np.log if spread == "wide" else lambda value: value
    share = (of(limit) - of(low)) / (of(high) - of(low))
    assert at == pytest.approx(low_y + share * (high_y - low_y), abs=0.2)


def test_an_axis_that_does_not_start_at_0_or_is_not_even_says_so() -> None:
    values = np.array([0.0, 1.0])
    for axis, said in (
        (linear(0, 1, label="s"), ">s<"),
        (linear(5, 6, label="s"), ">s, not from 0<"),
        (logarithmic(1, 100, label="s"), ">s, log scale<"),
        (linear(-1, 1, label="s"), ">s<"),
    ):
        marks = (Line(x=values, y=values, name="n"),)
        assert said in chart(title="", x=linear(0, 1), y=axis, marks=marks)
        assert said in chart(title="", x=axis, y=linear(0, 1), marks=marks)


def test_tokens_are_counted_when_they_came() -> None:
    one = make_trace(
        Header(),
        {
            "request_id": ["a", "b"],
            "arrival_time_us": [0, 0],
            "input_tokens": 1,
            "status": "ok",
            "output_tokens": [5, 1],
            "first_chunk_time_us": [10, 30],
            "last_token_time_us": [50, 30],
        },
    )
    edges = np.array([0.0, 10.0, 20.0, 30.0, 40.0, 50.0])
    assert tokens_in(one, edges).tolist() == [0.0, 2.0, 1.0, 2.0, 1.0]
    timed = one.with_events(
        {
            "request_id": ["a"] * 5,
            "chunk_index": range(5),
            "timestamp_us": [10, 11, 12, 13, 50],
            "num_tokens": [1] * 5,
        }
    )
    assert tokens_in(timed, edges).tolist() == [0.0, 4.0, 0.0, 1.0, 1.0]


HOSTILE = "\"><script>alert(1)</script>' &amp; {}"
SHOWN = "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#39; &amp;amp; {}"


def test_text_is_escaped_wherever_it_stands_and_once() -> None:
    axis = linear(0, 1, label=HOSTILE)
    marks = (Line(x=np.array([0.0, 1.0]), y=np.array([0.0, 1.0]), name=HOSTILE, label=HOSTILE),)
    for drawn in (
        element("b", {"class": HOSTILE}, HOSTILE, bold(HOSTILE), code(HOSTILE)),
        inline(HOSTILE, " and ", bold(HOSTILE)),
        listed([HOSTILE, code(HOSTILE)], between=HOSTILE),
        legend([(HOSTILE, HOSTILE)]),
        bars([[(HOSTILE, 1.0)]], end=1.0, label=HOSTILE),
        chart(title=HOSTILE, x=axis, y=axis, marks=marks),
    ):
        assert "<script" not in drawn
        assert drawn.count(SHOWN) == drawn.count("alert(1)") >= 2
        assert '"">' not in drawn


def test_only_the_page_builders_make_markup() -> None:
    places = {
        path for room in ("replay", "calibrate", "observe", "traces") for path in Path(room).rglob("*.py")
    }
    makers = {Path("traces/pages/markup.py"), Path("traces/pages/page_parts.py")}
    for path in places - makers:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = [ast.unparse(each.func) for each in ast.walk(tree) if isinstance(each, ast.Call)]
        assert "Markup" not in called, path
        if "traces.pages" not in ast.unparse(tree):
            continue
        constants = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)]
        texts = [each for each in constants if isinstance(each, str)]
        assert [each for each in texts if re.search(r"<\s*/?[a-z]+[\s/>]", each)] == [], path
