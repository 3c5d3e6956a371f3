"""Facts in each form: every figure once, nothing cut, and JSON that every reader takes."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces import parse_run_slo, shown_time
from traces.atomic import MARKDOWN
from traces.facts import (
    AlignedRows,
    AnswerPart,
    Fact,
    SideBySide,
    TermRows,
    Verbatim,
    columns_of,
    document,
    head_of,
    markdown_table,
    markdown_text,
    of_limit,
    per_s,
    row_of,
    say_json,
    terminal_lines,
)

FACTS = [
    Fact("rate", "requests/s", 12.34567, per_s),
    Fact("ttft_us.p50", "TTFT", 1500.0, shown_time, note=" ✓"),
    Fact("ttft_us.p99", None, math.inf),
    Fact("", "verdict", "stable"),
    Fact("low", "from", None, per_s),
]
CELLS = st.text("abc µ±", max_size=9)


def test_a_fact_stands_in_json_by_its_key_and_before_people_by_its_term() -> None:
    assert document(FACTS) == {"rate": 12.34567, "ttft_us": {"p50": 1500.0, "p99": None}, "low": None}
    assert columns_of([FACTS]) == [
        {"requests/s": "12.35", "TTFT": "1.5 ms ✓", "verdict": "stable", "from": "-"}
    ]


def test_a_section_s_facts_are_chosen_by_its_name_and_one_by_its_key() -> None:
    assert row_of(FACTS, ("low", "ttft_us.p50", "rate")) == ["-", "1.5 ms ✓", "12.35"]
    assert head_of(FACTS, ("ttft_us", "rate")) == ["TTFT", "", "requests/s"]


@pytest.mark.parametrize(("value_us", "text"), [(500_000.0, "500 ms ✓"), (500_001.0, "500 ms ✗")])
def test_a_limited_latency_says_whether_it_is_within(value_us: float, text: str) -> None:
    [limit] = parse_run_slo("ttft_p99.9=500ms")
    fact = of_limit(value_us, limit)
    assert fact.text == text
    assert document([fact]) == {"values_us": {"ttft_p99.9": value_us}}


def test_json_has_null_for_what_has_no_end(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"a": [math.inf, (1.5, math.nan)], "b": {"c": -math.inf, "d": "inf"}})
    assert json.loads(capsys.readouterr().out) == {"a": [None, [1.5, None]], "b": {"c": None, "d": "inf"}}


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1))
def test_the_cells_of_aligned_rows_end_in_one_column_and_are_whole(rows: list[tuple[str, str, str]]) -> None:
    lines = terminal_lines([AlignedRows(rows)], width=None)
    assert len({len(line) for line in lines}) == 1
    assert terminal_lines([AlignedRows(rows, [-9, 9, 0])], width=None) == [
        f"{a:<9}{b:>9}{c}" for a, b, c in rows
    ]


def test_a_row_that_one_column_lacks_has_a_dash() -> None:
    shown = terminal_lines([SideBySide([{"x": "1"}, {"x": "2", "y": "3"}])], width=None)
    assert [line.split() for line in shown] == [["x", "1", "2"], ["y", "-", "3"]]


def test_a_markdown_table_takes_a_name_for_no_markup() -> None:
    assert markdown_table(["a", "b"], [["x|y", "<i>"]]) == "| a | b |\n| --- | ---: |\n| x\\|y | &lt;i> |"


ANSWER: list[AnswerPart] = [
    "a line",
    TermRows([("rate", "12 requests/s"), ("", "of 3 servers"), ("  from", "a|b")], width=8),
    "",
    AlignedRows([("hour", "engines"), ("0", "12"), ("1", "  none: no number")], [-6, 9]),
    SideBySide([{"": "H100", "TTFT": "5 ms", "  p99": "9 ms"}, {"": "L40S", "TTFT": "7 ms"}]),
    Verbatim(["|  *", "|*"]),
]


def test_an_answer_is_told_in_lines_and_as_markdown() -> None:
    assert terminal_lines(ANSWER, width=None) == [
        *("a line", "rate    12 requests/s", "        of 3 servers", "  from  a|b", ""),
        *("hour    engines", "0            12", "1       none: no number"),
        *(
            "               H100        L40S",
            "TTFT           5 ms        7 ms",
            "  p99          9 ms           -",
        ),
        *("|  *", "|*"),
    ]
    indent = "\u00a0\u00a0"
    assert markdown_text(ANSWER).split("\n\n") == [
        MARKDOWN,
        "a line",
        "- rate: 12 requests/s\n  - of 3 servers\n- from: a\\|b",
        "| hour | engines |\n| --- | ---: |\n| 0 | 12 |\n| 1 | none: no number |",
        f"|  | H100 | L40S |\n| --- | ---: | ---: |\n| TTFT | 5 ms | 7 ms |\n| {indent}p99 | 9 ms | - |",
        "```text\n|  *\n|*\n```\n",
    ]


def test_a_name_of_strangers_ends_no_table_and_no_block_of_code() -> None:
    hostile = "a\n```\n| b | <img src=x>\x1b[2J"
    text = markdown_text(
        [hostile, TermRows([(hostile, hostile)]), AlignedRows([(hostile,), (hostile,)]), Verbatim([hostile])]
    )
    assert "<img" not in text.partition("````text")[0]
    assert "\x1b" not in text
    block = markdown_text([Verbatim(["```", "<img src=x>"])])
    assert block.split("\n")[2:] == ["````text", "```", "<img src=x>", "````", ""]


def test_sentences_and_terms_are_wrapped_at_words_on_a_terminal() -> None:
    long = (
        "2 engines meet the SLO in simulation, with another seed at 2% more load, too; the formula asks for 4"
    )
    parts = [long, TermRows([("fleet", long)])]
    shown = terminal_lines(parts, width=80)
    assert max(map(len, shown)) <= 80
    assert [line.strip() for line in shown[:2]] == [long[:77].strip(), long[77:].strip()]
    assert shown[2].startswith("fleet ")
    assert shown[3].startswith(" " * 12)
    assert " ".join(" ".join(shown).split()) == f"{long} fleet {long}"
    assert terminal_lines(parts, width=None)[0] == long  # a pipe's lines stay whole


def test_a_table_that_is_wider_than_the_terminal_has_its_columns_closer_to_each_other() -> None:
    heads = ["instance", "requests", "prefix hits", "preemptions", "busy", "KV used", "TTFT, ms", "E2E, ms"]
    rows = [heads, ["0", "3,000", "0.0%", "0", "99.9%", "1.3%", "17.41", "599.8"]]
    table = AlignedRows(rows, [-12, 10, 13, 13, 8, 9, 10, 10])
    assert max(map(len, terminal_lines([table], width=None))) == 85
    shown = terminal_lines([table], width=80)
    assert max(map(len, shown)) <= 80
    assert [line.split() for line in shown] == [" ".join(row).split() for row in rows]
